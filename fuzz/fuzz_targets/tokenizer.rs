//! Any bytes as a file with a tokenizer: it is refused, or cuts any text into tokens that it has and that have bytes.
//!
//! `cargo +nightly fuzz run tokenizer fuzz/corpus/tokenizer tests/data/models`
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use sipllm::gguf::Gguf;
use sipllm::tokenizer::{ChatTemplate, TextStream, Tokenizer};

fuzz_target!(|bytes: &[u8]| {
    let path: PathBuf = std::env::temp_dir().join(format!("sipllm-fuzz-tokenizer-{}.gguf", std::process::id()));
    if std::fs::write(&path, bytes).is_err() {
        return;
    }
    let Ok(file) = Gguf::open(&path) else { return };
    let tokenizer = match Tokenizer::from_gguf(&file) {
        Ok(tokenizer) => tokenizer,
        Err(error) => {
            assert!(!error.to_string().contains(char::is_control));
            return;
        }
    };
    assert!(!tokenizer.warnings().iter().any(|warning| warning.contains(char::is_control)));
    let _ = ChatTemplate::from_gguf(&file, &tokenizer);
    // The end of the input is a text, too: it changes freely without damage to the header.
    let tail = &bytes[bytes.len().saturating_sub(96)..];
    let known = "Hello, wörld! 123 it's\n\n  <s></s><|im_start|>漢字🚀".as_bytes();
    for text in [tail, known, &bytes[..bytes.len().min(64)]] {
        for special in [false, true] {
            let ids = tokenizer.encode_bytes(text, special);
            let mut stream = TextStream::new();
            for id in ids {
                assert!((id as usize) < tokenizer.vocab_len());
                stream.push(&tokenizer, id);
            }
            stream.finish();
        }
    }
    for id in (0..tokenizer.vocab_len() as u32).take(300).chain([u32::MAX]) {
        let _ = (tokenizer.piece(id), tokenizer.is_control(id), tokenizer.is_end(id));
    }
});
