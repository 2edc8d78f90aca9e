//! Single rows of a matrix that is not streamed: the embeddings of the tokens at hand.
//!
//! Readers do it, as a thread that computes must not be caught inside a read; rows close to each other are one read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::store::StoreError;

/// Rows this close are read together ...
const GAP_BYTES: u64 = 16 << 10;
/// ... up to this much at once.
const GROUP_BYTES: u64 = 128 << 10;

/// Bytes of rows that are kept for the next time.
const RECENT_BYTES: usize = 256 << 10;

/// Where a matrix's rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsAt {
    /// Of the model's file.
    pub part: u16,
    /// Where row 0 begins in the part.
    pub offset: u64,
    pub row_bytes: usize,
}

impl RowsAt {
    pub(super) fn row(&self, row: u32) -> u64 {
        self.offset + u64::from(row) * self.row_bytes as u64
    }
}

/// Rows that were read lately, each in the place that its number gives it: text repeats its tokens, and to wait for one row
/// from the disk takes a good part of a small model's token.
#[derive(Debug, Default)]
pub(super) struct RecentRows {
    at: Option<RowsAt>,
    /// The row in each place.
    rows: Vec<Option<u32>>,
    bytes: Vec<u8>,
}

impl RecentRows {
    pub(super) fn find(&self, at: RowsAt, row: u32) -> Option<&[u8]> {
        let place = row as usize % self.rows.len().max(1);
        let here = self.at == Some(at) && *self.rows.get(place)? == Some(row);
        here.then(|| &self.bytes[place * at.row_bytes..(place + 1) * at.row_bytes])
    }

    pub(super) fn keep(&mut self, at: RowsAt, row: u32, bytes: &[u8]) {
        if self.at != Some(at) {
            let places = RECENT_BYTES / at.row_bytes.max(1);
            *self = Self { at: Some(at), rows: vec![None; places], bytes: vec![0; places * at.row_bytes] };
        }
        if !self.rows.is_empty() {
            let place = row as usize % self.rows.len();
            self.rows[place] = Some(row);
            self.bytes[place * at.row_bytes..(place + 1) * at.row_bytes].copy_from_slice(bytes);
        }
    }
}

#[derive(Debug)]
pub(super) struct Group {
    /// Where the read begins, and its length: aligned.
    pub(super) start: u64,
    pub(super) span_bytes: u64,
    /// Bytes of the read that must be there.
    pub(super) needed_bytes: u64,
    rows: std::ops::Range<usize>,
}

#[derive(Debug)]
pub(super) struct RowsJob {
    pub(super) at: RowsAt,
    pub(super) groups: Vec<Group>,
    /// Rows in file order, each with its place in the answer.
    rows: Vec<(u32, u32)>,
    next: AtomicUsize,
    done: AtomicUsize,
    out: Mutex<Vec<u8>>,
    failure: Mutex<Option<StoreError>>,
}

impl RowsJob {
    /// A job for no rows yet: [`ask`](Self::ask) for them, then [`arrange`](Self::arrange).
    pub(super) fn empty(at: RowsAt) -> Self {
        let (groups, rows, out) = (Vec::new(), Vec::new(), Mutex::default());
        Self { at, groups, rows, next: 0.into(), done: 0.into(), out, failure: Mutex::new(None) }
    }

    /// Makes a job that is over an empty one, its memory kept: a token must not cost allocations.
    pub(super) fn clear(&mut self, at: RowsAt) {
        self.at = at;
        self.groups.clear();
        self.rows.clear();
        *self.next.get_mut() = 0;
        *self.done.get_mut() = 0;
        *self.failure.get_mut().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Asks for a row and says where in the answer it goes.
    pub(super) fn ask(&mut self, row: u32, place: u32) {
        self.rows.push((row, place));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Sorts the rows and groups them into reads.
    pub(super) fn arrange(&mut self, alignment: u64) {
        let at = self.at;
        self.rows.sort_unstable();
        for (index, &(row, _)) in self.rows.iter().enumerate() {
            let (begin, end) = (at.row(row), at.row(row) + at.row_bytes as u64);
            if let Some(group) = self.groups.last_mut() {
                let reached = group.start + group.needed_bytes;
                if begin <= reached + GAP_BYTES && end - group.start <= GROUP_BYTES {
                    group.needed_bytes = group.needed_bytes.max(end - group.start);
                    group.rows.end = index + 1;
                    continue;
                }
            }
            let start = begin / alignment * alignment;
            self.groups.push(Group { start, span_bytes: 0, needed_bytes: end - start, rows: index..index + 1 });
        }
        for group in &mut self.groups {
            group.span_bytes = group.needed_bytes.next_multiple_of(alignment);
        }
        let out = self.out.get_mut().unwrap_or_else(PoisonError::into_inner);
        out.clear();
        out.resize(self.rows.len() * at.row_bytes, 0);
        // What a long prompt needed is not kept.
        out.shrink_to(GROUP_BYTES as usize);
    }

    /// A group nobody has taken yet.
    pub(super) fn next_group(&self) -> Option<usize> {
        if self.next.load(Ordering::Relaxed) >= self.groups.len() {
            return None;
        }
        let group = self.next.fetch_add(1, Ordering::Relaxed);
        (group < self.groups.len()).then_some(group)
    }

    /// A group was read into `bytes`, which begin at the group's start.
    pub(super) fn complete(&self, group: usize, read: Result<&[u8], StoreError>) {
        match read {
            Ok(bytes) => {
                let group = &self.groups[group];
                let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
                for (index, &(row, _)) in self.rows[group.rows.clone()].iter().enumerate() {
                    let from = (self.at.row(row) - group.start) as usize;
                    let to = (group.rows.start + index) * self.at.row_bytes;
                    out[to..to + self.at.row_bytes].copy_from_slice(&bytes[from..from + self.at.row_bytes]);
                }
            }
            Err(error) => *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error),
        }
        self.done.fetch_add(1, Ordering::Release);
    }

    pub(super) fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.groups.len()
    }

    /// Whether a row was asked for.
    pub(super) fn has(&self, row: u32) -> bool {
        self.rows.iter().any(|(asked, _)| *asked == row)
    }

    /// Hands the rows to `keep`, if the job is done and nothing failed.
    pub(super) fn each(&self, mut keep: impl FnMut(u32, &[u8])) {
        if self.is_done() && self.failure.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
            for (row, &(number, _)) in out.chunks_exact(self.at.row_bytes).zip(&self.rows) {
                keep(number, row);
            }
        }
    }

    /// Copies the rows to their places in `answer`, or tells what failed.
    pub(super) fn finish(&self, answer: &mut [u8]) -> Result<(), StoreError> {
        if let Some(error) = self.failure.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        for (row, &(_, place)) in out.chunks_exact(self.at.row_bytes).zip(&self.rows) {
            let to = place as usize * self.at.row_bytes;
            answer[to..to + self.at.row_bytes].copy_from_slice(row);
        }
        Ok(())
    }
}
