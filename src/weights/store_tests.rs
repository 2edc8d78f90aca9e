//! The store on small files of random bytes: what arrives, what is read, and what is held.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::arena::Slot;
use super::source::{self, Source};
use super::*;
use crate::gguf::TensorType;
use crate::kernels::{Arithmetic, Cancel, CancelHandle, Groups, Kernels};

/// A file of `bytes` random bytes, and a model laid over it whose tensors lie in another order than they are used.
pub(super) struct Fixture {
    _folder: tempfile::TempDir,
    pub(super) path: PathBuf,
    pub(super) content: Vec<u8>,
    pub(super) specs: Vec<MatrixSpec>,
}

pub(super) fn random_bytes(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

const ROW: usize = 64; // elements; a Q8_0 row is 68 bytes

/// `layers` blocks of four matrices in three stages, and a head; Q8_0.
pub(super) fn specs(layers: u16, rows: usize) -> Vec<MatrixSpec> {
    let bytes = (rows * 68) as u64;
    let per_layer = bytes.next_multiple_of(32) * 4;
    let mut specs = Vec::new();
    for layer in 0..=layers {
        // Layers lie in the file last first, after a header that is no multiple of a page.
        let place = u64::from(layers - layer);
        let stage = u32::from(layer) * 3;
        let mut add = |name: &str, stage: u32, slot: u64| {
            specs.push(MatrixSpec {
                name: format!("blk.{layer}.{name}"),
                ty: TensorType::Q8_0,
                k: ROW,
                rows,
                part: 0,
                offset: 1056 + place * per_layer + slot * bytes.next_multiple_of(32),
                layer,
                stage,
                expert: None,
            });
        };
        if layer == layers {
            add("head", stage, 0);
        } else {
            add("q", stage, 2);
            add("k", stage, 3);
            add("up", stage + 1, 1);
            add("down", stage + 2, 0);
        }
    }
    specs
}

pub(super) fn fixture(specs: Vec<MatrixSpec>) -> Fixture {
    let end = specs.iter().map(|s| s.offset + s.ty.row_bytes(s.k as u64).unwrap() * s.rows as u64).max().unwrap();
    let content = random_bytes(end as usize, 42);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(&content).unwrap();
    file.sync_all().unwrap();
    Fixture { _folder: folder, path, content, specs }
}

pub(super) fn options(source: SourceKind) -> StoreOptions {
    let extents = ExtentParams { least_bytes: 8 << 10, most_bytes: 8 << 10, ..ExtentParams::default() };
    StoreOptions { source, extents, ..StoreOptions::default() }
}

pub(super) fn placement(table: &ExtentTable, pins: u32, ring_slots: u32) -> Placement {
    let whole = pins == table.len();
    Placement {
        pins,
        pinned_bytes: table.pin_order().bytes_of(pins),
        ring_slots,
        ring_bytes: u64::from(ring_slots) * table.slot_bytes(),
        whole,
        ..Placement::default()
    }
}

fn assert_same(store: &WeightStore, fixture: &Fixture, lease: &Lease) {
    for (id, bytes) in lease.iter() {
        let from = store.table().extent(id).offset as usize;
        for piece in store.table().pieces(id) {
            let matrix = store.table().matrix(piece.matrix);
            let rows = &bytes[piece.offset as usize..][..piece.bytes as usize];
            let mut expected = fixture.content[from + piece.file_offset as usize..][..rows.len()].to_vec();
            if let Some(interleave) = store.interleave_of(matrix.ty) {
                interleave.rows(&mut expected, matrix.row_bytes as usize, &mut Groups::new());
            }
            assert!(rows == expected, "extent {id} differs from the file");
        }
    }
}

/// Walks all stages; `between` runs after each lease.
pub(super) fn walk(
    store: &mut WeightStore,
    fixture: &Fixture,
    end: PassEnd,
    mut between: impl FnMut(&mut WeightStore),
) -> Result<(), StoreError> {
    let stages = match end {
        PassEnd::Head => store.table().stages(),
        PassEnd::Blocks => store.table().stages() - 1,
    };
    store.begin_pass(1, end);
    for stage in 0..stages {
        let mut range = store.table().stage_extents(stage);
        while !range.is_empty() {
            let lease = store.acquire(range.clone(), &Cancel::never())?;
            assert!(!lease.is_empty());
            assert_same(store, fixture, &lease);
            range.start += lease.len() as u32;
            store.release(lease, 1);
            between(store);
        }
    }
    store.end_pass();
    Ok(())
}

const SOURCES: [SourceKind; 3] = [SourceKind::Direct, SourceKind::Buffered, SourceKind::Mmap];

/// Every source with rows as they are and, as the processor's kernels take them, interleaved.
fn every_order() -> impl Iterator<Item = StoreOptions> {
    let kernels = [None, Some(Kernels::new(Arithmetic::Int8))];
    SOURCES.into_iter().flat_map(move |kind| kernels.map(|kernels| StoreOptions { kernels, ..options(kind) }))
}

#[test]
fn every_source_delivers_the_bytes_of_the_file_under_any_schedule_of_budgets() {
    let fixture = fixture(specs(6, 500));
    for options in every_order() {
        let mut store = WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options).unwrap();
        let extents = store.table().len();
        assert!(extents > 60);
        store.apply(&placement(store.table(), 0, 4));
        let mut state = 7u64;
        for pass in 0..40 {
            let end = if pass % 5 == 3 { PassEnd::Blocks } else { PassEnd::Head };
            walk(&mut store, &fixture, end, |store| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                if state >> 61 == 0 {
                    let pins = (state >> 20) as u32 % (extents + 1);
                    let ring = 1 + (state >> 50) as u32 % 10;
                    store.apply(&placement(store.table(), pins, ring));
                }
            })
            .unwrap();
        }
    }
}

#[test]
fn a_pass_reads_exactly_what_is_not_pinned() {
    let fixture = fixture(specs(6, 500));
    for kind in SOURCES {
        let mut store = WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(kind)).unwrap();
        let pins = store.table().len() / 3;
        store.apply(&placement(store.table(), pins, 8));
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
        let all: u64 = (0..store.table().len()).map(|id| store.table().read_span(id).1).sum();
        assert_eq!(store.counters().last_pass_streamed_bytes, all, "the first pass reads everything");

        let pinned = &store.table().pin_order().order()[..pins as usize];
        let kept: u64 = pinned.iter().map(|&id| store.table().read_span(id).1).sum();
        for _ in 0..3 {
            walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
            let counters = store.counters();
            assert_eq!(counters.last_pass_streamed_bytes, all - kept);
            assert_eq!(counters.pinned_bytes, store.table().pin_order().bytes_of(pins));
        }
        let mut ahead = 0;
        let settled = Instant::now();
        while settled.elapsed() < Duration::from_millis(200) {
            let counters = store.counters();
            ahead = counters.read_bytes - counters.streamed_bytes;
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(ahead <= 8 * store.table().longest_read_bytes(), "read ahead no farther than the ring: {ahead}");
        assert!(ahead > 0, "idle time is used to read ahead");
    }
}

#[test]
fn slots_never_exceed_the_placement_and_a_cut_frees_them_at_once() {
    let fixture = fixture(specs(8, 800));
    let mut store =
        WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(SourceKind::Direct)).unwrap();
    let all = store.table().len();
    for pins in [0, all / 4, all / 2, all - 1] {
        let target = placement(store.table(), pins, 8);
        store.apply(&target);
        for _ in 0..2 {
            walk(&mut store, &fixture, PassEnd::Head, |store| {
                let counters = store.counters();
                let held = counters.pinned_bytes + counters.ring_bytes;
                assert!(held <= target.bytes(), "{held} of {}", target.bytes());
            })
            .unwrap();
        }
    }
    assert!(store.counters().peak_slot_bytes <= placement(store.table(), all - 1, 8).bytes());
    store.apply(&placement(store.table(), 3, 4));
    let counters = store.counters();
    assert_eq!(counters.pinned_bytes, store.table().pin_order().bytes_of(3));
    std::thread::sleep(Duration::from_millis(100));
    assert!(store.counters().ring_bytes <= 4 * store.table().slot_bytes());
}

#[test]
fn pins_stay_in_what_is_lent_and_those_that_were_used_go_first_as_it_is_called_in() {
    let fixture = fixture(specs(8, 800));
    let mut store =
        WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(SourceKind::Direct)).unwrap();
    let (all, read) = (store.table().len(), |store: &WeightStore| -> u64 {
        (0..store.table().len()).map(|id| store.table().read_span(id).1).sum()
    });
    let (many, few) = (all / 2, all / 8);
    store.apply(&placement(store.table(), many, 8));
    walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();

    let table = store.table();
    let (kept, target) = (table.pin_order().order()[..many as usize].to_vec(), placement(table, few, 8));
    let over: Vec<(u32, u64)> = kept[few as usize..].iter().map(|&id| (id, table.pin_bytes(id))).collect();
    let lent = |from: u32| over.iter().filter(|(id, _)| *id >= from).map(|(_, bytes)| bytes).sum::<u64>();
    let saved: u64 = kept.iter().map(|&id| table.read_span(id).1).sum();
    store.apply(&Placement { lent_bytes: lent(0), ..target });
    assert_eq!(store.counters().pinned_bytes, target.pinned_bytes + lent(0), "all of them stay");
    store.begin_pass(1, PassEnd::Head);
    for id in 0..all {
        let lease = store.acquire([id], &Cancel::never()).unwrap();
        store.release(lease, 1);
        // What is behind the walk is called in.
        store.call_in(lent(id + 1));
        assert_eq!(store.counters().pinned_bytes, target.pinned_bytes + lent(id + 1));
    }
    store.end_pass();
    assert_eq!(store.counters().last_pass_streamed_bytes, read(&store) - saved, "each was used before it went");
    assert_eq!(store.counters().pinned_bytes, target.pinned_bytes);

    // What passes is kept in it too, but not more than fits.
    let room = lent(0) / 2;
    store.apply(&Placement { lent_bytes: room, ..target });
    walk(&mut store, &fixture, PassEnd::Head, |store| {
        assert!(store.counters().pinned_bytes <= target.pinned_bytes + room);
    })
    .unwrap();
    assert!(store.counters().pinned_bytes + store.table().slot_bytes() > target.pinned_bytes + room);

    // Called in all at once, or a placement that lends nothing.
    for lend in [true, false] {
        store.apply(&placement(store.table(), many, 8));
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
        store.apply(&Placement { lent_bytes: lent(0), ..target });
        assert!(store.counters().pinned_bytes > target.pinned_bytes);
        if lend {
            store.call_in(0)
        } else {
            store.apply(&target)
        }
        assert_eq!(store.counters().pinned_bytes, target.pinned_bytes);
    }
}

#[test]
fn a_model_kept_whole_is_read_once_and_is_one_lease_a_stage() {
    let fixture = fixture(specs(4, 3000));
    for huge in [false, true] {
        let mut store =
            WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(SourceKind::Direct))
                .unwrap();
        let all = store.table().len();
        store.apply(&Placement { huge, ..placement(store.table(), all, 8) });
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
        for _ in 0..3 {
            walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
            assert_eq!(store.counters().last_pass_streamed_bytes, 0);
        }
        store.begin_pass(1, PassEnd::Head);
        for stage in 0..store.table().stages() {
            let range = store.table().stage_extents(stage);
            let lease = store.acquire(range.clone(), &Cancel::never()).unwrap();
            assert_eq!(lease.len(), range.len());
            store.release(lease, 1);
        }
        store.end_pass();
        assert_eq!(store.counters().ring_bytes, 0);
        // And down again.
        store.apply(&placement(store.table(), all / 2, 8));
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
        assert!(store.counters().last_pass_streamed_bytes > 0);
    }
}

#[test]
fn a_broken_off_pass_leaves_nothing_behind() {
    let fixture = fixture(specs(6, 500));
    let mut store =
        WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(SourceKind::Direct)).unwrap();
    store.apply(&placement(store.table(), 10, 4));
    for stop_after in [1, 7, 20, 33] {
        store.begin_pass(1, PassEnd::Head);
        let mut at = 0;
        while at < stop_after {
            let lease = store.acquire(at..store.table().len(), &Cancel::never()).unwrap();
            at += lease.len() as u32;
            drop(lease); // as an error on the way would
        }
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
    }
}

#[test]
fn rows_arrive_in_the_order_asked_from_disk_or_from_memory() {
    let fixture = fixture(specs(3, 1000));
    for options in every_order() {
        let head = fixture.specs.last().unwrap().offset;
        let rows: Vec<u32> = (0..200).map(|n| n * 37 % 1000).chain([999, 0, 5, 5]).collect();
        for pinned in [false, true] {
            let paths = std::slice::from_ref(&fixture.path);
            let mut store = WeightStore::open(paths, &fixture.specs, options.clone()).unwrap();
            store.apply(&placement(store.table(), if pinned { store.table().len() } else { 0 }, 8));
            walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
            let before = store.counters().row_read_bytes;
            let mut out = vec![0; rows.len() * 68];
            let at = RowsAt { part: 0, offset: head, row_bytes: 68 };
            let waited = Cell::new(false);
            store.read_rows(at, &rows, &mut out, &Cancel::never(), || waited.set(true)).unwrap();
            assert_eq!(waited.get(), !pinned);
            for (row, bytes) in rows.iter().zip(out.chunks_exact(68)) {
                let from = head as usize + *row as usize * 68;
                assert!(bytes == &fixture.content[from..from + 68], "row {row}");
            }
            let read = store.counters().row_read_bytes - before;
            assert_eq!(read == 0, pinned, "a tied head in memory serves rows: {read}");
        }
    }
}

#[test]
fn rows_read_lately_are_not_read_again() {
    let fixture = fixture(specs(3, 1000));
    let mut store =
        WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(SourceKind::Direct)).unwrap();
    let mut ask = |first: usize, rows: &[u32]| {
        let before = store.counters().row_read_bytes;
        let mut out = vec![0; rows.len() * 68];
        let at = RowsAt { part: 0, offset: first as u64, row_bytes: 68 };
        store.read_rows(at, rows, &mut out, &Cancel::never(), || ()).unwrap();
        for (row, bytes) in rows.iter().zip(out.chunks_exact(68)) {
            assert!(bytes == &fixture.content[first + *row as usize * 68..][..68], "row {row} from {first}");
        }
        store.counters().row_read_bytes - before
    };
    let (head, first) = (fixture.specs.last().unwrap().offset as usize, fixture.specs[0].offset as usize);
    assert!(ask(head, &[3, 1, 2]) > 0);
    assert_eq!(ask(head, &[2, 3]), 0);
    assert!(ask(head, &[3, 4]) > 0);
    // The rows of another matrix have numbers of their own.
    assert!(ask(first, &[3]) > 0);
    assert!(ask(head, &[3]) > 0);
}

#[test]
fn a_row_that_was_expected_is_read_once_and_one_that_was_not_is_read_as_well() {
    let fixture = fixture(specs(3, 1000));
    let mut store =
        WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(SourceKind::Direct)).unwrap();
    let head = fixture.specs.last().unwrap().offset;
    let at = RowsAt { part: 0, offset: head, row_bytes: 68 };
    let mut ask = |expected: u32, row: u32| {
        store.expect_row(at, expected);
        let read = store.counters().row_read_bytes;
        let mut out = [0; 68];
        store.read_rows(at, &[row], &mut out, &Cancel::never(), || ()).unwrap();
        assert_eq!(out, fixture.content[head as usize + row as usize * 68..][..68], "row {row}, not {expected}");
        store.counters().row_read_bytes - read
    };
    for row in 0..50 {
        assert_eq!(ask(row, row), 0, "row {row} was expected");
    }
    for row in 100..150 {
        assert!(ask(row, row + 100) > 0, "row {row} was not");
    }
}

#[test]
fn the_disk_limit_is_kept_and_nearly_reached() {
    let fixture = fixture(specs(8, 2000));
    for kind in SOURCES {
        let options = StoreOptions { disk_limit: Some(20_000_000), ..options(kind) };
        let mut store = WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options).unwrap();
        store.apply(&placement(store.table(), 0, 8));
        walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
        // Whoever else uses the machine may slow a round, but nothing may speed one up.
        let nearly_reached = (0..6).any(|_| {
            let (begun, before) = (Instant::now(), store.counters().read_bytes);
            for _ in 0..2 {
                walk(&mut store, &fixture, PassEnd::Head, |_| {}).unwrap();
            }
            let rate = (store.counters().read_bytes - before) as f64 / begun.elapsed().as_secs_f64();
            assert!(rate < 21.5e6, "{rate:.0} bytes/s");
            rate > 17e6
        });
        assert!(nearly_reached, "{kind:?}");
    }
}

#[test]
fn a_throttled_store_is_dropped_at_once() {
    let fixture = fixture(specs(6, 500));
    let best = (0..5).map(|_| {
        let options = StoreOptions { disk_limit: Some(10_000), ..options(SourceKind::Direct) };
        let mut store = WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options).unwrap();
        store.apply(&placement(store.table(), 0, 8));
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        drop(store);
        begun.elapsed()
    });
    let best = best.min().unwrap();
    assert!(best < Duration::from_millis(200), "{best:?}");
}

#[test]
fn expanded_extents_hold_what_decoding_the_rows_gives() {
    let mut fixture = fixture(specs(2, 100));
    // Sane scales: random halfs may be NaN, which compare unequal.
    for spec in &fixture.specs {
        for block in 0..spec.rows * spec.k / 32 {
            let at = spec.offset as usize + block * 34;
            fixture.content[at..at + 2].copy_from_slice(&half::f16::from_f32(0.25).to_le_bytes());
        }
    }
    std::fs::write(&fixture.path, &fixture.content).unwrap();
    for kind in SOURCES {
        let options = StoreOptions { residency: Residency::Fp32, ..options(kind) };
        let mut store = WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options).unwrap();
        store.apply(&placement(store.table(), 4, 4));
        let mut row = vec![0.0; ROW];
        store.begin_pass(1, PassEnd::Head);
        for id in 0..store.table().len() {
            let lease = store.acquire([id], &Cancel::never()).unwrap();
            let (_, bytes) = lease.iter().next().unwrap();
            for piece in store.table().pieces(id) {
                assert_eq!(store.table().matrix(piece.matrix).ty, TensorType::F32);
                let spec = &fixture.specs[piece.matrix as usize];
                for n in 0..piece.rows as usize {
                    let from = spec.offset as usize + (piece.first_row as usize + n) * 68;
                    crate::quant::decode_row(spec.ty, &fixture.content[from..from + 68], &mut row);
                    let expected: Vec<u8> = row.iter().flat_map(|value| value.to_ne_bytes()).collect();
                    let at = piece.offset as usize + n * ROW * 4;
                    assert_eq!(&bytes[at..at + ROW * 4], expected);
                }
            }
            store.release(lease, 1);
        }
        store.end_pass();
    }
}

mod experts;
mod trouble;
