//! How fast the store streams, against threads that only read. Slow and noisy: run on purpose, with
//! `cargo test --release --lib bandwidth -- --ignored --nocapture`.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::arena::Slot;
use super::store_tests::{Fixture, fixture, placement};
use super::*;
use crate::gguf::TensorType;
use crate::kernels::Cancel;

/// A model of `layers` blocks whose weights take about `layer_bytes` each.
fn model(layers: u16, layer_bytes: u64) -> Fixture {
    const K: usize = 2048;
    let row_bytes = TensorType::Q4_0.row_bytes(K as u64).unwrap();
    let rows = (layer_bytes / 4 / row_bytes) as usize;
    let mut specs = Vec::new();
    for n in 0..u32::from(layers) * 4 {
        specs.push(MatrixSpec {
            name: format!("matrix {n}"),
            ty: TensorType::Q4_0,
            k: K,
            rows,
            part: 0,
            offset: 4064 + u64::from(n) * (rows as u64 * row_bytes).next_multiple_of(32),
            layer: (n / 4) as u16,
            stage: n,
            expert: None,
        });
    }
    fixture(specs)
}

/// Bytes a second of threads that read the extents in order into buffers of their own and do nothing else.
fn plain_reader(store: &WeightStore, fixture: &Fixture, threads: usize) -> f64 {
    let source = source::open(store.source(), std::slice::from_ref(&fixture.path)).unwrap();
    let table = store.table();
    let next = AtomicU32::new(0);
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut slot = Slot::anonymous(table.slot_capacity() as usize).unwrap();
                loop {
                    let id = next.fetch_add(1, Ordering::Relaxed);
                    if id >= table.len() {
                        return;
                    }
                    let (start, bytes) = table.read_span(id);
                    source.read(0, start, slot.bytes_mut(bytes as usize)).unwrap();
                }
            });
        }
    });
    let all: u64 = (0..table.len()).map(|id| table.read_span(id).1).sum();
    all as f64 / begun.elapsed().as_secs_f64()
}

fn pass(store: &mut WeightStore) -> f64 {
    let begun = Instant::now();
    store.begin_pass(1, PassEnd::Head);
    let mut at = 0;
    while at < store.table().len() {
        let lease = store.acquire(at..store.table().len(), &Cancel::never()).unwrap();
        at += lease.len() as u32;
        store.release(lease, 0);
    }
    store.end_pass();
    store.counters().last_pass_streamed_bytes as f64 / begun.elapsed().as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Rounds of five pairs in which nine tenths may be reached.
const ATTEMPTS: usize = 8;

#[test]
#[ignore = "reads gigabytes"]
fn streaming_reaches_nine_tenths_of_what_a_plain_reader_does() {
    let mut shortfalls = Vec::new();
    for (layers, layer_bytes) in [(120, 2 << 20), (60, 8 << 20)] {
        let fixture = model(layers, layer_bytes);
        for readers in [2, 3, 4] {
            let options = StoreOptions { readers, ..StoreOptions::default() };
            let mut store = WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options).unwrap();
            store.apply(&placement(store.table(), 0, 8));
            pass(&mut store);
            let extent = store.table().longest_read_bytes() >> 10;
            // Whoever else uses the machine meanwhile slows one side or the other: a fair round is enough.
            let fair = (0..ATTEMPTS).any(|_| {
                let (mut ours, mut plain) = (Vec::new(), Vec::new());
                for _ in 0..5 {
                    plain.push(plain_reader(&store, &fixture, readers));
                    ours.push(pass(&mut store));
                }
                let (ours, plain) = (median(ours), median(plain));
                eprintln!(
                    "{:?}, extents of {extent} KiB, {readers} readers: {:.0} MB/s of {:.0}: {:.2}",
                    store.source(),
                    ours / 1e6,
                    plain / 1e6,
                    ours / plain
                );
                ours >= 0.9 * plain
            });
            if !fair {
                shortfalls.push((extent, readers));
            }
        }
    }
    assert!(shortfalls.is_empty(), "{shortfalls:?}");
}
