//! The walk over a tile: groups of rows, block by block, one position or many.

use super::super::super::planes::Planes;
use super::super::super::{Activations, Isa};
use super::super::blocks::Blocks;
use super::super::tile::{TILE_POSITIONS, Tile};
use super::lanes::{Lanes, Rows, Simd, Wide};
use super::scalar;

/// How a format's blocks are multiplied with activations.
pub(super) trait Dots {
    type Blocks: Blocks;
    type Planes: Planes;

    /// Adds the products of a block of each row with one position to that position's accumulator.
    ///
    /// # Safety
    /// The activations are prepared and have this block and position.
    unsafe fn add_one<L: Lanes>(l: L, rows: &Rows, acts: &Activations, block: usize, position: usize, acc: &mut L::F);

    /// The same for many positions, `U` at a time; `positions` and accumulators are equal in number, a multiple of `U`.
    ///
    /// # Safety
    /// The activations are prepared and have this block and these positions.
    unsafe fn add_many<L: Lanes, const U: usize>(
        l: L,
        rows: &Rows,
        acts: &Activations,
        block: usize,
        positions: &[usize],
        sums: &mut [L::F],
    );
}

/// Bytes beyond the next group of rows that are fetched while this one is computed.
const FURTHER: usize = 1024;

/// Computes a tile: with `U` positions and, where there are many, `T` vectors of rows at a time.
///
/// # Safety
/// As [`Kernel`](super::super::tile::Kernel).
#[inline(always)]
pub(super) unsafe fn tile<S: Simd, D: Dots, const U: usize, const T: usize>(s: S, tile: &Tile<'_>, acts: &Activations) {
    // SAFETY: as asked of the caller.
    unsafe {
        if tile.rows < S::LANES {
            scalar::tile::<D::Blocks, D::Planes>(Isa::Scalar, tile, acts);
        } else if tile.rows < T * S::LANES || tile.positions.count == 1 {
            for i in 0..tile.positions.count {
                one::<_, D>(Wide::<S, 1>(s), tile, acts, tile.positions.at(i));
            }
        } else {
            many::<_, D, U>(Wide::<S, T>(s), tile, acts);
        }
    }
}

/// The first row of each group of `L::ROWS` that together cover `rows` rows, which are at least as many.
///
/// A last group that would be short begins earlier and computes some rows again.
#[inline(always)]
fn groups<L: Lanes>(rows: usize) -> impl Iterator<Item = usize> {
    (0..rows).step_by(L::ROWS).map(move |row| row.min(rows - L::ROWS))
}

/// The blocks number `block` of the rows from `row` on, and what is fetched into the cache while they are used.
///
/// Memory is quickest read front to back. So while one group of rows is computed, the next one, which follows it, is
/// fetched, and a bit more, as its last row is needed as soon as its first. That holds also where two groups take more
/// room than the first-level cache has.
///
/// # Safety
/// The tile has the rows and the block.
#[inline(always)]
unsafe fn rows_at<L: Lanes, B: Blocks>(tile: &Tile<'_>, row: usize, block: usize) -> Rows {
    let group = tile.weights.as_ptr().wrapping_add(row * tile.row_bytes);
    let base = group.wrapping_add(block * B::BYTES);
    let ahead = group.wrapping_add(L::ROWS * (tile.row_bytes + block * B::BYTES) + FURTHER);
    // SAFETY: the rows and the block are part of the weights.
    unsafe { Rows::new(base, tile.row_bytes, ahead, B::BYTES) }
}

/// One position, its accumulators in registers.
///
/// # Safety
/// As [`tile`]; the tile has at least `L::ROWS` rows.
#[inline(always)]
unsafe fn one<L: Lanes, D: Dots>(l: L, tile: &Tile<'_>, acts: &Activations, position: usize) {
    let blocks = tile.row_bytes / D::Blocks::BYTES;
    for row in groups::<L>(tile.rows) {
        let mut acc = l.zero();
        for block in 0..blocks {
            // The next group is asked for a second time: measured to be quicker, for what reason is not known (perhaps
            // prefetches are dropped while many are under way).
            let next = (row + L::ROWS) * tile.row_bytes + L::ROWS * block * D::Blocks::BYTES;
            l.fetch(tile.weights.as_ptr().wrapping_add(next), L::ROWS * D::Blocks::BYTES);
            // SAFETY: the rows, the block and the position are there, as asked of the caller.
            unsafe { D::add_one(l, &rows_at::<L, D::Blocks>(tile, row, block), acts, block, position, &mut acc) };
        }
        // SAFETY: the rows of the position are inside the output and this thread's own.
        unsafe { l.store(tile.out.data.add(position * tile.out.stride + row), acc) };
    }
}

/// Many positions: a block of rows is unpacked once and multiplied with all of them.
///
/// # Safety
/// As [`tile`]; the tile has at least `L::ROWS` rows.
#[inline(always)]
unsafe fn many<L: Lanes, D: Dots, const U: usize>(l: L, tile: &Tile<'_>, acts: &Activations) {
    let blocks = tile.row_bytes / D::Blocks::BYTES;
    let count = tile.positions.count;
    // A last few positions that are not `U` are filled up with the last one.
    let mut positions = [0; TILE_POSITIONS];
    let positions = &mut positions[..count.next_multiple_of(U)];
    for (i, position) in positions.iter_mut().enumerate() {
        *position = tile.positions.at(i.min(count - 1));
    }
    let mut sums = [l.zero(); TILE_POSITIONS];
    let sums = &mut sums[..positions.len()];
    for row in groups::<L>(tile.rows) {
        sums.fill(l.zero());
        for block in 0..blocks {
            // SAFETY: the rows, the block and the positions are there, as asked of the caller.
            unsafe {
                let rows = rows_at::<L, D::Blocks>(tile, row, block);
                D::add_many::<L, U>(l, &rows, acts, block, positions, sums);
            }
        }
        for (position, acc) in positions[..count].iter().zip(&*sums) {
            // SAFETY: the rows of the position are inside the output and this thread's own.
            unsafe { l.store(tile.out.data.add(position * tile.out.stride + row), *acc) };
        }
    }
}
