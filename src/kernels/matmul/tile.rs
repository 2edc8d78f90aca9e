//! What one call of a kernel computes.

use super::super::{Activations, Isa};
use crate::gguf::TensorType;

/// Positions that a tile has at most: its accumulators then stay in the first-level cache.
pub(super) const TILE_POSITIONS: usize = 128;

/// Consecutive rows of one matrix against some positions.
pub(super) struct Tile<'a> {
    pub ty: TensorType,
    /// (rows, row_bytes), as they are in the file or, where that is what the kernel takes, interleaved in whole groups
    pub weights: &'a [u8],
    pub row_bytes: usize,
    pub rows: usize,
    /// At most [`TILE_POSITIONS`].
    pub positions: Positions,
    pub out: Out,
}

/// Positions of the activations at equal distances: `first`, `first + step`, ...
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positions {
    pub first: usize,
    /// At least 1.
    pub step: usize,
    pub count: usize,
}

impl Positions {
    #[inline(always)]
    pub(super) fn at(&self, i: usize) -> usize {
        self.first + i * self.step
    }

    /// One after the last; 0 without any.
    pub(super) fn end(&self) -> usize {
        if self.count == 0 { 0 } else { self.at(self.count - 1) + 1 }
    }

    /// The positions `from..from + count` of these.
    pub(super) fn part(&self, from: usize, count: usize) -> Self {
        Self { first: self.at(from), step: self.step, count }
    }

    /// Whether it is plain that none of these is one of `other`.
    pub(super) fn is_apart(&self, other: &Self) -> bool {
        let interleaved = self.step == other.step && self.first % self.step != other.first % self.step;
        interleaved || self.end() <= other.first || other.end() <= self.first
    }
}

/// Where a tile's results go: row `r` of position `p` to `data[p * stride + r]`.
#[derive(Clone, Copy)]
pub(super) struct Out {
    pub data: *mut f32,
    pub stride: usize,
}

impl Out {
    /// # Safety
    /// The place is inside the output, and no other thread uses it.
    #[inline(always)]
    pub(super) unsafe fn set(&self, position: usize, row: usize, value: f32) {
        // SAFETY: the caller vouches for the place.
        unsafe { *self.data.add(position * self.stride + row) = value }
    }
}

/// Computes a tile.
///
/// Unsafe: the weights are in the order that the kernel takes; the tile's outputs are inside the output and no other
/// thread uses them; the activations are prepared in the form that the weights' type asks, for every position of the tile;
/// the processor has the instruction set.
pub(super) type Kernel = unsafe fn(Isa, &Tile<'_>, &Activations);
