//! The reader threads: each takes the next extent, reads it into a slot, and looks for more.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use crate::gguf::TensorType;
use crate::kernels::{Groups, Interleave, Kernels};

use super::Residency;
use super::arena::Slot;
use super::extents::ExtentTable;
use super::source::Source;
use super::state::{Job, State};
use super::store::{ReadFailure, StoreError};
use super::throttle::Throttle;

/// A reader's stack: it calls little more than `pread`.
const STACK_BYTES: usize = 128 << 10;
/// A staging buffer larger than this is not kept.
const STAGING_KEPT_BYTES: usize = 256 << 10;

/// What the engine's side and the readers share.
pub(super) struct Shared {
    pub(super) table: ExtentTable,
    pub(super) source: Box<dyn Source>,
    pub(super) throttle: Throttle,
    /// Whose products the weights are kept for: rows are interleaved for them.
    pub(super) kernels: Option<Kernels>,
    pub(super) state: Mutex<State>,
    /// For readers: there may be something to read.
    pub(super) work: Condvar,
    /// For the engine: something was read, or failed.
    pub(super) ready: Condvar,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("source", &self.source).finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the lock, then unmaps what was discarded under it.
    pub(super) fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let discarded = state.take_discarded();
        drop(state);
        drop(discarded);
    }
}

/// Starts reader threads; as many as the system gives, one at least.
pub(super) fn start(shared: &Arc<Shared>, count: usize) -> std::io::Result<Vec<JoinHandle<()>>> {
    let mut threads = Vec::new();
    for _ in 0..count.max(1) {
        let shared = Arc::clone(shared);
        let builder = std::thread::Builder::new().name("reader".into()).stack_size(STACK_BYTES);
        match builder.spawn(move || run(&shared)) {
            Ok(thread) => threads.push(thread),
            Err(error) if threads.is_empty() => return Err(error),
            Err(_) => break,
        }
    }
    Ok(threads)
}

fn run(shared: &Shared) {
    let mut staging = Staging::default();
    let mut state = shared.lock();
    while !state.stop {
        let Some(job) = state.next_job(&shared.table) else {
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        };
        state.busy.begin();
        shared.unlock(state);
        match job {
            Job::Extent { id, slot } => {
                let begun = Instant::now();
                let read = shared.read_extent(id, slot, &mut staging);
                let read_us = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
                // The disk is through.
                shared.lock().busy.end();
                let read = read.and_then(|slot| shared.interleave(id, slot, &mut staging));
                state = shared.lock();
                if state.finish(&shared.table, id, read, read_us) {
                    shared.work.notify_all();
                }
            }
            Job::Rows { job, group } => {
                let at = &job.groups[group];
                let read = staging.slot(at.span_bytes as usize).and_then(|slot| {
                    let buffer = slot.bytes_mut(at.span_bytes as usize);
                    shared.read_all(job.at.part, at.start, buffer, at.needed_bytes as usize)?;
                    Ok(&*buffer)
                });
                job.complete(group, read);
                staging.shrink();
                state = shared.lock();
                state.busy.end();
            }
        }
        shared.ready.notify_all();
    }
    shared.unlock(state);
}

/// A read extent, or the failure with the slot that was meant for it.
pub(super) type ReadExtent = Result<Arc<Slot>, (StoreError, Option<Arc<Slot>>)>;

impl Shared {
    fn read_extent(&self, id: u32, slot: Option<Arc<Slot>>, staging: &mut Staging) -> ReadExtent {
        let table = &self.table;
        let extent = table.extent(id);
        let (start, span) = table.read_span(id);
        let (span, needed) = (span as usize, (extent.offset - start) as usize + extent.bytes as usize);
        let expand = table.params().residency == Residency::Fp32;
        if !expand && let Some(mapped) = self.map(extent.part, start, span) {
            return mapped.map(Arc::new).map_err(|error| (error, None));
        }
        let mut slot = match slot {
            Some(slot) => slot,
            None => Arc::new(anonymous(table.slot_capacity() as usize).map_err(|error| (error, None))?),
        };
        let inner = exclusive(&mut slot)?;
        let read = if expand {
            staging.slot(span).and_then(|staged| {
                let raw = staged.bytes_mut(span);
                self.read_all(extent.part, start, raw, needed)?;
                expand_rows(table, id, &raw[(extent.offset - start) as usize..], inner);
                Ok(())
            })
        } else {
            self.read_all(extent.part, start, inner.bytes_mut(span), needed)
        };
        match read {
            Ok(()) => Ok(slot),
            Err(error) => Err((error, Some(slot))),
        }
    }

    /// How rows of a type are interleaved here, if they are.
    pub(super) fn interleave_of(&self, ty: TensorType) -> Option<Interleave> {
        Interleave::of(self.kernels?, ty)
    }

    /// Puts the rows of an extent that has just been read in the order that the kernels take.
    fn interleave(&self, id: u32, mut slot: Arc<Slot>, staging: &mut Staging) -> ReadExtent {
        if self.kernels.is_none() {
            return Ok(slot);
        }
        let inner = exclusive(&mut slot)?;
        let (table, extent) = (&self.table, self.table.extent(id));
        let start = (extent.offset - table.read_span(id).0) as usize;
        let bytes = &mut inner.bytes_mut(start + extent.bytes as usize)[start..];
        for piece in table.pieces(id) {
            let matrix = table.matrix(piece.matrix);
            if let Some(interleave) = self.interleave_of(matrix.ty) {
                let rows = &mut bytes[piece.offset as usize..][..piece.bytes as usize];
                interleave.rows(rows, matrix.row_bytes as usize, &mut staging.group);
            }
        }
        Ok(slot)
    }

    fn map(&self, part: u16, start: u64, span: usize) -> Option<Result<Slot, StoreError>> {
        let attempt = || self.source.map(part, start, span);
        let slot = match attempt()? {
            Ok(slot) => Ok(slot),
            Err(_) => {
                let _ = self.source.reopen(part);
                attempt()?
            }
        };
        self.throttle.admit(span);
        Some(slot.map_err(|error| self.failure(part, start, span, error.into())))
    }

    /// Fills `buffer` from `start` on, its first `needed` bytes at least. A failed read is tried once more with the part
    /// opened anew.
    fn read_all(&self, part: u16, start: u64, buffer: &mut [u8], needed: usize) -> Result<(), StoreError> {
        let first = self.read_once(part, start, buffer, needed);
        let Err(failure) = first else { return Ok(()) };
        let again = match self.source.reopen(part) {
            Ok(()) => self.read_once(part, start, buffer, needed),
            Err(error) => Err(match failure {
                ReadFailure::Short => ReadFailure::Short,
                _ => ReadFailure::Gone(error),
            }),
        };
        again.map_err(|failure| self.failure(part, start, needed, failure))
    }

    fn read_once(&self, part: u16, start: u64, buffer: &mut [u8], needed: usize) -> Result<(), ReadFailure> {
        let chunk = self.throttle.chunk_bytes();
        let mut done = 0;
        while done < needed {
            let end = buffer.len().min(done.saturating_add(chunk));
            self.throttle.admit(end - done);
            let read = self.source.read(part, start + done as u64, &mut buffer[done..end])?;
            done += read;
            if read == 0 || (done < needed && !(done as u64).is_multiple_of(self.source.alignment())) {
                return Err(ReadFailure::Short);
            }
        }
        Ok(())
    }

    fn failure(&self, part: u16, offset: u64, bytes: usize, failure: ReadFailure) -> StoreError {
        StoreError::Read { path: self.source.path(part).to_owned(), offset, bytes: bytes as u64, failure }
    }
}

/// The slot to write to, which nobody else may have.
fn exclusive(slot: &mut Arc<Slot>) -> Result<&mut Slot, (StoreError, Option<Arc<Slot>>)> {
    let bytes = slot.capacity() as u64;
    let in_use = || std::io::Error::other("a slot is still in use");
    Arc::get_mut(slot).ok_or_else(|| (StoreError::Memory { bytes, source: in_use() }, None))
}

/// Decodes the rows of an extent from `raw`, its bytes in the file, into f32.
fn expand_rows(table: &ExtentTable, id: u32, raw: &[u8], slot: &mut Slot) {
    let out = slot.bytes_mut(table.extent(id).memory_bytes as usize);
    let mut row = Vec::new();
    for piece in table.pieces(id) {
        let matrix = table.matrix(piece.matrix);
        row.resize(matrix.k as usize, 0.0f32);
        let file_rows = raw[piece.file_offset as usize..].chunks_exact(matrix.file_row_bytes as usize);
        let out_rows = out[piece.offset as usize..].chunks_exact_mut(matrix.row_bytes as usize);
        for (file_row, out_row) in file_rows.zip(out_rows).take(piece.rows as usize) {
            crate::quant::decode_row(matrix.file_type, file_row, &mut row);
            for (bytes, value) in out_row.chunks_exact_mut(4).zip(&row) {
                bytes.copy_from_slice(&value.to_ne_bytes());
            }
        }
    }
}

fn anonymous(bytes: usize) -> Result<Slot, StoreError> {
    Slot::anonymous(bytes).map_err(|source| StoreError::Memory { bytes: bytes as u64, source })
}

/// A reader's own buffers.
#[derive(Default)]
struct Staging {
    /// For rows and for extents that are expanded.
    slot: Option<Slot>,
    /// For a group of rows that is interleaved.
    group: Groups,
}

impl Staging {
    fn slot(&mut self, bytes: usize) -> Result<&mut Slot, StoreError> {
        let slot = match self.slot.take().filter(|slot| slot.capacity() >= bytes) {
            Some(slot) => slot,
            None => anonymous(bytes)?,
        };
        Ok(self.slot.insert(slot))
    }

    fn shrink(&mut self) {
        if self.slot.as_ref().is_some_and(|slot| slot.capacity() > STAGING_KEPT_BYTES) {
            self.slot = None;
        }
    }
}
