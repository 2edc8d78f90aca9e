//! The pre-tokenizers by the name that a file gives in `tokenizer.ggml.pre`.

use super::stages::Stage;
use super::unicode::Char;
use super::words::{Blanks, Tail, Word, Words};

/// How a family of byte-level BPE vocabularies cuts and encodes text.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub(crate) stages: &'static [Stage],
    /// A piece that is a token is that token, whatever the merges would make of it.
    pub(crate) ignore_merges: bool,
    /// Whether prompts start with BOS where the file does not say.
    pub(crate) add_bos: bool,
    pub(crate) spelling: Spelling,
}

/// How the tokens of a BPE vocabulary are spelt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// Every byte as a printable character, as in GPT-2.
    Bytes,
    /// As they are, blanks as U+2581, bytes as `<0x0A>`; a run of line breaks that is a token is taken whole and BOS
    /// is always wanted: Gemma 4.
    Gemma4,
    /// As they are, blanks as U+2581, bytes as `<0x0A>`.
    Utf8,
}

impl Family {
    const fn new(stages: &'static [Stage]) -> Self {
        Self { stages, ignore_merges: false, add_bos: false, spelling: Spelling::Bytes }
    }

    const fn whole_words_first(self) -> Self {
        Self { ignore_merges: true, ..self }
    }

    const fn with_bos(self) -> Self {
        Self { add_bos: true, ..self }
    }
}

/// What a file without a name, or with one that is not known, is cut by.
pub(crate) const DEFAULT: Family = Family::new(&[
    Stage::Runs(|c| c.is_punctuation() || one_of(c, "$+<=>^~|")),
    Stage::Gpt2,
    Stage::Runs(Char::is_number),
    Stage::ThreeDigits,
]);

/// The family that `tokenizer.ggml.pre` names; `None` for a name that is not known.
pub(crate) fn family(name: &str) -> Option<Family> {
    let family = match name {
        "default" => DEFAULT,
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2"
        | "jina-v5-nano" => LLAMA3.whole_words_first().with_bos(),
        "dbrx" | "smaug-bpe" | "chatglm-bpe" => LLAMA3,
        "glm4" | "glm5" => LLAMA3.whole_words_first(),
        "jais-2" => Family::new(&[Stage::Words(Words { blanks: Blanks::Halving, ..Words::LLAMA3 })]),
        "minicpm5" => Family::new(&[Stage::ThreeNumbers, Stage::Words(Words { numbers: usize::MAX, ..Words::LLAMA3 })])
            .whole_words_first(),
        "qwen2" | "deepseek-r1-qwen" | "kormo" | "f2llmv2" | "megrez" | "stablelm2" | "hunyuan" | "solar-open"
        | "grok-2" | "bailingmoe" | "bailingmoe2" | "llada-moe" => QWEN2,
        "qwen35" => Family::new(&[Stage::Words(Words { word: Word::LettersAndMarks, ..Words::QWEN2 })]),
        "ufakzeka" => Family::new(&[Stage::Words(Words { contractions: false, ..Words::QWEN2 })]),
        "seed-coder" => Family::new(&[Stage::Words(Words { tail: Tail::Nothing, ..Words::QWEN2 })]),
        "laguna" => Family::new(&[LINES, Stage::Words(Words::QWEN2)]),
        "exaone-moe" => {
            Family::new(&[Stage::Words(Words { word: Word::Phrases, tail: Tail::OneNewlineOrSlash, ..Words::QWEN2 })])
        }
        "gpt-2" | "phi-2" | "jina-es" | "jina-de" | "gigachat" | "jina-v2-es" | "jina-v2-de" | "a.x-4.0" | "mellum"
        | "modern-bert" | "jina-v1-en" | "jina-v2-code" | "roberta-bpe" | "exaone4" | "mpt" | "olmo" | "jais"
        | "trillion" | "granite-docling" => Family::new(&[Stage::Gpt2]),
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b" | "mellum2" => {
            Family::new(&[Stage::Singles(Char::is_number), Stage::Gpt2])
        }
        "falcon" => Family::new(&[
            Stage::Runs(|c| c.is_punctuation() || one_of(c, "$+<=>^~|`")),
            Stage::Gpt2,
            Stage::ThreeDigits,
        ]),
        "bloom" | "poro-chat" | "gpt3-finnish" => Family::new(&[Stage::BlankedRuns(in_bloom_word)]),
        "viking" => Family::new(&[Stage::BlankedRuns(in_bloom_word), Stage::Singles(Char::is_number)]),
        "tekken" => Family::new(&[Stage::Words(Words { suffix: false, numbers: 1, ..Words::GPT4O })])
            .whole_words_first()
            .with_bos(),
        "gpt-4o" | "llama4" | "kanana2" | "talkie" | "minimax-m2" => Family::new(&[Stage::Words(Words::GPT4O)]),
        "granite-embed-multi-97m" => {
            Family::new(&[Stage::Words(Words { word: Word::Cased { marks: true }, ..Words::GPT4O })])
                .whole_words_first()
        }
        "tiny_aya" | "cohere2moe" => {
            Family::new(&[Stage::GroupsFromTheEnd, Stage::Words(Words { word: Word::Caseless, ..Words::GPT4O })])
        }
        "youtu" => Family::new(&[
            Stage::Scripts(&[in_hangul, in_cjk_punctuation, in_bopomofo, in_han_or_kana]),
            Stage::Words(Words { word: Word::Caseless, numbers: 1, ..Words::GPT4O }),
        ])
        .whole_words_first(),
        "kimi-k2" => Family::new(&[Stage::Words(Words {
            contractions: false,
            word: Word::NotHan,
            suffix: true,
            ..Words::LLAMA3
        })]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" | "hy_v4" => {
            Family::new(&[Stage::ThreeNumbers, Stage::Runs(in_han_or_kana), Stage::DeepSeek])
        }
        "spark2_5" => Family::new(&[
            Stage::ThreeNumbers,
            Stage::Runs(in_han_or_kana),
            Stage::Spark,
            Stage::Singles(Char::is_number),
        ]),
        "afmoe" => Family::new(&[Stage::GroupsFromTheEnd, Stage::Runs(in_east_asian_script), Stage::DeepSeek]),
        "deepseek-llm" => Family::new(&[
            Stage::Singles(Char::is_newline),
            Stage::SpacedRuns(in_cased_alphabet),
            Stage::SpacedRuns(in_ascii_or_wide_punctuation),
            Stage::TrailingSpace,
            Stage::Runs(in_middle_plane),
            Stage::Runs(Char::is_number),
        ]),
        "deepseek-coder" => Family::new(&[
            Stage::Singles(Char::is_newline),
            Stage::SpacedRuns(Char::is_letter),
            Stage::SpacedRuns(Char::is_punctuation),
            Stage::Runs(in_middle_plane),
            Stage::Singles(Char::is_number),
        ]),
        "superbpe" => Family::new(&[Stage::Runs(Char::is_number), Stage::Thousands]),
        "chameleon" => Family::new(&[
            Stage::Sentinels,
            Stage::Images,
            Stage::Indents,
            Stage::Singles(Char::is_number),
            Stage::Singles(|c| c.is_punctuation() || (c.is_symbol() && c.code_point() < 128)),
            Stage::Gpt2,
        ])
        .with_bos(),
        "gemma4" | "granite-embed-multi-311m" => {
            Family { spelling: Spelling::Gemma4, add_bos: true, ..Family::new(&[LINES]) }
        }
        "sarvam-moe" => Family { spelling: Spelling::Utf8, ..Family::new(&[LINES]) },
        _ => return None,
    };
    Some(family)
}

const LLAMA3: Family = Family::new(&[Stage::Words(Words::LLAMA3)]);
const QWEN2: Family = Family::new(&[Stage::Words(Words::QWEN2)]);
/// `[^\n]+|[\n]+`
const LINES: Stage = Stage::Runs(|c| c.is('\n'));

fn one_of(c: Char, set: &str) -> bool {
    set.chars().any(|s| c.is(s))
}

/// `[^(\s|.,!?…。，、।۔،)]`
fn in_bloom_word(c: Char) -> bool {
    c.exists() && !c.is_space() && !one_of(c, "(|.,!?…。，、।۔،)")
}

/// `[一-龥぀-ゟ゠-ヿ]`
fn in_han_or_kana(c: Char) -> bool {
    c.in_ranges(&[(0x4E00, 0x9FA5), (0x3040, 0x30FF)])
}

/// `[가-힣ㄱ-ㆎ]`
fn in_hangul(c: Char) -> bool {
    c.in_ranges(&[(0xAC00, 0xD7A3), (0x3131, 0x318E)])
}

/// `[ㄅ-ㄯ]`
fn in_bopomofo(c: Char) -> bool {
    c.in_ranges(&[(0x3105, 0x312F)])
}

/// `[！…“”‘’—：；，、-〿︰-﹏]`
fn in_cjk_punctuation(c: Char) -> bool {
    one_of(c, "！…“”‘’—：；，") || c.in_ranges(&[(0x3001, 0x303F), (0xFE30, 0xFE4F)])
}

/// `[一-龥ࠀ-一가-\u{D7FF}]`
fn in_middle_plane(c: Char) -> bool {
    c.in_ranges(&[(0x0800, 0x9FA5), (0xAC00, 0xD7FF)])
}

/// `[!-/:-~！-／：-～‘-‟\u{3000}-。]`
fn in_ascii_or_wide_punctuation(c: Char) -> bool {
    c.in_ranges(&[(0x21, 0x2F), (0x3A, 0x7E), (0xFF01, 0xFF0F), (0xFF1A, 0xFF5E), (0x2018, 0x201F), (0x3000, 0x3002)])
}

/// `[一-鿿㐀-䶿豈-﫿぀-ゟ゠-ヿ･-ﾟ⼀-⿟เ-๿຀-໿ក-៿က-႟ꩠ-ꩿꧠ-꧿가-힯ᄀ-ᇿ]`
fn in_east_asian_script(c: Char) -> bool {
    c.in_ranges(&[
        (0x4E00, 0x9FFF),
        (0x3400, 0x4DBF),
        (0x8C48, 0xFAFF),
        (0x3040, 0x30FF),
        (0xFF65, 0xFF9F),
        (0x2F00, 0x2FDF),
        (0x0E40, 0x0EFF),
        (0x1780, 0x17FF),
        (0x1000, 0x109F),
        (0xAA60, 0xAA7F),
        (0xA9E0, 0xA9FF),
        (0xAC00, 0xD7AF),
        (0x1100, 0x11FF),
    ])
}

/// Letters of alphabets with capitals, as DeepSeek LLM lists them.
#[rustfmt::skip]
const CASED_ALPHABETS: &[(u32, u32)] = &[
    (0x41, 0x5a), (0x61, 0x7a), (0xb5, 0xb5), (0xc0, 0xd6), (0xd8, 0xf6), (0xf8, 0x1ba),
    (0x1bc, 0x1bf), (0x1c4, 0x293), (0x295, 0x2af), (0x370, 0x373), (0x376, 0x377), (0x37b, 0x37d),
    (0x37f, 0x37f), (0x386, 0x386), (0x388, 0x38a), (0x38c, 0x38c), (0x38e, 0x3a1), (0x3a3, 0x3f5),
    (0x3f7, 0x481), (0x48a, 0x52f), (0x531, 0x556), (0x10a0, 0x10c5), (0x13a0, 0x13f5), (0x13f8, 0x13fd),
    (0x1c90, 0x1cba), (0x1cbd, 0x1cbf), (0x1d00, 0x1d2b), (0x1d6b, 0x1d77), (0x1d79, 0x1d9a), (0x1e00, 0x1f15),
    (0x1f18, 0x1f1d), (0x1f20, 0x1f45), (0x1f48, 0x1f4d), (0x1f50, 0x1f57), (0x1f59, 0x1f59), (0x1f5b, 0x1f5b),
    (0x1f5d, 0x1f5d), (0x1f5f, 0x1f7d), (0x1f80, 0x1fb4), (0x1fb6, 0x1fbc), (0x1fbe, 0x1fbe), (0x1fc2, 0x1fc4),
    (0x1fc6, 0x1fcc), (0x1fd0, 0x1fd3), (0x1fd6, 0x1fdb), (0x1fe0, 0x1fec), (0x1ff2, 0x1ff4), (0x1ff6, 0x1ffc),
    (0x2102, 0x2102), (0x2107, 0x2107), (0x210a, 0x2113), (0x2115, 0x2115), (0x2119, 0x211d), (0x2124, 0x2124),
    (0x2126, 0x2126), (0x2128, 0x2128), (0x212a, 0x212d), (0x212f, 0x2134), (0x2139, 0x2139), (0x213c, 0x213f),
    (0x2145, 0x2149), (0x214e, 0x214e), (0x2183, 0x2184), (0x2c00, 0x2c7b), (0x2c7e, 0x2ce4), (0x2ceb, 0x2cee),
    (0x2cf2, 0x2cf3), (0xa640, 0xa66d), (0xa680, 0xa69b), (0xa722, 0xa76f), (0xa771, 0xa787), (0xa78b, 0xa78e),
    (0xab70, 0xabbf), (0xfb00, 0xfb06), (0xfb13, 0xfb17), (0xff21, 0xff3a), (0xff41, 0xff5a), (0x10400, 0x1044f),
    (0x104b0, 0x104d3), (0x104d8, 0x104fb), (0x10c80, 0x10cb2), (0x10cc0, 0x10cf2), (0x118a0, 0x118df), (0x1e900, 0x1e943),
];

fn in_cased_alphabet(c: Char) -> bool {
    c.in_ranges(CASED_ALPHABETS)
}
