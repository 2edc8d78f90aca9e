//! Rows interleaved for the lanes of vectors.
//!
//! In a file one row of a matrix follows the other. A kernel with rows in its lanes wants the same bytes of many rows at
//! once, in memory that is read front to back: that is what prefetching reaches the memory's speed with, and it saves the
//! transposing. So weights that are kept are interleaved when they arrive.
//!
//! A group is as many rows as a vector has lanes (16 with AVX-512, 8 with AVX2, 4 with NEON). It takes the room that its
//! rows take, block by block: of each block the [`LEAD`](Blocks::LEAD) bytes of every row, then four bytes of every row,
//! the next four, and so on, then what is left of every row. So what stands at byte `b` of a row's block begins at
//! `lanes * b` of the group's. Rows over after the last whole group stay as they are.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::Kernels;
use super::super::activations::Form;
use super::super::prefetch::prefetch;
use super::ROWS_AT_ONCE;
use super::blocks::{Blocks, with_blocks};
use super::int8;
use crate::gguf::TensorType;

/// How rows of one type are interleaved for the kernels that multiply them.
#[derive(Clone, Copy, Debug)]
pub struct Interleave {
    lanes: usize,
    group: fn(&[u8], usize, &mut [u8]),
    row: fn(&[u8], usize, &mut [u8]),
}

impl Interleave {
    /// None where the kernels take the rows as they are in the file.
    pub fn of(kernels: Kernels, ty: TensorType) -> Option<Self> {
        fn copies<B: Blocks, N: Lanes>() -> Option<Interleave> {
            Some(Interleave { lanes: N::COUNT, group: N::group::<B>, row: N::row::<B> })
        }
        if Form::of(kernels.arithmetic, ty) == Form::F32 {
            return None;
        }
        match int8::lanes(kernels.isa) {
            4 => with_blocks!(ty, copies(Count<4>), else None),
            8 => with_blocks!(ty, copies(Count<8>), else None),
            16 => with_blocks!(ty, copies(Count<16>), else None),
            _ => None,
        }
    }

    /// Rows of a group.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Bytes that a thread comes to hold while it multiplies a matrix of so many rows, which come interleaved or not.
    pub fn scratch_bytes(&self, rows: usize, row_bytes: usize, interleaved: bool) -> usize {
        match interleaved {
            true if rows.is_multiple_of(self.lanes) => 0,
            true => self.lanes * row_bytes,
            false => ROWS_AT_ONCE.min(rows).next_multiple_of(self.lanes) * row_bytes,
        }
    }

    /// Interleaves the whole groups of `rows`, of `row_bytes` bytes each, in place. `scratch` comes to hold one group.
    pub fn rows(&self, rows: &mut [u8], row_bytes: usize, scratch: &mut Groups) {
        let group_bytes = self.lanes * row_bytes;
        let scratch = scratch.room(group_bytes);
        for group in rows.chunks_exact_mut(group_bytes) {
            (self.group)(group, row_bytes, scratch);
            group.copy_from_slice(scratch);
        }
    }

    /// Writes to `to` the groups of `rows`, of `row_bytes` bytes each; a last group that is not whole is filled up with
    /// the last row. `to` is long enough for them.
    pub(super) fn copy(&self, rows: &[u8], row_bytes: usize, to: &mut [u8]) {
        let group_bytes = self.lanes * row_bytes;
        for (rows, to) in rows.chunks(group_bytes).zip(to.chunks_exact_mut(group_bytes)) {
            (self.group)(rows, row_bytes, to);
        }
    }

    /// Reads one of the rows, of `out.len()` bytes each, that [`rows`](Self::rows) has been at.
    pub fn read_row(&self, rows: &[u8], row: usize, out: &mut [u8]) {
        let group_bytes = self.lanes * out.len();
        let first = row / self.lanes * group_bytes;
        match rows.get(first..first + group_bytes) {
            Some(group) => (self.row)(group, row % self.lanes, out),
            None => out.copy_from_slice(&rows[row * out.len()..][..out.len()]),
        }
    }
}

/// Room for groups of rows that a thread keeps, and that is counted: see [`Groups::held_bytes`].
#[derive(Default)]
pub struct Groups(Vec<u8>);

/// Bytes of all [`Groups`] there are.
static HELD: AtomicUsize = AtomicUsize::new(0);

impl Groups {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Bytes that all of the process's hold together.
    pub fn held_bytes() -> usize {
        HELD.load(Ordering::Relaxed)
    }

    pub(super) fn room(&mut self, bytes: usize) -> &mut [u8] {
        if self.0.len() < bytes {
            HELD.fetch_add(bytes - self.0.len(), Ordering::Relaxed);
            // The old one goes before the new one comes.
            self.0 = Vec::new();
            self.0 = vec![0; bytes];
        }
        &mut self.0[..bytes]
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        HELD.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// A number of lanes, known when a copy is compiled.
trait Lanes {
    const COUNT: usize;

    /// Interleaves the rows, as many as there are lanes or fewer, into a group.
    fn group<B: Blocks>(rows: &[u8], row_bytes: usize, to: &mut [u8]);
    /// Reads the row in a lane of a group.
    fn row<B: Blocks>(group: &[u8], lane: usize, out: &mut [u8]);
}

struct Count<const N: usize>;

impl<const N: usize> Lanes for Count<N> {
    const COUNT: usize = N;

    fn group<B: Blocks>(plain: &[u8], row_bytes: usize, to: &mut [u8]) {
        let last = plain.len() / row_bytes - 1;
        let rows: [&[u8]; N] = std::array::from_fn(|lane| &plain[lane.min(last) * row_bytes..][..row_bytes]);
        let after = plain.as_ptr().wrapping_add(N * row_bytes);
        for (index, to) in to.chunks_exact_mut(N * B::BYTES).enumerate() {
            // The next group, which follows: memory is quickest read front to back.
            prefetch(after.wrapping_add(index * N * B::BYTES), N * B::BYTES);
            let (lead, to) = to.split_at_mut(N * B::LEAD);
            let (words, end) = to.split_at_mut((B::BYTES - B::LEAD) / 4 * 4 * N);
            let words = words.as_chunks_mut::<4>().0.as_chunks_mut::<N>().0;
            for (lane, row) in rows.iter().enumerate() {
                let block = &row[index * B::BYTES..][..B::BYTES];
                lead[lane * B::LEAD..][..B::LEAD].copy_from_slice(&block[..B::LEAD]);
                let (from, rest) = block[B::LEAD..].as_chunks::<4>();
                for (word, from) in words.iter_mut().zip(from) {
                    word[lane] = *from;
                }
                end[lane * rest.len()..][..rest.len()].copy_from_slice(rest);
            }
        }
    }

    fn row<B: Blocks>(group: &[u8], lane: usize, out: &mut [u8]) {
        for (group, out) in group.chunks_exact(N * B::BYTES).zip(out.chunks_exact_mut(B::BYTES)) {
            let mut piece = |first: usize, bytes: usize| {
                out[first..first + bytes].copy_from_slice(&group[first * N + lane * bytes..][..bytes]);
            };
            piece(0, B::LEAD);
            let whole = (B::BYTES - B::LEAD) / 4 * 4 + B::LEAD;
            (B::LEAD..whole).step_by(4).for_each(|first| piece(first, 4));
            piece(whole, B::BYTES - whole);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Arithmetic, Isa};
    use super::*;

    /// Rows whose bytes all differ from their neighbours'.
    fn plain(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|i| (i * 193 + i / 251) as u8).collect()
    }

    #[test]
    fn rows_come_back_as_they_were_and_those_over_stay() {
        for ty in TensorType::ALL {
            for isa in Isa::supported() {
                let Some(interleave) = Interleave::of(Kernels { isa, arithmetic: Arithmetic::Int8 }, *ty) else {
                    continue;
                };
                let row_bytes = ty.row_bytes(512).map_or(0, |bytes| bytes as usize);
                let before = plain(row_bytes * 37);
                let mut rows = before.clone();
                interleave.rows(&mut rows, row_bytes, &mut Groups::new());
                let whole = 37 / interleave.lanes() * interleave.lanes() * row_bytes;
                assert_ne!(rows[..whole], before[..whole], "{ty}");
                assert_eq!(rows[whole..], before[whole..], "{ty}");
                let mut row = vec![0; row_bytes];
                for (i, before) in before.chunks_exact(row_bytes).enumerate() {
                    interleave.read_row(&rows, i, &mut row);
                    assert_eq!(row, before, "row {i} of {ty} on {}", isa.name());
                }
            }
        }
    }

    #[test]
    fn a_word_of_each_row_stands_where_it_is_said_to() {
        let isas = Isa::supported().into_iter();
        for (isa, lanes) in isas.map(|isa| (isa, int8::lanes(isa))).filter(|(_, lanes)| *lanes > 1) {
            let kernels = Kernels { isa, arithmetic: Arithmetic::Fast };
            let interleave = Interleave::of(kernels, TensorType::Q6_K).map(|i| (i, 210));
            let (interleave, bytes) = interleave.unwrap_or_else(|| unreachable!("Q6_K has integer kernels"));
            let (before, mut to) = (plain(bytes * 3), vec![0; bytes * lanes]);
            interleave.copy(&before, bytes, &mut to);
            for lane in 0..lanes {
                let row = &before[lane.min(2) * bytes..][..bytes];
                assert_eq!(to[192 * lanes + 4 * lane..][..4], row[192..196], "a word");
                assert_eq!(to[208 * lanes + 2 * lane..][..2], row[208..], "what is left over");
            }
        }
    }

    #[test]
    fn what_is_not_multiplied_in_integers_stays_as_it_is() {
        let exact = Kernels::new(Arithmetic::Exact);
        assert!(Interleave::of(exact, TensorType::Q4_K).is_none());
        let scalar = Kernels { isa: Isa::Scalar, arithmetic: Arithmetic::Int8 };
        assert!(Interleave::of(scalar, TensorType::Q4_K).is_none());
        assert!(Interleave::of(Kernels::new(Arithmetic::Int8), TensorType::F16).is_none());
    }
}
