//! Logits and greedy continuations of tiny models of every family equal the reference's, whatever the memory,
//! the source, the threads or the batch.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use sipllm::engine::Loaded;
use sipllm::engine::protocol::{Budget, KernelKind, KvType, LoadRequest, Residency, SourceKind};
use sipllm::kernels::Cancel;
use sipllm::model::{NoHooks, Want};

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
    LoadRequest {
        path: data(&format!("{name}.gguf")),
        budget: Budget::Bytes(1 << 30),
        threads: Some(2),
        context: Some(64),
        kernel: KernelKind::Exact,
        residency: Residency::Quantized,
        source: SourceKind::Buffered,
        kv: KvType::F32,
        prefill_batch: None,
        disk_limit: None,
        least_context: 64,
    }
}

/// Logits of every prompt position, then the greedy continuation.
fn run(request: LoadRequest, prompt: &[u32], batch: usize, greedy: usize) -> (Vec<f32>, Vec<u32>) {
    let mut loaded = Loaded::open(request, &mut |_| ()).unwrap_or_else(|failure| panic!("{}", failure.message));
    loaded.make_room((prompt.len() + greedy) as u32, 1).unwrap_or_else(|failure| panic!("{}", failure.message));
    let model = &mut loaded.model;
    model.set_batch(batch, batch);
    let cancel = Cancel::never();
    let mut logits = Vec::new();
    for ids in prompt.chunks(batch) {
        model.forward(ids, Want::All, &mut NoHooks, &cancel).unwrap();
        logits.extend_from_slice(model.logits());
    }
    let vocabulary = model.hyperparameters().vocabulary;
    let mut last = logits[logits.len() - vocabulary..].to_vec();
    let mut continuation = Vec::new();
    for _ in 0..greedy {
        let next = (0..last.len()).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap() as u32;
        continuation.push(next);
        model.forward(&[next], Want::Last, &mut NoHooks, &cancel).unwrap();
        last = model.logits().to_vec();
    }
    (logits, continuation)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn logits_and_greedy_ids_of_every_family_equal_the_reference() {
    for name in MODELS {
        let reference = reference(name);
        let (logits, greedy) = run(exact(name), &reference.prompt, reference.prompt.len(), reference.greedy.len());
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
        for kernel in [KernelKind::Exact, KernelKind::Int8] {
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
        for kernel in [KernelKind::Exact, KernelKind::Int8] {
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
