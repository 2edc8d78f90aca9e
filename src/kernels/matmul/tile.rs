//! What one call of a kernel computes.

use super::super::{Activations, Isa};
use crate::gguf::TensorType;

/// Positions that a tile has at most: its accumulators then stay in the first-level cache.
pub(super) const TILE_POSITIONS: usize = 128;

/// Consecutive rows of one matrix against some positions.
pub(super) struct Tile<'a> {
    pub ty: TensorType,
    /// (rows, row_bytes), exactly
    pub weights: &'a [u8],
    pub row_bytes: usize,
    pub rows: usize,
    /// At most [`TILE_POSITIONS`].
    pub positions: Positions<'a>,
    pub out: Out,
}

/// Which positions of the activations a tile takes.
#[derive(Clone, Copy)]
pub(super) enum Positions<'a> {
    Run { first: usize, count: usize },
    List(&'a [u32]),
}

impl Positions<'_> {
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Run { count, .. } => *count,
            Self::List(list) => list.len(),
        }
    }

    #[inline(always)]
    pub(super) fn at(&self, i: usize) -> usize {
        match self {
            Self::Run { first, .. } => first + i,
            Self::List(list) => list[i] as usize,
        }
    }

    /// The positions `from..from + count` of these.
    pub(super) fn part(&self, from: usize, count: usize) -> Self {
        match self {
            Self::Run { first, .. } => Self::Run { first: first + from, count },
            Self::List(list) => Self::List(&list[from..from + count]),
        }
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
/// Unsafe: the tile's outputs are inside the output and no other thread uses them; the activations are prepared in the
/// form that the weights' type asks, for every position of the tile; the processor has the instruction set.
pub(super) type Kernel = unsafe fn(Isa, &Tile<'_>, &Activations);
