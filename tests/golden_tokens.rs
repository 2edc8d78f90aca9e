//! The tokens of every vocabulary are those of llama.cpp, text comes back from them, and no text makes them slow.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

#[path = "support/vocab.rs"]
mod vocab;

use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use sipllm::gguf::Gguf;
use sipllm::tokenizer::{ChatTemplate, RenderOptions, TemplateMessage, TextStream, Tokenizer};
use vocab::{data, unpack, unpack_with};

#[derive(serde::Deserialize)]
struct Line {
    #[serde(default)]
    pre: String,
    text: String,
    #[serde(default)]
    parse_special: bool,
    ids: Vec<u32>,
}

fn lines(name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(data(name)).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Every line of `NAME.jsonl`: ids by llama.cpp.
fn agree(name: &str, tokenizer: &Tokenizer) {
    let lines = lines(&format!("{name}.jsonl"));
    assert_eq!(lines.len(), 49);
    for line in lines {
        let ids = tokenizer.encode(&line.text, line.parse_special);
        assert_eq!(ids, line.ids, "{name}: {:?}, special tokens parsed: {}", line.text, line.parse_special);
    }
}

macro_rules! golden {
    ($($test:ident: $name:literal),*) => {$(
        #[test]
        fn $test() {
            let tokenizer = unpack($name).tokenizer();
            assert_eq!(tokenizer.warnings(), [""; 0]);
            agree($name, &tokenizer);
        }
    )*};
}
golden!(
    smollm2_is_tokenized_as_by_llama_cpp: "smollm2",
    gpt_2_is_tokenized_as_by_llama_cpp: "gpt-2",
    llama_3_is_tokenized_as_by_llama_cpp: "llama-bpe",
    qwen2_is_tokenized_as_by_llama_cpp: "qwen2",
    llama_2_is_tokenized_as_by_llama_cpp: "llama-spm",
    phi_3_is_tokenized_as_by_llama_cpp: "phi-3"
);

/// Gemma 3 is tested where it is, at `SIPLLM_TEST_GEMMA`: fetching 253 MB for one test is too much to ask.
#[test]
#[allow(clippy::print_stderr)]
fn gemma_3_is_tokenized_as_by_llama_cpp_in_under_15_mb() {
    let Some(path) = std::env::var_os("SIPLLM_TEST_GEMMA") else {
        eprintln!("SIPLLM_TEST_GEMMA does not name gemma-3-270m-q4_k_m.gguf: not tested");
        return;
    };
    let gguf = Gguf::open(Path::new(&path)).unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    agree("gemma3", &tokenizer);
    assert_eq!(tokenizer.vocab_len(), 262_144);
    assert!(tokenizer.heap_bytes() < 15 << 20, "{} bytes", tokenizer.heap_bytes());
}

#[test]
fn every_pre_tokenizer_cuts_as_that_of_llama_cpp() {
    let lines = lines("families.jsonl");
    assert!(lines.len() > 900);
    for family in lines.chunk_by(|a, b| a.pre == b.pre) {
        let pre = &family[0].pre;
        let tokenizer = unpack_with("gpt-2", &[("tokenizer.ggml.pre", pre)]).tokenizer();
        assert_eq!(tokenizer.warnings(), [""; 0], "{pre}");
        for line in family {
            assert_eq!(tokenizer.encode(&line.text, false), line.ids, "{pre}: {:?}", line.text);
        }
    }
}

#[test]
fn an_unknown_pre_tokenizer_warns_and_is_taken_for_the_default() {
    let unknown = unpack_with("gpt-2", &[("tokenizer.ggml.pre", "new-and-shiny")]).tokenizer();
    assert_eq!(unknown.warnings().len(), 1);
    assert!(unknown.warnings()[0].contains("new-and-shiny"), "{:?}", unknown.warnings());
    for line in lines("families.jsonl").iter().filter(|line| line.pre == "default") {
        assert_eq!(unknown.encode(&line.text, false), line.ids);
    }
}

#[test]
fn other_kinds_of_tokenizers_are_refused_by_name() {
    for (model, name) in [("bert", "WordPiece"), ("t5", "unigram"), ("rwkv", "RWKV"), ("plamo2", "PLaMo"), ("x", "x")] {
        let file = unpack_with("gpt-2", &[("tokenizer.ggml.model", model)]);
        let error = Tokenizer::from_gguf(&file.gguf).unwrap_err().to_string();
        assert!(error.contains(name) && !error.contains('\n'), "{error}");
    }
}

#[test]
fn answers_end_where_the_models_end_them() {
    for (name, ends, others) in [
        ("llama-bpe", &["<|end_of_text|>", "<|eot_id|>"][..], &["<|begin_of_text|>", "<|start_header_id|>"][..]),
        ("qwen2", &["<|endoftext|>", "<|im_end|>"], &["<|im_start|>"]),
        ("phi-3", &["<|endoftext|>", "<|end|>", "</s>"], &["<|user|>", "<|assistant|>", "<s>"]),
        ("smollm2", &["<|im_end|>", "<|endoftext|>"], &["<|im_start|>"]),
        ("llama-spm", &["</s>"], &["<s>", "<unk>"]),
    ] {
        let tokenizer = unpack(name).tokenizer();
        let is_end = |text: &&str| tokenizer.is_end(tokenizer.token(text).unwrap());
        assert!(ends.iter().all(is_end), "{name}");
        assert!(!others.iter().any(is_end), "{name}");
    }
}

#[test]
fn bos_is_wanted_by_those_who_want_it() {
    for (name, bos) in
        [("llama-bpe", Some(128_000)), ("llama-spm", Some(1)), ("phi-3", Some(1)), ("qwen2", None), ("smollm2", None)]
    {
        assert_eq!(unpack(name).tokenizer().add_bos(), bos, "{name}");
    }
    let llama = unpack("llama-bpe").tokenizer();
    assert_eq!(llama.encode_prompt("<|begin_of_text|>Hi"), llama.encode_prompt("Hi"));
    assert_eq!(llama.encode_prompt("Hi"), [128_000, 13347]);
}

#[test]
fn bytes_that_are_no_text_are_replacement_characters_to_bpe_and_byte_tokens_to_spm() {
    let qwen = unpack("qwen2").tokenizer();
    assert_eq!(qwen.encode_bytes(b"a\xFFb", false), qwen.encode("a\u{FFFD}b", false));
    let llama = unpack("llama-spm").tokenizer();
    assert_eq!(llama.encode_bytes(b"\xFF", false), [llama.token("▁").unwrap(), llama.token("<0xFF>").unwrap()]);
}

static BPE: LazyLock<Vec<Tokenizer>> =
    LazyLock::new(|| ["gpt-2", "llama-bpe", "qwen2", "smollm2"].iter().map(|name| unpack(name).tokenizer()).collect());
static SPM: LazyLock<Vec<Tokenizer>> =
    LazyLock::new(|| ["llama-spm", "phi-3"].iter().map(|name| unpack(name).tokenizer()).collect());

/// Decodes token by token; what comes out before the end is already text.
fn decode(tokenizer: &Tokenizer, ids: &[u32], mut stream: TextStream) -> String {
    let mut text: String = ids.iter().map(|&id| stream.push(tokenizer, id)).collect();
    text += &stream.finish();
    text
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn text_comes_back_from_its_bpe_tokens(text in prop_oneof![any::<String>(), "[ \\n\\t'a-zA-Z0-9é漢🚀]{0,80}", "\\PC{0,60}"]) {
        for tokenizer in BPE.iter() {
            let ids = tokenizer.encode(&text, false);
            prop_assert_eq!(decode(tokenizer, &ids, TextStream::continuing()), &*text);
        }
    }

    #[test]
    fn text_comes_back_from_its_spm_tokens(text in prop_oneof!["[^▁]{0,40}", "[ \\n\\t'a-zA-Z0-9é漢🚀]{0,80}"]) {
        for tokenizer in SPM.iter() {
            let ids = tokenizer.encode(&text, false);
            prop_assert_eq!(decode(tokenizer, &ids, TextStream::new()), &*text);
        }
    }
}

#[test]
fn a_character_of_several_tokens_comes_out_whole() {
    let tokenizer = unpack("gpt-2").tokenizer();
    let ids = tokenizer.encode("🚀!", false);
    assert!(ids.len() > 2);
    let mut stream = TextStream::new();
    let pushed: Vec<String> = ids.iter().map(|&id| stream.push(&tokenizer, id)).collect();
    assert!(pushed[..ids.len() - 2].iter().all(String::is_empty), "{pushed:?}");
    assert_eq!(pushed[ids.len() - 2..], ["🚀", "!"]);
    // An answer that stops within a character ends with a replacement character.
    let mut cut = TextStream::new();
    assert_eq!(cut.push(&tokenizer, ids[0]), "");
    assert_eq!(cut.finish(), "\u{FFFD}");
}

#[test]
fn only_text_that_stands_on_its_own_loses_the_blank_before_its_first_word() {
    let tokenizer = unpack("llama-spm").tokenizer();
    let ids = tokenizer.encode("Hello world", false);
    assert_eq!(decode(&tokenizer, &ids, TextStream::new()), "Hello world");
    assert_eq!(decode(&tokenizer, &ids, TextStream::continuing()), " Hello world");
    let with_bos = [&[tokenizer.bos().unwrap()], ids.as_slice()].concat();
    assert_eq!(decode(&tokenizer, &with_bos, TextStream::new()), "Hello world");
}

#[test]
fn the_most_awkward_texts_of_32k_characters_take_less_than_50_ms() {
    let prose = "The quick brown fox, it's said, jumps over 13 lazy dogs.\n\n  Then: (nothing) happens! ";
    let texts = [
        ("one letter", "a".repeat(32_000)),
        ("letters in turn", "ab".repeat(16_000)),
        ("no blanks", "abcdefghijklmnopqrstuvwxyz".repeat(1231)),
        ("blanks", " ".repeat(32_000)),
        ("blanks and a word", " ".repeat(31_999) + "x"),
        ("line breaks", "\n".repeat(32_000)),
        ("tabs and line breaks", "\t\n ".repeat(10_667)),
        ("digits", "7".repeat(32_000)),
        ("punctuation", "!?".repeat(16_000)),
        ("apostrophes", "'".repeat(32_000)),
        ("han", "漢字".repeat(16_000)),
        ("marks", "e\u{301}".repeat(16_000)),
        ("emoji", "🚀".repeat(32_000)),
        ("nearly special", "<|".repeat(16_000)),
        ("capitals and not", "Aa".repeat(16_000)),
        ("prose", prose.repeat(32_000 / prose.len() + 1)),
    ];
    let mut tokenizers: Vec<(String, Tokenizer)> = ["gpt-2", "llama-bpe", "qwen2", "llama-spm", "phi-3"]
        .iter()
        .map(|n| ((*n).to_owned(), unpack(n).tokenizer()))
        .collect();
    for pre in [
        "smollm",
        "gpt-4o",
        "tekken",
        "deepseek-v3",
        "deepseek-llm",
        "kimi-k2",
        "superbpe",
        "exaone-moe",
        "jais-2",
        "default",
    ] {
        tokenizers.push((pre.to_owned(), unpack_with("gpt-2", &[("tokenizer.ggml.pre", pre)]).tokenizer()));
    }
    for (name, tokenizer) in &tokenizers {
        for (what, text) in &texts {
            // The best of a few, since other processes may have the machine.
            let best = (0..5).map(|_| {
                let start = Instant::now();
                assert!(!tokenizer.encode(text, true).is_empty());
                start.elapsed()
            });
            let best = best.min().unwrap_or(Duration::MAX);
            assert!(best < Duration::from_millis(50), "{name}, {what}: {best:?}");
            if std::env::var_os("SIPLLM_SHOW_TIMES").is_some() {
                println!("{name:12} {what:20} {best:?}");
            }
        }
    }
}

#[test]
fn a_vocabulary_of_128k_tokens_and_280k_merges_takes_less_than_8_mb() {
    let tokenizer = unpack("llama-bpe").tokenizer();
    assert_eq!(tokenizer.vocab_len(), 128_256);
    assert!(tokenizer.heap_bytes() < 8 << 20, "{} bytes", tokenizer.heap_bytes());
}

#[test]
fn the_question_for_the_capital_of_france_is_rendered_and_tokenized_as_by_llama_cpp() {
    let golden: serde_json::Value = serde_json::from_slice(&std::fs::read(data("france.json")).unwrap()).unwrap();
    let file = unpack("smollm2");
    let tokenizer = file.tokenizer();
    let template = ChatTemplate::from_gguf(&file.gguf, &tokenizer);
    assert!(!template.is_fallback());
    assert_eq!(template.warnings(), [""; 0]);
    let question = golden["messages"][0]["content"].as_str().unwrap();
    let messages = [TemplateMessage { role: "user", content: question }];
    let opts = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
    let rendered = template.render(&messages, &opts).unwrap();
    assert_eq!(rendered, golden["rendered"].as_str().unwrap());
    let ids = |key: &str| serde_json::from_value::<Vec<u32>>(golden[key].clone()).unwrap();
    assert_eq!(tokenizer.encode_prompt(&rendered), ids("prompt"));
    let answer = ids("greedy");
    assert_eq!(decode(&tokenizer, &answer, TextStream::new()), golden["answer"].as_str().unwrap());
    let ends: Vec<bool> = answer.iter().map(|&id| tokenizer.is_end(id)).collect();
    assert_eq!(ends.iter().position(|&end| end), Some(answer.len() - 1));
}

#[test]
fn a_model_without_a_template_of_its_own_gets_chatml_or_the_text_itself_and_a_warning() {
    for (vocabulary, knows_chatml) in [("qwen2", true), ("gpt-2", false)] {
        let file = unpack_with(vocabulary, &[("tokenizer.chat_template", "")]);
        let template = ChatTemplate::from_gguf(&file.gguf, &file.tokenizer());
        assert!(
            template.is_fallback()
                && template.warnings().len() == 1
                && template.thinking_switch() == Default::default()
        );
        assert_eq!(template.stops().contains(&"<|im_end|>"), knows_chatml, "{vocabulary}");
    }
    let broken = unpack_with("gpt-2", &[("tokenizer.chat_template", "{% for x in %}")]);
    let template = ChatTemplate::from_gguf(&broken.gguf, &broken.tokenizer());
    assert!(template.is_fallback());
    assert!(!template.warnings()[0].contains('\n'), "{:?}", template.warnings());
}

#[test]
fn the_end_of_turn_that_only_the_template_knows_ends_answers() {
    // In this vocabulary nothing but the template says that a user's turn ends the assistant's.
    let source = "{% for m in messages %}{{ '<|' + ('user' if m.role == 'user' else 'assistant') + '|>' + m.content }}{% endfor %}";
    let file = unpack_with("phi-3", &[("tokenizer.chat_template", source)]);
    let tokenizer = file.tokenizer();
    assert!(tokenizer.is_end(tokenizer.token("<|user|>").unwrap()));
    assert!(!tokenizer.is_end(tokenizer.token("<|assistant|>").unwrap()));
}
