//! The weight store: the walk of a pass over extents that are pinned, in the ring, or on disk.
//!
//! One thread, the engine's, walks; reader threads keep the ring full. The engine never reads itself: it waits on a
//! condition variable and looks for a cancel every few milliseconds, and a read that it no longer wants ends in its slot.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::gguf::TensorType;
use crate::kernels::{Cancel, Interleave, Kernels};

use super::extents::{ExtentError, ExtentParams, ExtentTable, Matrix, MatrixSpec};
use super::figures::{Counters, LayerFigures, LayerState};
use super::lease::{Item, Lease};
use super::plan::Placement;
use super::readers::{self, Shared};
use super::rows::{RecentRows, RowsAt, RowsJob};
use super::source::{self, Source};
use super::state::{Place, State};
use super::throttle::Throttle;
use super::{Residency, SourceKind, arena};

/// How often a waiting engine looks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(4);
/// How long an engine that waits for rows stays awake, before it sleeps.
const AWAKE: Duration = Duration::from_micros(300);
/// Jobs for rows that are kept for the next token.
const SPARE_ROWS: usize = 8;

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub source: SourceKind,
    pub residency: Residency,
    /// Bytes a second, to play a slower disk.
    pub disk_limit: Option<u64>,
    /// Reader threads, 2 to 4 as a rule.
    pub readers: usize,
    /// Whose products the weights are for: rows are interleaved for them on arrival, but for maps of the file. Without,
    /// rows stay as they are.
    pub kernels: Option<Kernels>,
    /// Sizes of extents; the store fills alignment, page and residency in.
    pub extents: ExtentParams,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            source: SourceKind::Direct,
            residency: Residency::Quantized,
            disk_limit: None,
            readers: 3,
            kernels: None,
            extents: ExtentParams::default(),
        }
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadFailure {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file ends before the bytes it is to hold.
    #[error("the file ends before that; it was cut while in use")]
    Short,
    /// A read failed, and the file could not be opened again.
    #[error("the file is no longer there: {0}")]
    Gone(std::io::Error),
}

/// What can go wrong with a store. After any of these the next pass may begin as usual.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cancelled")]
    Cancelled,
    #[error("{}: cannot open: {source}; check the path and its permissions", path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("{}: reading {bytes} bytes at {offset} failed: {failure}; check the file and its disk, then ask again", path.display())]
    Read { path: PathBuf, offset: u64, bytes: u64, failure: ReadFailure },
    #[error("no memory for a slot of {bytes} bytes: {source}; lower the budget")]
    Memory { bytes: u64, source: std::io::Error },
    #[error("cannot start a reader thread: {0}; raise the limit on processes")]
    Thread(std::io::Error),
    #[error(transparent)]
    Extents(#[from] ExtentError),
}

/// What a pass walks over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassEnd {
    /// The whole table.
    Head,
    /// The blocks alone: no logits are wanted (all but the last batch of a prompt).
    Blocks,
}

/// A row of those that an extent in memory has of a matrix.
struct RowIn<'a> {
    rows: &'a [u8],
    row: usize,
    ty: TensorType,
}

/// The weights of one model.
#[derive(Debug)]
pub struct WeightStore {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Extents by their place in the file, to find rows that are in memory anyhow.
    by_offset: Vec<u32>,
    paths: Vec<PathBuf>,
    in_pass: bool,
    spare: Vec<Item>,
    /// Jobs for rows that are over, for their memory.
    spare_rows: Vec<Arc<RowsJob>>,
    recent_rows: RecentRows,
    /// The row that is being read in the hope that it is needed.
    expected: Option<Arc<RowsJob>>,
}

impl WeightStore {
    /// Opens the parts of a model's file (a path for each part, in order) and lays out `matrices`, which are in the order
    /// of a pass. Nothing is read until [`Self::apply`] has given it memory.
    pub fn open(paths: &[PathBuf], matrices: &[MatrixSpec], options: StoreOptions) -> Result<Self, StoreError> {
        let mut store = Self::with_source(source::open(options.source, paths)?, matrices, options)?;
        store.paths = paths.to_vec();
        Ok(store)
    }

    /// As [`Self::open`], with a source of one's own (to inject failures).
    pub fn with_source(
        source: Box<dyn Source>,
        matrices: &[MatrixSpec],
        options: StoreOptions,
    ) -> Result<Self, StoreError> {
        let params = ExtentParams {
            alignment: source.alignment(),
            page: arena::page_bytes() as u64,
            residency: options.residency,
            ..options.extents
        };
        let table = ExtentTable::build(matrices, params)?;
        let mut by_offset: Vec<u32> = match options.residency {
            Residency::Quantized => (0..table.len()).collect(),
            Residency::Fp32 => Vec::new(),
        };
        by_offset.sort_by_key(|&id| (table.extent(id).part, table.extent(id).offset));
        let mapped = source.kind() == SourceKind::Mmap && options.residency == Residency::Quantized;
        let state = Mutex::new(State::new(&table, mapped));
        let shared = Arc::new(Shared {
            table,
            source,
            throttle: Throttle::new(options.disk_limit),
            kernels: options.kernels.filter(|_| !mapped && options.residency == Residency::Quantized),
            state,
            work: Condvar::new(),
            ready: Condvar::new(),
        });
        let threads = readers::start(&shared, options.readers).map_err(StoreError::Thread)?;
        let paths = Vec::new();
        Ok(Self {
            shared,
            threads,
            by_offset,
            paths,
            in_pass: false,
            spare: Vec::new(),
            spare_rows: Vec::with_capacity(SPARE_ROWS),
            recent_rows: RecentRows::default(),
            expected: None,
        })
    }

    pub fn table(&self) -> &ExtentTable {
        &self.shared.table
    }

    /// The source in use: `Buffered` where the file system refused `Direct`.
    pub fn source(&self) -> SourceKind {
        self.shared.source.kind()
    }

    /// How the rows of matrices of a type are interleaved where a lease hands them out, if they are.
    pub fn interleave_of(&self, ty: TensorType) -> Option<Interleave> {
        self.shared.interleave_of(ty)
    }

    /// Bytes that the readers come to hold for interleaving.
    pub fn scratch_bytes(&self) -> usize {
        let group = |matrix: &Matrix| {
            self.interleave_of(matrix.ty).map_or(0, |interleave| interleave.lanes() * matrix.row_bytes as usize)
        };
        self.threads.len() * self.table().matrices().iter().map(group).max().unwrap_or(0)
    }

    /// Takes on a placement, up or down, at any time. Slots over the target are unmapped before this returns; those under
    /// a read or a kernel as soon as that ends.
    pub fn apply(&mut self, placement: &Placement) {
        let mut state = self.shared.lock();
        state.apply(&self.shared.table, *placement);
        self.shared.unlock(state);
        self.shared.work.notify_all();
    }

    /// Of what the placement lends to pins over its target, no more than so much is free from now on.
    pub fn call_in(&mut self, bytes: u64) {
        let mut state = self.shared.lock();
        state.call_in(&self.shared.table, bytes);
        self.shared.unlock(state);
    }

    /// Changes the rate that plays a slower disk.
    pub fn set_disk_limit(&mut self, bytes_s: Option<u64>) {
        self.shared.throttle.set_rate(bytes_s);
    }

    /// Begins a walk over the table from its start, in which `positions` are computed (a figure alone).
    pub fn begin_pass(&mut self, positions: usize, end: PassEnd) {
        self.end_pass();
        self.in_pass = true;
        let end = match end {
            PassEnd::Head => self.table().len(),
            PassEnd::Blocks => self.table().head_start(),
        };
        self.shared.lock().begin_pass(positions, end);
    }

    /// Ends a walk, whole or broken off. Reading ahead goes on into the next one, also while idle.
    pub fn end_pass(&mut self) {
        if std::mem::take(&mut self.in_pass) {
            let mut state = self.shared.lock();
            let more = state.end_pass(&self.shared.table);
            self.shared.unlock(state);
            // Waking them for nothing would take processors from the kernels.
            if more {
                self.shared.work.notify_all();
            }
        }
    }

    /// The longest beginning of `ids` that is in memory, one extent at least; waits for the first. A lease holds few
    /// extents of the ring at once, so that readers go on meanwhile.
    /// Ids come in the order of the table, experts in the order given to [`Self::route`].
    pub fn acquire(&mut self, ids: impl IntoIterator<Item = u32>, cancel: &Cancel) -> Result<Lease, StoreError> {
        let table = &self.shared.table;
        let mut ids = ids.into_iter();
        let mut items = std::mem::take(&mut self.spare);
        items.clear();
        let Some(first) = ids.next() else { return Ok(Lease::new(Arc::clone(&self.shared), items)) };

        let mut state = self.shared.lock();
        let mut waiting: Option<Instant> = None;
        // What failed while nobody waited for it is tried once more now that somebody does.
        let mut stale_failure = state.place(first) == Place::Failed;
        let waited = loop {
            match state.place(first) {
                Place::Ready | Place::Pinned => break Ok(()),
                Place::Failed => {
                    let failure = state.take_failure(table, first);
                    if !std::mem::take(&mut stale_failure) {
                        break Err(failure.unwrap_or(StoreError::Cancelled));
                    }
                    continue;
                }
                Place::Disk => {
                    if state.demand(table, first) {
                        self.shared.work.notify_all();
                    }
                }
                Place::Reading => {}
            }
            if cancel.is_cancelled() {
                break Err(StoreError::Cancelled);
            }
            waiting.get_or_insert_with(Instant::now);
            state = self.shared.ready.wait_timeout(state, CANCEL_POLL).unwrap_or_else(PoisonError::into_inner).0;
        };
        let layer = table.extent(first).layer;
        if let Some(since) = waiting {
            let us = since.elapsed().as_micros() as u64;
            state.counters.wait_us += us;
            state.layers[usize::from(layer)].wait(us);
        }
        if waited.is_ok() {
            let mut from_ring = 0;
            let limit = state.lease_limit();
            for id in std::iter::once(first).chain(ids) {
                if from_ring == limit && state.place(id) == Place::Ready {
                    break;
                }
                let Some((slot, ring)) = state.lease(table, id) else { break };
                from_ring += usize::from(ring);
                let extent = table.extent(id);
                let start = match table.params().residency {
                    Residency::Quantized => (extent.offset - table.read_span(id).0) as usize,
                    Residency::Fp32 => 0,
                };
                items.push(Item { id, slot, bytes: start..start + extent.memory_bytes as usize });
            }
            state.computing = Some(layer);
        }
        self.shared.unlock(state);
        match waited {
            Ok(()) => Ok(Lease::new(Arc::clone(&self.shared), items)),
            Err(error) => {
                self.spare = items;
                Err(error)
            }
        }
    }

    /// Gives a lease back with the time its kernels took; extents that the placement keeps stay, the slots of others are
    /// read into next.
    pub fn release(&mut self, lease: Lease, compute_us: u32) {
        self.spare = lease.give_back(compute_us);
    }

    /// Experts chosen by the router: these extents are read next, in this order.
    pub fn route(&mut self, ids: &[u32]) {
        let mut state = self.shared.lock();
        let more = state.route(&self.shared.table, ids);
        self.shared.unlock(state);
        if more {
            self.shared.work.notify_all();
        }
    }

    /// Rows of a matrix that need not be in the table (embeddings). `out` gets `rows.len()` of them, in the order asked.
    /// `waits` is called before the disk is waited for.
    pub fn read_rows(
        &mut self,
        at: RowsAt,
        rows: &[u32],
        out: &mut [u8],
        cancel: &Cancel,
        waits: impl Fn(),
    ) -> Result<(), StoreError> {
        self.take_expected(at, rows, cancel, &waits);
        let mut job = self.rows_job(at);
        let mut state = self.shared.lock();
        let Some(asked) = Arc::get_mut(&mut job) else { return Err(StoreError::Cancelled) };
        for (place, (&row, out)) in rows.iter().zip(out.chunks_exact_mut(at.row_bytes.max(1))).enumerate() {
            if let Some(found) = self.recent_rows.find(at, row) {
                out.copy_from_slice(found);
            } else if let Some(found) = self.find_row(&state, at, row) {
                self.copy_row(&found, out);
            } else {
                asked.ask(row, place as u32);
            }
        }
        if asked.is_empty() {
            drop(state);
            self.keep_rows(job);
            return Ok(());
        }
        asked.arrange(self.shared.source.alignment());
        state.take_rows(&job);
        drop(state);
        waits();
        self.wake_for(&job);
        self.wait_for(&job, cancel);
        let result = if job.is_done() { job.finish(out) } else { Err(StoreError::Cancelled) };
        if result.is_ok() {
            job.each(|row, bytes| self.recent_rows.keep(at, row, bytes));
        }
        self.keep_rows(job);
        result
    }

    /// Begins to read a row that may well be asked for next, so that less of the disk is waited for then.
    pub fn expect_row(&mut self, at: RowsAt, row: u32) {
        if self.recent_rows.find(at, row).is_some() || self.expected.is_some() {
            return;
        }
        let mut job = self.rows_job(at);
        let mut state = self.shared.lock();
        let Some(asked) = Arc::get_mut(&mut job) else { return };
        if self.find_row(&state, at, row).is_some() {
            drop(state);
            return self.keep_rows(job);
        }
        asked.ask(row, 0);
        asked.arrange(self.shared.source.alignment());
        state.take_rows(&job);
        drop(state);
        self.wake_for(&job);
        self.expected = Some(job);
    }

    /// Takes in what was expected, and waits for it if it is one of `rows`. A read that failed is made again by those
    /// who need it.
    fn take_expected(&mut self, at: RowsAt, rows: &[u32], cancel: &Cancel, waits: impl Fn()) {
        let Some(job) = self.expected.take() else { return };
        if job.at == at && rows.iter().any(|row| job.has(*row)) && !job.is_done() {
            waits();
            self.wait_for(&job, cancel);
        }
        job.each(|row, bytes| self.recent_rows.keep(job.at, row, bytes));
        self.keep_rows(job);
    }

    /// A job for no rows yet.
    fn rows_job(&mut self, at: RowsAt) -> Arc<RowsJob> {
        // A reader may not have let go of the last one yet.
        let free = self.spare_rows.iter_mut().position(|job| Arc::get_mut(job).is_some());
        let mut job = match free {
            Some(free) => self.spare_rows.swap_remove(free),
            None => Arc::new(RowsJob::empty(at)),
        };
        if let Some(job) = Arc::get_mut(&mut job) {
            job.clear(at);
        }
        job
    }

    fn wake_for(&self, job: &RowsJob) {
        match job.groups.len() {
            1 => self.shared.work.notify_one(),
            _ => self.shared.work.notify_all(),
        }
    }

    /// Waits until a job is done, or for a cancel.
    fn wait_for(&self, job: &RowsJob, cancel: &Cancel) {
        let since = Instant::now();
        // One row is here sooner than a thread that sleeps is back.
        while !job.is_done() && since.elapsed() < AWAKE {
            std::thread::yield_now();
        }
        let mut state = self.shared.lock();
        while !job.is_done() && !cancel.is_cancelled() {
            state = self.shared.ready.wait_timeout(state, CANCEL_POLL).unwrap_or_else(PoisonError::into_inner).0;
        }
        state.rows = None;
        state.counters.wait_us += since.elapsed().as_micros() as u64;
    }

    fn keep_rows(&mut self, job: Arc<RowsJob>) {
        if self.spare_rows.len() < SPARE_ROWS {
            self.spare_rows.push(job);
        }
    }

    /// The rows in memory that a row is one of (a tied head's), if it is.
    fn find_row<'a>(&self, state: &'a State, at: RowsAt, row: u32) -> Option<RowIn<'a>> {
        let table = &self.shared.table;
        let (begin, end) = (at.row(row), at.row(row) + at.row_bytes as u64);
        let after = self.by_offset.partition_point(|&id| {
            let extent = table.extent(id);
            (extent.part, extent.offset) <= (at.part, begin)
        });
        let id = *self.by_offset.get(after.checked_sub(1)?)?;
        let extent = table.extent(id);
        if extent.part != at.part || extent.offset + u64::from(extent.bytes) < end {
            return None;
        }
        let from = (begin - extent.offset) as usize;
        let piece = table.pieces(id).iter().rfind(|piece| piece.file_offset as usize <= from)?;
        let (matrix, start) = (table.matrix(piece.matrix), (extent.offset - table.read_span(id).0) as usize);
        let (rows_start, from) = (start + piece.offset as usize, from - piece.file_offset as usize);
        if matrix.row_bytes as usize != at.row_bytes || !from.is_multiple_of(at.row_bytes) {
            return None;
        }
        let rows = state.resident(id)?.bytes(rows_start..rows_start + piece.bytes as usize);
        Some(RowIn { rows, row: from / at.row_bytes, ty: matrix.ty })
    }

    fn copy_row(&self, found: &RowIn<'_>, out: &mut [u8]) {
        match self.interleave_of(found.ty) {
            Some(interleave) => interleave.read_row(found.rows, found.row, out),
            None => out.copy_from_slice(&found.rows[found.row * out.len()..][..out.len()]),
        }
    }

    /// Bytes of the model's file in the page cache; `None` where the system does not tell. One call of the kernel's a
    /// part, cheap enough for once a second.
    pub fn file_cache_bytes(&self) -> Option<u64> {
        super::memory::file_cache_bytes(&self.paths)
    }

    pub fn counters(&self) -> Counters {
        self.shared.lock().snapshot()
    }

    /// Figures of every layer, the head last.
    pub fn layer_figures(&self, out: &mut Vec<LayerFigures>) {
        let state = self.shared.lock();
        out.clear();
        out.extend(state.layers.iter().enumerate().map(|(layer, sums)| {
            let shown = match state.computing {
                Some(computing) if usize::from(computing) == layer => LayerState::Computing,
                _ if state.loading(self.shared.table.layer_extents(layer)) => LayerState::Loading,
                _ => LayerState::Cold,
            };
            sums.figures(shown)
        }));
    }
}

impl Drop for WeightStore {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.throttle.stop();
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
