//! What must hold on the real default model: the reference's logits and answer, 8-bit products that agree with exact
//! ones, and an answer that budgets do not change.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::process::Output;

use sipllm::engine::Loaded;
use sipllm::engine::protocol::{Budget, KernelKind, KvType, LoadRequest, Residency, SourceKind};
use sipllm::kernels::Cancel;
use sipllm::model::{NoHooks, Want};

const QUESTION: &str = "What is the capital of France?";

/// Prose to read, about 300 tokens of it.
const TEXT: &str = include_str!("data/prose.txt");

fn request(kernel: KernelKind, budget: Budget) -> LoadRequest {
    LoadRequest {
        path: common::default_model().to_owned(),
        budget,
        threads: Some(2),
        context: Some(512),
        kernel,
        residency: Residency::Quantized,
        source: SourceKind::Direct,
        kv: KvType::F32,
        prefill_batch: None,
        disk_limit: None,
        least_context: 512,
        speeds_file: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("devices.json")),
    }
}

/// Logits of every position of `ids`, (positions, vocabulary).
fn logits(kernel: KernelKind, ids: &[u32]) -> Vec<Vec<f32>> {
    let mut loaded = Loaded::open(request(kernel, Budget::Bytes(1 << 30)), &mut |_| ()).unwrap();
    loaded.make_room(ids.len() as u32, 1).unwrap();
    let vocabulary = loaded.info.vocabulary as usize;
    loaded.model.set_batch(32, 32);
    let mut rows = Vec::new();
    for batch in ids.chunks(32) {
        loaded.model.forward(batch, Want::All, &mut NoHooks, &Cancel::never()).unwrap();
        rows.extend(loaded.model.logits().chunks_exact(vocabulary).map(<[f32]>::to_vec));
    }
    rows
}

fn ids_of(text: &str) -> Vec<u32> {
    let gguf = sipllm::gguf::Gguf::open(common::default_model()).unwrap();
    sipllm::tokenizer::Tokenizer::from_gguf(&gguf).unwrap().encode(text, false)
}

fn first_maximum(row: &[f32]) -> usize {
    (0..row.len()).rev().max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap()
}

/// Natural logarithms of the probabilities.
fn log_softmax(row: &[f32]) -> Vec<f64> {
    let most = f64::from(row.iter().copied().fold(f32::MIN, f32::max));
    let sum: f64 = row.iter().map(|&x| (f64::from(x) - most).exp()).sum();
    row.iter().map(|&x| f64::from(x) - most - sum.ln()).collect()
}

fn run(arguments: &[&str]) -> Output {
    let model = common::default_model().to_str().unwrap();
    let output = common::sipllm().args(["run", model, QUESTION, "--temp", "0"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
#[ignore = "needs the default model"]
fn the_question_about_france_is_answered_and_nothing_else_is_printed() {
    for kernel in ["int8", "exact"] {
        let output = run(&["--kernel", kernel]);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "The capital of France is Paris.\n", "{kernel}");
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
#[ignore = "needs the default model"]
fn products_in_8_bit_planes_choose_what_exact_ones_choose() {
    let ids = ids_of(TEXT);
    assert!(ids.len() >= 290, "{} tokens", ids.len());
    let (exact, int8) = (logits(KernelKind::Exact, &ids), logits(KernelKind::Int8, &ids));
    let agreeing = exact.iter().zip(&int8).filter(|(a, b)| first_maximum(a) == first_maximum(b)).count();
    let divergence: f64 = exact
        .iter()
        .zip(&int8)
        .map(|(a, b)| {
            let (p, q) = (log_softmax(a), log_softmax(b));
            p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum::<f64>()
        })
        .sum::<f64>()
        / ids.len() as f64;
    let agreement = agreeing as f64 / ids.len() as f64;
    assert!(agreement >= 0.99, "{agreement} of {} positions", ids.len());
    assert!(divergence < 1e-4, "mean KL {divergence}");
}

#[test]
#[ignore = "needs the default model"]
fn the_answer_is_the_same_at_every_budget_from_every_source_with_any_threads() {
    let expected = run(&["-n", "8"]).stdout;
    for budget in ["0", "60M", "80M", "auto"] {
        for source in ["direct", "buffered", "mmap"] {
            for threads in ["1", "2"] {
                let output = run(&["-n", "8", "--budget", budget, "--source", source, "--threads", threads]);
                assert_eq!(output.stdout, expected, "{budget} {source} {threads}");
            }
        }
    }
}
