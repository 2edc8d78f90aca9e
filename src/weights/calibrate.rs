//! What the device can do, measured in about a second and remembered; and what follows for a model, before it is loaded.
//!
//! The bound is `T >= max(streamed / disk, touched / memory, compute)`: a pass cannot end before its last byte has come
//! from the disk, nor before its weights have gone through the processor. [`forecast`] is that bound with the loss that
//! overlapping the two costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::SourceKind;
use super::arena::Slot;
use super::extents::ExtentTable;
use super::plan::Placement;
use super::source;
use super::store::StoreError;

/// Bytes a second of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct DeviceSpeeds {
    /// Reading extents with the store's threads and source.
    pub disk_bytes_s: f64,
    /// Reading memory with all threads.
    pub memory_bytes_s: f64,
}

/// What bounds the speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limiter {
    Disk,
    Memory,
    Compute,
}

/// How the device is measured.
#[derive(Clone, Debug)]
pub struct Calibration<'a> {
    pub paths: &'a [PathBuf],
    pub table: &'a ExtentTable,
    pub source: SourceKind,
    /// Threads that read, and threads that compute.
    pub readers: usize,
    pub threads: usize,
    pub disk_time: Duration,
    /// Memory to read through, to measure its bandwidth; larger than the caches, or the caches are measured. 0 measures
    /// nothing.
    pub memory_bytes: usize,
}

/// The speeds of the device that holds the model: from the cache, or measured and then cached. A cache that cannot be
/// read or written (a full disk, a read-only home) costs a second next time, nothing else.
pub fn device_speeds(calibration: &Calibration, cache: Option<&Path>) -> Result<DeviceSpeeds, StoreError> {
    let key = device_key(calibration);
    let known = cache.and_then(read_cache).unwrap_or_default();
    if let Some(speeds) = known.get(&key).filter(|speeds| speeds.disk_bytes_s > 0.0)
        && (speeds.memory_bytes_s > 0.0 || calibration.memory_bytes == 0)
    {
        return Ok(*speeds);
    }
    measure(calibration, cache.map(|path| (path, known)), key)
}

/// The same measured now, whatever the cache says, and remembered: the last time may have been a busy one.
pub fn device_speeds_now(calibration: &Calibration, cache: Option<&Path>) -> Result<DeviceSpeeds, StoreError> {
    let known = cache.map(|path| (path, read_cache(path).unwrap_or_default()));
    measure(calibration, known, device_key(calibration))
}

fn measure(calibration: &Calibration, cache: Option<(&Path, Cache)>, key: String) -> Result<DeviceSpeeds, StoreError> {
    // Whole bytes survive being written as decimals.
    let disk_bytes_s = disk_bytes_s(calibration)?.round();
    let memory_bytes_s = memory_bytes_s(calibration.memory_bytes, calibration.threads).round();
    let speeds = DeviceSpeeds { disk_bytes_s, memory_bytes_s };
    if let Some((path, mut known)) = cache {
        // What was not measured this time is what it was.
        let memory_bytes_s = match (calibration.memory_bytes, known.get(&key)) {
            (0, Some(known)) => known.memory_bytes_s,
            _ => speeds.memory_bytes_s,
        };
        known.insert(key, DeviceSpeeds { memory_bytes_s, ..speeds });
        write_cache(path, &known);
    }
    Ok(speeds)
}

type Cache = std::collections::BTreeMap<String, DeviceSpeeds>;

/// A cache is small; whatever else lies there is not read.
const CACHE_BYTES: u64 = 1 << 20;

fn read_cache(path: &Path) -> Option<Cache> {
    let about = fs::metadata(path).ok()?;
    if !about.is_file() || about.len() > CACHE_BYTES {
        return None;
    }
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Whole or not at all: a cut-off file would only be measured again, but a reader may come in between.
fn write_cache(path: &Path, cache: &Cache) {
    let write = || -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let beside = path.with_extension(format!("{}.part", std::process::id()));
        let written = fs::write(&beside, serde_json::to_vec(cache)?).and_then(|()| fs::rename(&beside, path));
        if written.is_err() {
            let _ = fs::remove_file(&beside);
        }
        written
    };
    if let Err(error) = write() {
        tracing::debug!(%error, path = %path.display(), "the speeds of this device are not remembered");
    }
}

/// Device, way of reading and size of reads; another of any of these is measured anew.
fn device_key(calibration: &Calibration) -> String {
    let device = calibration.paths.first().map_or(0, |path| device_of(path));
    let (source, readers) = (calibration.source, calibration.readers);
    let extent = calibration.table.longest_read_bytes().next_power_of_two() >> 10;
    format!("device {device}, {source:?}, {readers} readers, {extent} KiB, {} threads", calibration.threads)
}

#[cfg(unix)]
fn device_of(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).map_or(0, |metadata| metadata.dev())
}

#[cfg(not(unix))]
fn device_of(_path: &Path) -> u64 {
    0
}

/// Time over which reads are counted together.
const SLICE: Duration = Duration::from_millis(50);

/// Reads extents, those of the whole file in turn, until the time is over: bytes a second of the median slice of it, so
/// that neither a moment in which others had the disk nor one in which it was at its best counts. Holds one slot a reader.
fn disk_bytes_s(calibration: &Calibration) -> Result<f64, StoreError> {
    // A map is filled through the page cache, as a buffered read is.
    let kind = match calibration.source {
        SourceKind::Mmap => SourceKind::Buffered,
        kind => kind,
    };
    let source = source::open(kind, calibration.paths)?;
    let table = calibration.table;
    if table.is_empty() {
        return Ok(0.0);
    }
    let (next, reads) = (AtomicU64::new(0), Mutex::new(Vec::new()));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..calibration.readers.max(1) {
            scope.spawn(|| {
                let Ok(mut slot) = Slot::anonymous(table.longest_read_bytes() as usize) else { return };
                while begun.elapsed() < calibration.disk_time {
                    let id = (next.fetch_add(1, Ordering::Relaxed) % u64::from(table.len())) as u32;
                    let (start, span) = table.read_span(id);
                    let alignment = source.alignment();
                    let (start, end) = (start / alignment * alignment, (start + span).next_multiple_of(alignment));
                    let span = ((end - start) as usize).min(slot.capacity());
                    let Ok(read) = source.read(table.extent(id).part, start, slot.bytes_mut(span)) else { return };
                    let mut reads = reads.lock().unwrap_or_else(PoisonError::into_inner);
                    reads.push((begun.elapsed(), read as u64));
                }
            });
        }
    });
    Ok(median_rate(&reads.into_inner().unwrap_or_else(PoisonError::into_inner)))
}

/// Bytes a second of the median slice of reads that ended so long after the beginning, in order. A slice ends with the
/// first read after [`SLICE`]: a slow disk's are as long as its reads.
fn median_rate(reads: &[(Duration, u64)]) -> f64 {
    let (mut rates, mut bytes, mut since) = (Vec::new(), 0, Duration::ZERO);
    for &(at, read) in reads {
        bytes += read;
        let took = at.saturating_sub(since);
        if took >= SLICE {
            rates.push(bytes as f64 / took.as_secs_f64());
            (bytes, since) = (0, at);
        }
    }
    if rates.is_empty() {
        let took = reads.last().map_or(0.0, |(at, _)| at.as_secs_f64());
        return if took > 0.0 { bytes as f64 / took } else { 0.0 };
    }
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Reads a buffer with all threads, several times, and takes the best.
fn memory_bytes_s(bytes: usize, threads: usize) -> f64 {
    const ROUNDS: usize = 4;
    let Ok(mut slot) = Slot::anonymous(bytes) else { return 0.0 };
    if bytes == 0 {
        return 0.0;
    }
    let buffer = slot.bytes_mut(bytes);
    buffer.fill(1);
    let buffer = &*buffer;
    let mut best = 0.0f64;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for part in buffer.chunks(bytes.div_ceil(threads.max(1))) {
                scope.spawn(move || {
                    let words = part.chunks_exact(8);
                    let sum = words.fold(0u64, |sum, word| {
                        sum.wrapping_add(u64::from_ne_bytes([
                            word[0], word[1], word[2], word[3], word[4], word[5], word[6], word[7],
                        ]))
                    });
                    std::hint::black_box(sum);
                });
            }
        });
        best = best.max(bytes as f64 / begun.elapsed().as_secs_f64());
    }
    best
}

/// What a machine does with a model's weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speeds {
    pub device: DeviceSpeeds,
    /// Weight bytes a second that a decoded token gets through, all of them in memory: the kernels, attention, the
    /// embedding's row and all.
    pub decode_bytes_s: f64,
    /// Weight bytes times positions a second of a prefill pass.
    pub prefill_bytes_s: f64,
    /// Seconds that the embedding's row of one position of a prompt takes, which nothing else goes on beside.
    pub row_s: f64,
    /// How much longer than [`overlapped`] disk and arithmetic a first pass takes, 1 or more: slots are touched for the
    /// first time, and readers and kernels want the same cores.
    pub lag: f64,
}

/// What one decoded token moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassBytes {
    /// Weights that it uses.
    pub touched_bytes: u64,
    /// Those of them that come from the disk.
    pub streamed_bytes: u64,
}

/// What a token touches and streams under a placement. Of a layer's experts, `experts_used` are taken to be any.
pub fn pass_bytes(table: &ExtentTable, placement: &Placement, experts_used: u16) -> PassBytes {
    let span = |id: u32| table.read_span(id).1;
    let order = table.pin_order().order();
    let on_disk = &order[(placement.pins as usize).min(order.len())..];
    let streamed: u64 = on_disk.iter().map(|&id| span(id)).sum();
    let experts: u64 = (0..table.len()).filter(|&id| table.extent(id).expert.is_some()).map(span).sum();
    let share = |bytes: u64| match table.experts_per_layer() {
        0 => 0.0,
        all => bytes as f64 * f64::from(experts_used.min(all)) / f64::from(all),
    };
    let missing = match table.pin_order().expert_bytes() {
        0 => 0.0,
        all => 1.0 - (placement.expert_bytes as f64 / all as f64).min(1.0),
    };
    let expert_file_bytes = table.all_file_bytes() - table.always_file_bytes();
    PassBytes {
        touched_bytes: table.always_file_bytes() + share(expert_file_bytes) as u64,
        streamed_bytes: streamed + (share(experts) * missing) as u64,
    }
}

/// The least time of one token, in seconds, and what it waits for. Speeds of 0 are unknown and bound nothing.
pub fn bound(bytes: PassBytes, speeds: &Speeds) -> (f64, Limiter) {
    let time = |bytes: u64, bytes_s: f64| if bytes_s > 0.0 { bytes as f64 / bytes_s } else { 0.0 };
    let disk = time(bytes.streamed_bytes, speeds.device.disk_bytes_s);
    let memory = time(bytes.touched_bytes, speeds.device.memory_bytes_s);
    let compute = time(bytes.touched_bytes, speeds.decode_bytes_s);
    if disk > memory.max(compute) {
        (disk, Limiter::Disk)
    } else if memory > compute {
        (memory, Limiter::Memory)
    } else {
        (compute, Limiter::Compute)
    }
}

/// What to expect of a model before it is loaded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    pub bytes: PassBytes,
    pub tok_s: f64,
    /// Time to the first token of a prompt.
    pub ttft_s: f64,
    pub limiter: Limiter,
}

/// Under this a chat is hopeless.
pub const HOPELESS_TOK_S: f64 = 0.1;

impl Forecast {
    pub fn is_hopeless(&self) -> bool {
        self.tok_s < HOPELESS_TOK_S
    }
}

/// The forecast for answers under a placement, and for a prompt of `prompt` positions read in batches of `batch`.
pub fn forecast(
    table: &ExtentTable,
    placement: &Placement,
    speeds: &Speeds,
    experts_used: u16,
    prompt: u32,
    batch: u32,
) -> Forecast {
    let bytes = pass_bytes(table, placement, experts_used);
    let (bound_s, limiter) = bound(bytes, speeds);
    let disk_s = bytes.streamed_bytes as f64 / speeds.device.disk_bytes_s.max(1.0);
    let compute_s = bytes.touched_bytes as f64 / speeds.decode_bytes_s.max(1.0);
    let token_s = overlapped(disk_s, compute_s).max(bound_s);

    // A prompt touches nearly every expert. The first pass also reads what is pinned.
    let passes = f64::from(prompt.div_ceil(batch.max(1)).max(1));
    let all = table.all_file_bytes() as f64;
    let first = all / speeds.device.disk_bytes_s.max(1.0);
    let rest = (passes - 1.0) * bytes.streamed_bytes as f64 / speeds.device.disk_bytes_s.max(1.0);
    let work = bytes.touched_bytes as f64 * f64::from(prompt) / speeds.prefill_bytes_s.max(1.0);
    let walks = speeds.lag * overlapped(first + rest, work.max(passes * compute_s));
    let ttft_s = f64::from(prompt) * speeds.row_s + walks;
    Forecast { bytes, tok_s: 1.0 / token_s.max(1e-9), ttft_s, limiter }
}

/// Two things that go on side by side and sometimes wait for each other: the longer one, and up to an eighth more where
/// they take the same time.
pub fn overlapped(a: f64, b: f64) -> f64 {
    const POWER: f64 = 6.0;
    let most = a.max(b);
    if most <= 0.0 {
        return 0.0;
    }
    most * ((a / most).powf(POWER) + (b / most).powf(POWER)).powf(1.0 / POWER)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::super::store_tests::{fixture, placement, specs};
    use super::super::{ExtentParams, MatrixSpec};
    use super::*;

    fn table() -> ExtentTable {
        ExtentTable::build(&specs(6, 2000), ExtentParams { alignment: 1, ..ExtentParams::default() }).unwrap()
    }

    const DEVICE: DeviceSpeeds = DeviceSpeeds { disk_bytes_s: 1e6, memory_bytes_s: 1e9 };
    const SPEEDS: Speeds = Speeds { device: DEVICE, decode_bytes_s: 1e8, prefill_bytes_s: 1e9, row_s: 0.0, lag: 1.0 };

    #[test]
    fn every_pinned_byte_saves_one_from_the_disk() {
        let table = table();
        let none = pass_bytes(&table, &placement(&table, 0, 8), 0);
        assert_eq!(none, PassBytes { touched_bytes: table.all_file_bytes(), streamed_bytes: table.all_file_bytes() });
        let half = table.len() / 2;
        let some = pass_bytes(&table, &placement(&table, half, 8), 0);
        let pinned: u64 =
            table.pin_order().order()[..half as usize].iter().map(|&id| u64::from(table.extent(id).bytes)).sum();
        assert_eq!(some.streamed_bytes, table.all_file_bytes() - pinned);
        assert_eq!(pass_bytes(&table, &placement(&table, table.len(), 8), 0).streamed_bytes, 0);
    }

    #[test]
    fn a_token_touches_its_share_of_the_experts() {
        let mut specs = specs(1, 2000);
        let mut offset = 10_000_000;
        for expert in 0..8 {
            let stage = specs[3].stage + 1;
            let spec = MatrixSpec { offset, stage, expert: Some(expert), ..specs[0].clone() };
            offset += 2000 * 68;
            specs.insert(4 + usize::from(expert), spec);
        }
        let head = specs.len() - 1;
        specs[head].stage += 1;
        let table = ExtentTable::build(&specs, ExtentParams { alignment: 1, ..ExtentParams::default() }).unwrap();
        let bytes = pass_bytes(&table, &placement(&table, 0, 8), 2);
        assert_eq!(bytes.touched_bytes, (5 + 2) * 2000 * 68);
        assert_eq!(bytes.streamed_bytes, bytes.touched_bytes);
    }

    #[test]
    fn the_slowest_of_disk_memory_and_compute_is_the_bound() {
        let bytes = PassBytes { touched_bytes: 100_000_000, streamed_bytes: 2_000_000 };
        assert_eq!(bound(bytes, &SPEEDS), (2.0, Limiter::Disk));
        let resident = PassBytes { streamed_bytes: 0, ..bytes };
        assert_eq!(bound(resident, &SPEEDS), (1.0, Limiter::Compute));
        let fast = Speeds { decode_bytes_s: 1e12, ..SPEEDS };
        assert_eq!(bound(resident, &fast), (0.1, Limiter::Memory));
    }

    #[test]
    fn a_forecast_is_near_the_bound_and_never_better() {
        let table = table();
        let all = table.all_file_bytes() as f64;
        for pins in [0, table.len() / 2, table.len()] {
            let placement = placement(&table, pins, 8);
            let forecast = forecast(&table, &placement, &SPEEDS, 0, 100, 100);
            let (bound_s, _) = bound(pass_bytes(&table, &placement, 0), &SPEEDS);
            assert!(forecast.tok_s <= 1.0 / bound_s + 1e-9);
            assert!(forecast.tok_s >= 1.0 / (1.13 * bound_s));
            assert!(forecast.ttft_s >= all / 1e6, "the first pass reads every weight");
            assert!(forecast.ttft_s <= 1.13 * all / 1e6);
        }
        assert!((overlapped(1.0, 1.0) - 1.122).abs() < 1e-3);
        let placement = placement(&table, 0, 8);
        let prompt = |speeds: &Speeds| forecast(&table, &placement, speeds, 0, 100, 100);
        let dragged = prompt(&Speeds { row_s: 0.25, lag: 1.5, ..SPEEDS });
        assert!((dragged.ttft_s - (25.0 + 1.5 * prompt(&SPEEDS).ttft_s)).abs() < 1e-9, "rows come before the walk");
        assert_eq!(dragged.tok_s, prompt(&SPEEDS).tok_s);
        let slow = Speeds { device: DeviceSpeeds { disk_bytes_s: 1e5, ..DEVICE }, ..SPEEDS };
        assert!(forecast(&table, &placement, &slow, 0, 1, 1).is_hopeless());
    }

    #[test]
    fn a_disk_is_as_fast_as_the_median_slice_of_its_reads() {
        let ms = Duration::from_millis;
        // Reads of 1 MB every 10 ms, but for a stall of half a second and a moment at ten times the speed.
        let steady = |from: u64, to: u64| (from / 10 + 1..=to / 10).map(|i| (ms(10 * i), 1_000_000));
        let burst = (901..=1000).map(|i| (ms(i), 1_000_000));
        let reads: Vec<_> =
            steady(0, 400).chain([(ms(900), 1_000_000)]).chain(burst).chain(steady(1000, 1400)).collect();
        assert!((median_rate(&reads) - 1e8).abs() < 1.0, "{}", median_rate(&reads));
        // Reads of a second each: every one is a slice; one that is not over yet tells nothing.
        let slow: Vec<_> = (1..=3).map(|i| (ms(1000 * i), 5_000_000)).collect();
        assert!((median_rate(&slow) - 5e6).abs() < 1.0);
        assert!((median_rate(&[(ms(20), 4_000_000)]) - 2e8).abs() < 1.0, "less than a slice is better than nothing");
        assert_eq!(median_rate(&[]), 0.0);
    }

    #[test]
    fn speeds_are_measured_once_and_a_useless_cache_is_no_error() {
        let fixture = fixture(specs(3, 2000));
        let params = ExtentParams { alignment: 4096, ..ExtentParams::default() };
        let table = ExtentTable::build(&fixture.specs, params).unwrap();
        let mut calibration = Calibration {
            paths: std::slice::from_ref(&fixture.path),
            table: &table,
            source: SourceKind::Direct,
            readers: 2,
            threads: 2,
            disk_time: Duration::from_millis(30),
            memory_bytes: 1 << 20,
        };
        let folder = tempfile::tempdir().unwrap();
        let cache = folder.path().join("not yet/speeds.json");
        let first = device_speeds(&calibration, Some(&cache)).unwrap();
        assert!(first.disk_bytes_s > 1e6 && first.memory_bytes_s > 1e7, "{first:?}");
        assert_eq!(device_speeds(&calibration, Some(&cache)).unwrap(), first);
        let wrong = DeviceSpeeds { disk_bytes_s: 7.0, memory_bytes_s: 7.0 };
        write_cache(&cache, &Cache::from([(device_key(&calibration), wrong)]));
        assert_eq!(device_speeds(&calibration, Some(&cache)).unwrap(), wrong);
        let now = device_speeds_now(&calibration, Some(&cache)).unwrap();
        assert!(now.disk_bytes_s > 1e6 && now.memory_bytes_s > 1e7, "{now:?}");
        assert_eq!(device_speeds(&calibration, Some(&cache)).unwrap(), now, "and is remembered");
        fs::write(&cache, b"{ cut off").unwrap();
        assert!(device_speeds(&calibration, Some(&cache)).unwrap().disk_bytes_s > 1e6);
        for useless in ["/dev/null/speeds.json", "/proc/none/speeds.json"] {
            assert!(device_speeds(&calibration, Some(Path::new(useless))).unwrap().disk_bytes_s > 1e6);
        }
        calibration.source = SourceKind::Mmap;
        assert!(device_speeds(&calibration, None).unwrap().disk_bytes_s > 1e6);
        calibration.paths = &[];
        assert!(device_speeds(&calibration, None).is_ok());
    }
}
