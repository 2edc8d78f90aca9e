//! Text to tokens and back, and conversations to prompts, all from what a model's own file says.
//!
//! The reference for every choice is llama.cpp: the same text gives the same ids.

mod bpe;
mod error;
mod partition;
mod pretokenize;
mod special;
mod spm;
mod stream;
mod table;
mod template;
mod vocab;

use std::borrow::Cow;

pub use error::{TemplateError, TokenizerError};
pub use stream::TextStream;
pub use template::{ChatTemplate, RenderOptions, TemplateMessage, Thinking, ThinkingSwitch, is_thinking};

use crate::gguf::{Gguf, Metadata};
use crate::sanitize::line;
use bpe::Bpe;
use partition::{Fragment, Partition};
use pretokenize::{Family, Spelling};
use special::Special;
use spm::Spm;
use vocab::{Attributes, Vocab};

/// Characters of a name in the file that a message quotes.
const MOST_QUOTED: usize = 60;

/// A model's vocabulary and the way it cuts text.
#[derive(Debug)]
pub struct Tokenizer {
    vocab: Vocab,
    kind: Kind,
    partition: Partition,
    special: Special,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
    warnings: Vec<String>,
}

#[derive(Debug)]
enum Kind {
    Bpe(Box<Bpe>),
    Spm(Box<Spm>),
}

impl Tokenizer {
    /// Reads the tokenizer of a model (or of any file that has one).
    ///
    /// # Errors
    /// There is none, it is of a kind that is not supported, or the file is damaged.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        const MODEL: &str = "tokenizer.ggml.model";
        let metadata = gguf.metadata();
        let model = metadata.str(MODEL).ok_or(TokenizerError::Missing { key: MODEL })?;
        let mut warnings = Vec::new();
        let family = match model {
            "llama" => None,
            "gpt2" => Some(family_of(metadata, &mut warnings)),
            "gemma4" => pretokenize::family("gemma4"),
            other => return Err(TokenizerError::Unsupported(line(kind_name(other), MOST_QUOTED))),
        };
        let mut vocab = Vocab::from_gguf(gguf)?;
        let default = match family {
            None => Special { bos: Some(1), eos: Some(2), unknown: Some(0), ..Special::default() },
            Some(_) => Special::default(),
        };
        let special = Special::find(metadata, &mut vocab, default);
        special::mark_stripping_tokens(metadata, &mut vocab);
        let kind = match family {
            None => Kind::Spm(Box::new(Spm::from_gguf(gguf, &vocab, special.unknown)?)),
            Some(family) => Kind::Bpe(Box::new(Bpe::from_gguf(gguf, &vocab, family)?)),
        };
        let flag = |key: &str, default: bool| metadata.bool(&format!("tokenizer.ggml.{key}")).unwrap_or(default);
        let mut tokenizer = Self {
            partition: Partition::new(&vocab),
            vocab,
            kind,
            special,
            add_bos: flag("add_bos_token", family.is_none_or(|f| f.add_bos))
                || family.is_some_and(|f| f.spelling == Spelling::Gemma4),
            add_eos: flag("add_eos_token", false),
            add_space_prefix: flag("add_space_prefix", family.is_none()),
            warnings,
        };
        if let Some(end) = template::implied_ends(gguf, &tokenizer) {
            tokenizer.special.add_end(end);
        }
        Ok(tokenizer)
    }

    /// What a user should know about this tokenizer; usually empty.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Bytes of text that one token stands for at most.
    pub fn longest_token_bytes(&self) -> usize {
        // A character unknown to the vocabulary has up to four.
        self.vocab.longest().max(4)
    }

    /// The ids of `text`, without BOS. `parse_special` takes the spelling of control tokens for the tokens.
    pub fn encode(&self, text: &str, parse_special: bool) -> Vec<u32> {
        self.encode_bytes(text.as_bytes(), parse_special)
    }

    /// As [`Tokenizer::encode`], for bytes that may be no valid UTF-8.
    pub fn encode_bytes(&self, text: &[u8], parse_special: bool) -> Vec<u32> {
        let mut ids = Vec::new();
        // What follows a token taken whole, or nothing, begins a word.
        let mut begins = true;
        for fragment in self.partition.cut(&self.vocab, text, parse_special) {
            match fragment {
                Fragment::Token(id) => {
                    ids.push(id);
                    begins = true;
                }
                Fragment::Text(range) => {
                    match &self.kind {
                        Kind::Bpe(bpe) => bpe.encode(&self.vocab, &text[range], &mut ids),
                        Kind::Spm(spm) => {
                            spm.encode(&self.vocab, &text[range], begins && self.add_space_prefix, &mut ids);
                        }
                    }
                    begins = false;
                }
            }
        }
        ids
    }

    /// The ids of a rendered conversation: special tokens parsed, BOS in front if the model wants one and the text does
    /// not begin with it.
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        let mut ids = self.encode(text, true);
        if let Some(bos) = self.add_bos()
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        ids
    }

    /// The token to put in front of every prompt, if the model wants one.
    pub fn add_bos(&self) -> Option<u32> {
        self.special.bos.filter(|_| self.add_bos)
    }

    /// The token to put at the end of every text, if the model wants one; conversations have ends of their own.
    pub fn add_eos(&self) -> Option<u32> {
        self.special.eos.filter(|_| self.add_eos)
    }

    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    pub fn eot(&self) -> Option<u32> {
        self.special.eot
    }

    pub fn vocab_len(&self) -> usize {
        self.vocab.len()
    }

    /// Whether an answer ends with this token: eos, eot, eom, and what the chat template implies.
    pub fn is_end(&self, id: u32) -> bool {
        self.special.ends.binary_search(&id).is_ok()
    }

    /// Whether the token has no text of its own in an answer.
    pub fn is_control(&self, id: u32) -> bool {
        self.vocab.attributes(id).any(Attributes::CONTROL.or(Attributes::UNKNOWN))
    }

    /// The bytes of a token as they appear in text, a control token's spelling; a single token may be part of a
    /// character. Empty for an id that is no token.
    pub fn piece(&self, id: u32) -> Cow<'_, [u8]> {
        let text = self.vocab.text(id);
        let attributes = self.vocab.attributes(id);
        if attributes.any(Attributes::CONTROL.or(Attributes::UNKNOWN).or(Attributes::USER_DEFINED)) {
            Cow::Borrowed(text)
        } else if attributes.any(Attributes::NORMAL) {
            let escapes_blanks = match &self.kind {
                Kind::Bpe(bpe) => bpe.escapes_blanks(),
                Kind::Spm(_) => true,
            };
            if escapes_blanks { unescape_blanks(text) } else { unspell(text) }
        } else if attributes.any(Attributes::BYTE) {
            vocab::byte_of_token(text).map_or(Cow::Borrowed(text), |byte| Cow::Owned(vec![byte]))
        } else {
            Cow::Borrowed(&[])
        }
    }

    /// The token spelt `text`, if there is one.
    pub fn token(&self, text: &str) -> Option<u32> {
        self.vocab.find(text.as_bytes())
    }

    /// The spelling of a token in the vocabulary, as templates use it.
    fn spelling(&self, id: u32) -> String {
        String::from_utf8_lossy(self.vocab.text(id)).into_owned()
    }

    /// Whether the token is taken whole wherever its spelling stands.
    fn is_whole(&self, id: u32) -> bool {
        self.vocab.attributes(id).any(Attributes::CONTROL.or(Attributes::USER_DEFINED))
    }

    fn adds_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// Bytes this tokenizer holds in memory.
    pub fn heap_bytes(&self) -> usize {
        self.vocab.heap_bytes()
            + match &self.kind {
                Kind::Bpe(bpe) => bpe.heap_bytes(),
                Kind::Spm(spm) => spm.heap_bytes(),
            }
    }
}

/// How the kinds that are not supported are called.
fn kind_name(model: &str) -> &str {
    match model {
        "bert" => "WordPiece (bert)",
        "t5" => "unigram (t5)",
        "rwkv" => "RWKV",
        "plamo2" => "PLaMo 2",
        other => other,
    }
}

/// The way the file says its text is to be cut, or the one that stands in.
fn family_of(metadata: &Metadata, warnings: &mut Vec<String>) -> Family {
    const PRE: &str = "tokenizer.ggml.pre";
    let name = metadata.str(PRE).unwrap_or_default();
    pretokenize::family(name).unwrap_or_else(|| {
        warnings.push(match name {
            "" => format!("{PRE} is missing: text is cut in the default way, and answers may be worse for it"),
            name => {
                let name = line(name, MOST_QUOTED);
                format!("{PRE}: {name} is not known: text is cut in the default way, and answers may be worse for it")
            }
        });
        pretokenize::DEFAULT
    })
}

/// A token's text with its blanks as blanks.
fn unescape_blanks(text: &[u8]) -> Cow<'_, [u8]> {
    if !text.windows(spm::BLANK.len()).any(|w| w == spm::BLANK) {
        return Cow::Borrowed(text);
    }
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&first) = rest.first() {
        if let Some(after) = rest.strip_prefix(spm::BLANK) {
            plain.push(b' ');
            rest = after;
        } else {
            plain.push(first);
            rest = &rest[1..];
        }
    }
    Cow::Owned(plain)
}

/// A token's text with every byte as itself.
fn unspell(text: &[u8]) -> Cow<'_, [u8]> {
    if text.iter().all(|b| matches!(b, 0x21..=0x7E)) {
        return Cow::Borrowed(text);
    }
    let mut bytes = Vec::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match bpe::byte_of_spelling(c) {
                Some(byte) => bytes.push(byte),
                None => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        bytes.extend_from_slice(chunk.invalid());
    }
    Cow::Owned(bytes)
}
