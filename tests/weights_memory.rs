//! What the weight store really holds, as the kernel sees it: the resident set and the page cache follow the placement.
//! One test: figures of a process are shared by whatever runs in it.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sipllm::gguf::TensorType;
use sipllm::kernels::Cancel;
use sipllm::weights::memory::{self, file_cache_bytes};
use sipllm::weights::{MatrixSpec, PassEnd, Placement, SourceKind, StoreOptions, WeightStore};

const MIB: u64 = 1 << 20;
const LAYERS: u16 = 24;
const ROWS: usize = 2048;
const K: usize = 2048;

/// 24 layers of two matrices of 1.1 MiB each, and a head; 55 MiB.
fn specs() -> Vec<MatrixSpec> {
    let bytes = TensorType::Q4_0.row_bytes(K as u64).unwrap() * ROWS as u64;
    let matrices = u32::from(LAYERS) * 2 + 1;
    let spec = |n: u32| MatrixSpec {
        name: format!("matrix {n}"),
        ty: TensorType::Q4_0,
        k: K,
        rows: ROWS / 2,
        part: 0,
        offset: 4096 + u64::from(n) * bytes / 2,
        layer: (n / 2) as u16,
        stage: n,
        expert: None,
    };
    (0..matrices).map(spec).collect()
}

fn write_file(path: &Path, bytes: u64) {
    let mut file = std::fs::File::create(path).unwrap();
    let block: Vec<u8> = (0..MIB as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for _ in 0..bytes.div_ceil(MIB) {
        file.write_all(&block).unwrap();
    }
    file.sync_all().unwrap();
}

fn placement(store: &WeightStore, share: f64) -> Placement {
    let table = store.table();
    let order = table.pin_order();
    let pins = (f64::from(table.len()) * share) as u32;
    let whole = pins == table.len();
    Placement {
        pins,
        pinned_bytes: order.bytes_of(pins),
        ring_slots: 8,
        ring_bytes: if whole { 0 } else { 8 * table.slot_bytes() },
        whole,
        huge: whole,
        ..Placement::default()
    }
}

fn pass(store: &mut WeightStore) {
    store.begin_pass(1, PassEnd::Head);
    let mut at = 0;
    while at < store.table().len() {
        let lease = store.acquire(at..store.table().len(), &Cancel::never()).unwrap();
        // Touch every page, as a kernel does.
        let sum: u64 = lease.iter().flat_map(|(_, bytes)| bytes.iter().step_by(512)).map(|&byte| u64::from(byte)).sum();
        std::hint::black_box(sum);
        at += lease.len() as u32;
        store.release(lease, 1);
    }
    store.end_pass();
}

fn rss() -> u64 {
    memory::process().rss_bytes
}

#[test]
fn the_resident_set_follows_the_placement_up_and_down_and_the_page_cache_stays_empty() {
    memory::keep_heap_small();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let specs = specs();
    let end = specs.iter().map(|spec| spec.offset).max().unwrap() + 2 * MIB;
    write_file(&path, end);
    let paths: Vec<PathBuf> = vec![path.clone()];
    // Warm-up: code pages, stacks, tables.
    drop(WeightStore::open(&paths, &specs, StoreOptions::default()).unwrap());
    // What writing left in the cache goes first.
    let drop_cache = || {
        let file = std::fs::File::open(&path).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    };

    for source in [SourceKind::Direct, SourceKind::Buffered, SourceKind::Mmap] {
        drop_cache();
        let mut store = WeightStore::open(&paths, &specs, StoreOptions { source, ..StoreOptions::default() }).unwrap();
        let base = rss();
        for share in [0.0, 0.3, 1.0, 0.6, 0.1, 1.0, 0.0] {
            let target = placement(&store, share);
            let cut = Instant::now();
            store.apply(&target);
            while rss() > base + target.bytes() + MIB {
                assert!(cut.elapsed() < Duration::from_secs(1), "{source:?} {share}: {} MiB", rss() / MIB);
            }
            for _ in 0..3 {
                pass(&mut store);
                let over = rss().saturating_sub(base + target.bytes());
                assert!(over <= MIB, "{source:?} at {share}: {over} bytes over");
            }
            let held = rss() - base;
            let pinned = target.pinned_bytes;
            assert!(held + MIB >= pinned, "{source:?} at {share}: {held} bytes held of {pinned} pinned");
        }
        let cached = file_cache_bytes(&paths).unwrap();
        // The ring's maps are in the cache by their nature.
        let allowed = if source == SourceKind::Mmap { 8 * store.table().slot_bytes() + MIB } else { MIB };
        assert!(cached <= allowed, "{source:?}: {cached} bytes of the file are in the page cache");
        drop(store);
        assert!(rss() <= base + MIB, "{source:?}: all is given back");
    }
}
