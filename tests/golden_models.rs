//! Logits and greedy continuations of tiny models of every family equal the reference's, whatever the memory,
//! the source, the threads or the batch.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/model.rs"]
mod model;

use std::path::{Path, PathBuf};

use model::{bits, run};
use sipllm::engine::protocol::{Budget, KernelKind, LoadRequest, Residency, SourceKind};

const MODELS: &[&str] =
    &["llama", "llama-shuffled", "llama-tied", "mixtral", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "phi3"];

#[derive(serde::Deserialize)]
struct Reference {
    prompt: Vec<u32>,
    greedy: Vec<u32>,
}

fn data(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/models").join(file)
}

fn reference(name: &str) -> Reference {
    serde_json::from_slice(&std::fs::read(data(&format!("{name}.json"))).unwrap()).unwrap()
}

fn reference_logits(name: &str) -> Vec<f32> {
    let bytes = std::fs::read(data(&format!("{name}.f32"))).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}

fn exact(name: &str) -> LoadRequest {
    model::exact(&data(&format!("{name}.gguf")))
}

#[test]
fn logits_and_greedy_ids_of_every_family_equal_the_reference() {
    for name in MODELS {
        let reference = reference(name);
        let (logits, greedy, _) = run(exact(name), &reference.prompt, reference.prompt.len(), reference.greedy.len());
        let expected = reference_logits(name);
        assert_eq!(logits.len(), expected.len(), "{name}");
        let worst = logits.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "{name}: off by {worst}");
        assert_eq!(greedy, reference.greedy, "{name}");
    }
}

#[test]
fn a_prompt_in_one_pass_and_in_pieces_gives_the_same_bits() {
    for name in MODELS {
        for kernel in [KernelKind::Exact, KernelKind::Int8, KernelKind::Fast] {
            let prompt = reference(name).prompt;
            let request = || LoadRequest { kernel, ..exact(name) };
            let whole = run(request(), &prompt, prompt.len(), 4);
            for batch in [1, 5, 7] {
                let pieces = run(request(), &prompt, batch, 4);
                assert_eq!(bits(&whole.0), bits(&pieces.0), "{name}, {kernel:?}, batches of {batch}");
                assert_eq!(whole.1, pieces.1, "{name}, {kernel:?}, batches of {batch}");
            }
        }
    }
}

#[test]
fn any_budget_source_and_thread_count_gives_the_same_bits() {
    for name in MODELS {
        for kernel in [KernelKind::Exact, KernelKind::Int8, KernelKind::Fast] {
            let prompt = reference(name).prompt;
            let expected = run(LoadRequest { kernel, ..exact(name) }, &prompt, prompt.len(), 4);
            for (source, budget, threads) in [
                (SourceKind::Direct, Budget::Least, 1),
                (SourceKind::Buffered, Budget::Least, 3),
                (SourceKind::Mmap, Budget::Least, 7),
                (SourceKind::Direct, Budget::Bytes(1 << 30), 3),
                (SourceKind::Mmap, Budget::Bytes(1 << 30), 1),
            ] {
                let request = LoadRequest { kernel, source, budget, threads: Some(threads), ..exact(name) };
                let got = run(request, &prompt, 6, 4);
                assert_eq!(bits(&expected.0), bits(&got.0), "{name} {kernel:?} {source:?} {budget:?} {threads}");
                assert_eq!(expected.1, got.1, "{name} {kernel:?} {source:?} {budget:?} {threads}");
            }
        }
    }
}

#[test]
fn weights_expanded_to_f32_give_the_bits_of_the_quantised_ones() {
    for name in MODELS {
        let prompt = reference(name).prompt;
        let quantised = run(exact(name), &prompt, prompt.len(), 4);
        for budget in [Budget::Least, Budget::Bytes(1 << 30)] {
            let request = LoadRequest { residency: Residency::Fp32, budget, ..exact(name) };
            let expanded = run(request, &prompt, prompt.len(), 4);
            assert_eq!(bits(&quantised.0), bits(&expanded.0), "{name} {budget:?}");
        }
    }
}
