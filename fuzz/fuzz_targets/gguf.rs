//! Any bytes as a model file: the reader refuses or reads, and what it lets through lies inside the file.
//!
//! `cargo +nightly fuzz run gguf fuzz/corpus/gguf tests/data/models`
#![no_main]

use std::path::PathBuf;

use libfuzzer_sys::fuzz_target;
use sipllm::gguf::Gguf;

fuzz_target!(|bytes: &[u8]| {
    let path: PathBuf = std::env::temp_dir().join(format!("sipllm-fuzz-{}.gguf", std::process::id()));
    if std::fs::write(&path, bytes).is_err() {
        return;
    }
    match Gguf::open(&path) {
        Ok(model) => {
            for tensor in model.tensors() {
                assert!(tensor.offset + tensor.bytes <= bytes.len() as u64);
                assert_eq!(tensor.row_bytes() * tensor.rows(), tensor.bytes);
            }
            for (key, value) in model.metadata().iter() {
                let _ = (model.strings(key), model.f32s(key), model.i32s(key), model.u64s(key));
                if let Some(info) = value.as_array() {
                    let _ = model.array_head(info, 4);
                }
            }
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
