//! What spreading the pins over the pass is worth against pinning the first layers, as others do:
//! `cargo bench --bench pins` prints the time of a token under both policies and the ratio that the model predicts.
//!
//! The model: a pass computes for C, all of it; its unpinned bytes take S / D to read. Spread pins let both go on at
//! once: max(S / D, C). A prefix of pins computes alone while the disk can only fill the ring of R bytes, and then the
//! rest of the pass waits for the rest of the bytes: p C + max((S - R) / D, (1 - p) C).

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::time::Instant;

use sipllm::commands::toy::{ARCHITECTURES, Recipe, write};
use sipllm::gguf::{Gguf, TensorType};
use sipllm::kernels::ops::KvElement;
use sipllm::kernels::{Arithmetic, Cancel, Kernels};
use sipllm::model::{Model, ModelOptions, NoHooks, Want};
use sipllm::weights::{ExtentParams, PinPolicy, Placement, StoreOptions};

const TOKENS: u32 = 8;
const RING_SLOTS: u32 = 8;

fn open(gguf: &Gguf, pins: PinPolicy, disk_limit: Option<u64>) -> Model {
    let extents = ExtentParams { pins, ..ExtentParams::default() };
    let options = ModelOptions {
        // Slow arithmetic, so that a throttle well under any disk's speed is as slow.
        kernels: Kernels::new(Arithmetic::Exact),
        threads: 1,
        kv: KvElement::F16,
        context: 128,
        store: StoreOptions { disk_limit, extents, ..StoreOptions::default() },
    };
    Model::open(gguf, options).unwrap()
}

/// A placement with this share of the extents pinned.
fn placement(model: &Model, share: f64) -> Placement {
    let table = model.store().table();
    let order = table.pin_order();
    let pins = (f64::from(table.len()) * share).round() as u32;
    let whole = pins == table.len();
    let ring_bytes = if whole { 0 } else { u64::from(RING_SLOTS) * table.slot_bytes() };
    let pinned_bytes = order.bytes_of(pins);
    Placement { pins, pinned_bytes, ring_slots: RING_SLOTS, ring_bytes, whole, ..Placement::default() }
}

/// Seconds and streamed bytes of a token: the median of some.
fn token(model: &mut Model) -> (f64, f64) {
    let mut seconds = Vec::new();
    for id in 0..TOKENS {
        let begun = Instant::now();
        model.forward(&[id], Want::Last, &mut NoHooks, &Cancel::never()).unwrap();
        seconds.push(begun.elapsed().as_secs_f64());
    }
    // The first ones fill the pins.
    let mut settled = seconds.split_off(2);
    settled.sort_by(f64::total_cmp);
    (settled[settled.len() / 2], model.store().counters().last_pass_streamed_bytes as f64)
}

fn main() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy.gguf");
    write(&Recipe::new(ARCHITECTURES[0], 24, 768, TensorType::Q4_K), &path).unwrap();
    let gguf = Gguf::open(&path).unwrap();

    let mut resident = open(&gguf, PinPolicy::Spread, None);
    let all = placement(&resident, 1.0);
    resident.store_mut().apply(&all);
    let (compute, _) = token(&mut resident);
    drop(resident);
    println!("everything pinned: {:.1} ms a token", 1e3 * compute);
    println!("pinned  disk / compute  spread ms  prefix ms  ratio  predicted");
    for share in [0.3, 0.5, 0.7] {
        // The disk takes as long as the arithmetic, and twice as long.
        for slowness in [1.0, 2.0] {
            let streamed = (1.0 - share) * all.pinned_bytes as f64;
            let rate = streamed / (slowness * compute);
            let mut times = Vec::new();
            for policy in [PinPolicy::Spread, PinPolicy::Prefix] {
                let mut model = open(&gguf, policy, Some(rate as u64));
                let target = placement(&model, share);
                model.store_mut().apply(&target);
                let ring = target.ring_bytes as f64;
                let (seconds, streamed) = token(&mut model);
                let disk = streamed / rate;
                let predicted = match policy {
                    PinPolicy::Spread => disk.max(compute),
                    PinPolicy::Prefix => share * compute + (disk - ring / rate).max((1.0 - share) * compute),
                };
                times.push((seconds, predicted));
            }
            let [(spread, spread_predicted), (prefix, prefix_predicted)] = times[..] else { return };
            println!(
                "{:>5.0}%  {slowness:>14.1}  {:>9.1}  {:>9.1}  {:>5.2}  {:>9.2}",
                100.0 * share,
                1e3 * spread,
                1e3 * prefix,
                prefix / spread,
                prefix_predicted / spread_predicted
            );
        }
    }
}
