//! Running a tiny model through the library, exactly or otherwise, and comparing what comes out.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;

use sipllm::engine::Loaded;
use sipllm::engine::protocol::{Budget, KernelKind, KvType, LoadRequest, Residency, SourceKind};
use sipllm::kernels::Cancel;
use sipllm::model::{NoHooks, Want};

/// f32 arithmetic, all of the model in memory.
pub fn exact(path: &Path) -> LoadRequest {
    LoadRequest {
        path: path.to_owned(),
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
        speeds_file: Some(Path::new(env!("CARGO_TARGET_TMPDIR")).join("devices.json")),
    }
}

/// The model with room for `positions` and for batches of `batch`.
pub fn open(request: LoadRequest, positions: usize, batch: usize) -> Loaded {
    let mut loaded = Loaded::open(request, &mut |_| ()).unwrap_or_else(|failure| panic!("{}", failure.message));
    loaded.make_room(positions as u32, 1).unwrap_or_else(|failure| panic!("{}", failure.message));
    loaded.model.set_batch(batch, batch);
    loaded
}

/// Logits of every one of `ids`, which come after what the cache holds.
pub fn forward(loaded: &mut Loaded, ids: &[u32], batch: usize) -> Vec<f32> {
    let mut logits = Vec::new();
    for ids in ids.chunks(batch) {
        loaded.model.forward(ids, Want::All, &mut NoHooks, &Cancel::never()).unwrap();
        logits.extend_from_slice(loaded.model.logits());
    }
    logits
}

/// Logits of every prompt position, the greedy continuation, and the logits after it.
pub fn run(request: LoadRequest, prompt: &[u32], batch: usize, greedy: usize) -> (Vec<f32>, Vec<u32>, Vec<f32>) {
    let mut loaded = open(request, prompt.len() + greedy, batch);
    let logits = forward(&mut loaded, prompt, batch);
    let model = &mut loaded.model;
    let cancel = Cancel::never();
    let vocabulary = model.hyperparameters().vocabulary;
    let mut last = logits[logits.len() - vocabulary..].to_vec();
    let mut continuation = Vec::new();
    for _ in 0..greedy {
        let next = (0..last.len()).rev().max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap() as u32;
        continuation.push(next);
        model.forward(&[next], Want::Last, &mut NoHooks, &cancel).unwrap();
        last = model.logits().to_vec();
    }
    (logits, continuation, last)
}

pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
