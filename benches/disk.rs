//! How fast the weights stream, against threads that only read the same extents into buffers of their own:
//! `cargo bench --bench disk` prints bytes a second of both and their ratio, medians of interleaved rounds.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use sipllm::gguf::TensorType;
use sipllm::kernels::Cancel;
use sipllm::weights::arena::Slot;
use sipllm::weights::source::open;
use sipllm::weights::{MatrixSpec, PassEnd, Placement, StoreOptions, WeightStore};

/// A file of random bytes and the matrices that lie in it.
struct Fixture {
    folder: tempfile::TempDir,
    specs: Vec<MatrixSpec>,
}

impl Fixture {
    fn path(&self) -> PathBuf {
        self.folder.path().join("model.gguf")
    }
}

const ROUNDS: usize = 7;

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
    let end = specs.last().map_or(0, |s| s.offset + s.rows as u64 * row_bytes);
    let fixture = Fixture { folder: tempfile::tempdir().unwrap(), specs };
    let mut file = std::io::BufWriter::new(std::fs::File::create(fixture.path()).unwrap());
    let mut rng = sipllm::quant::Rng::new(1);
    for _ in 0..end.div_ceil(4) {
        file.write_all(&rng.next_f32().to_le_bytes()).unwrap();
    }
    file.into_inner().unwrap().sync_all().unwrap();
    fixture
}

/// Bytes a second of threads that read the extents in order into buffers of their own and do nothing else.
fn plain_reader(store: &WeightStore, fixture: &Fixture, threads: usize) -> f64 {
    let source = open(store.source(), std::slice::from_ref(&fixture.path())).unwrap();
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

fn main() {
    for (layers, layer_bytes) in [(120, 2 << 20), (60, 8 << 20)] {
        let fixture = model(layers, layer_bytes);
        for readers in [2, 3, 4] {
            let options = StoreOptions { readers, ..StoreOptions::default() };
            let mut store = WeightStore::open(&[fixture.path()], &fixture.specs, options).unwrap();
            let slots = 2 * readers as u32;
            store.apply(&Placement {
                ring_slots: slots,
                ring_bytes: u64::from(slots) * store.table().slot_bytes(),
                ..Placement::default()
            });
            pass(&mut store);
            let (mut ours, mut plain) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                plain.push(plain_reader(&store, &fixture, readers));
                ours.push(pass(&mut store));
            }
            let (ours, plain) = (median(ours), median(plain));
            println!(
                "{:?}, extents of {:>4} KiB, {readers} readers: {:>5.0} MB/s of {:>5.0}: {:.2}",
                store.source(),
                store.table().longest_read_bytes() >> 10,
                ours / 1e6,
                plain / 1e6,
                ours / plain
            );
        }
    }
}
