//! The vocabulary of toy models: byte-level BPE with ChatML specials, of any size from 288 on.

use std::collections::HashSet;

/// Bytes, a few merges of English, three specials: what every toy has.
pub const LEAST: usize = 288;

/// The most tokens that the filler can make.
pub const MOST: usize = 475_000;

/// Those of the tiny reference models. `Ġ` and `Ċ` stand for space and newline.
const MERGES: [&str; 22] = [
    "t h",
    "th e",
    "Ġ the",
    "i n",
    "a n",
    "Ġ a",
    "e r",
    "o n",
    "l l",
    "h e",
    "he ll",
    "hell o",
    "Ġ hello",
    "Ġ w",
    "o r",
    "in g",
    "1 2",
    "12 3",
    "Ã© Ã©",
    "Ċ Ċ",
    "Ġ Ġ",
    "ĠĠ ĠĠ",
];

const SPECIALS: [&str; 3] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];

pub const BOS: u32 = 278;
pub const EOS: u32 = 280;

pub const CHAT_TEMPLATE: &str = "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + \
    message['content'] + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}\
    {{ '<|im_start|>assistant\n' }}{% endif %}";

/// Numbers of `tokenizer.ggml.token_type`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

pub struct Vocabulary {
    pub tokens: Vec<String>,
    pub types: Vec<i32>,
    pub merges: Vec<String>,
}

impl Vocabulary {
    /// `size` tokens, between [`LEAST`] and [`MOST`]; those past the specials are letters merged two, three and four
    /// at a time, so that every id can come out of text.
    pub fn new(size: usize) -> Self {
        let mut vocabulary = Self { tokens: Vec::with_capacity(size), types: Vec::new(), merges: Vec::new() };
        vocabulary.tokens.extend((0..=255).map(|byte| byte_char(byte).to_string()));
        for merge in MERGES {
            vocabulary.tokens.push(merge.replace(' ', ""));
            vocabulary.merges.push(merge.to_owned());
        }
        vocabulary.types.resize(vocabulary.tokens.len(), NORMAL);
        vocabulary.tokens.extend(SPECIALS.map(str::to_owned));
        vocabulary.types.resize(vocabulary.tokens.len(), CONTROL);

        let mut known: HashSet<String> = vocabulary.tokens.iter().cloned().collect();
        let missing = size.saturating_sub(vocabulary.tokens.len());
        let fresh = filler().filter(|(left, right)| known.insert(format!("{left}{right}"))).take(missing);
        for (left, right) in fresh {
            vocabulary.tokens.push(format!("{left}{right}"));
            vocabulary.merges.push(format!("{left} {right}"));
        }
        vocabulary.types.resize(vocabulary.tokens.len(), NORMAL);
        vocabulary
    }
}

fn letters() -> impl Iterator<Item = char> + Clone {
    'a'..='z'
}

fn pairs() -> impl Iterator<Item = String> + Clone {
    letters().flat_map(|a| letters().map(move |b| format!("{a}{b}")))
}

/// Merges whose two sides are bytes, or come out of merges before them.
fn filler() -> impl Iterator<Item = (String, String)> {
    let twos = letters().flat_map(|a| letters().map(move |b| (a.to_string(), b.to_string())));
    let spaced = letters().map(|a| ("Ġ".to_owned(), a.to_string()));
    let spaced_twos = pairs().map(|pair| ("Ġ".to_owned(), pair));
    let threes = pairs().flat_map(|pair| letters().map(move |c| (pair.clone(), c.to_string())));
    let fours = pairs().flat_map(|left| pairs().map(move |right| (left.clone(), right)));
    twos.chain(spaced).chain(spaced_twos).chain(threes).chain(fours)
}

/// The character that stands for a byte in byte-level vocabularies.
///
/// Source: `bytes_to_unicode` of GPT-2: printable characters stand for themselves, the others, in order, for those from 256 up.
fn byte_char(byte: u8) -> char {
    let stands_for_itself = |byte: u8| matches!(byte, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    if stands_for_itself(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&other| !stands_for_itself(other)).count() as u32;
    char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::gguf::Gguf;

    #[test]
    fn the_first_tokens_are_those_of_the_reference_models() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/models/llama.gguf");
        let model = Gguf::open(path.as_ref()).unwrap();
        let reference = model.strings("tokenizer.ggml.tokens").unwrap().unwrap();
        let vocabulary = Vocabulary::new(LEAST);
        for (id, token) in vocabulary.tokens.iter().enumerate().take(281) {
            assert_eq!(token.as_bytes(), reference.get(id), "token {id}");
        }
        let merges = model.strings("tokenizer.ggml.merges").unwrap().unwrap();
        assert!(merges.iter().zip(&vocabulary.merges).all(|(theirs, ours)| theirs == ours.as_bytes()));
        assert_eq!(model.metadata().str("tokenizer.chat_template"), Some(CHAT_TEMPLATE));
        assert_eq!(model.metadata().u64("tokenizer.ggml.bos_token_id"), Some(BOS.into()));
        assert_eq!(model.metadata().u64("tokenizer.ggml.eos_token_id"), Some(EOS.into()));
    }

    #[test]
    fn every_size_is_reached_without_a_token_twice_and_merges_only_join_known_tokens() {
        for size in [LEAST, 1000, 32_000, 262_144, MOST] {
            let vocabulary = Vocabulary::new(size);
            assert_eq!(vocabulary.tokens.len(), size);
            assert_eq!(vocabulary.types.len(), size);
            let tokens: HashSet<&str> = vocabulary.tokens.iter().map(String::as_str).collect();
            assert_eq!(tokens.len(), size);
            let mut made: HashSet<String> = vocabulary.tokens[..278].iter().cloned().collect();
            for merge in &vocabulary.merges[MERGES.len()..] {
                let (left, right) = merge.split_once(' ').unwrap();
                assert!(made.contains(left) && made.contains(right), "{merge}");
                made.insert(format!("{left}{right}"));
            }
        }
    }
}
