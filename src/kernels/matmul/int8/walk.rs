//! The walk over a tile: groups of rows, block by block, one position or many.

use super::super::super::Activations;
use super::super::blocks::Blocks;
use super::super::tile::{TILE_POSITIONS, Tile};
use super::lanes::{Lanes, Rows, Simd, Wide};

/// How a format's blocks are multiplied with activations.
pub(super) trait Dots {
    type Blocks: Blocks;

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

/// Computes a tile of interleaved rows: with `U` positions and, where there are many, `T` vectors of rows at a time.
///
/// # Safety
/// As [`Kernel`](super::super::tile::Kernel).
#[inline(always)]
pub(super) unsafe fn tile<S: Simd, D: Dots, const U: usize, const T: usize>(s: S, tile: &Tile<'_>, acts: &Activations) {
    // SAFETY: as asked of the caller.
    unsafe {
        if tile.positions.count == 1 || tile.rows.div_ceil(S::LANES) < T {
            for i in 0..tile.positions.count {
                one::<_, D>(Wide::<S, 1>(s), tile, acts, tile.positions.at(i));
            }
        } else {
            many::<_, D, U, T>(Wide::<S, T>(s), tile, acts);
        }
    }
}

/// The blocks number `block` of the rows from `row` on, the first of a group.
///
/// # Safety
/// The tile has the rows and the block; a vector has `lanes` rows.
#[inline(always)]
unsafe fn rows_at<B: Blocks>(tile: &Tile<'_>, lanes: usize, row: usize, block: usize) -> Rows {
    let group = tile.weights.as_ptr().wrapping_add(row * tile.row_bytes);
    // SAFETY: the rows and the block are part of the weights.
    unsafe { Rows::new(group.wrapping_add(block * B::BYTES * lanes), lanes * tile.row_bytes, B::BYTES) }
}

/// Writes the results of a position for the rows from `row` on that the tile has.
///
/// # Safety
/// The tile's rows of the position are inside the output and this thread's own.
#[inline(always)]
unsafe fn store<L: Lanes>(l: L, tile: &Tile<'_>, position: usize, row: usize, acc: L::F) {
    // SAFETY: as asked of the caller; a vector has at most 16 rows, and there are at most two.
    unsafe {
        let to = tile.out.data.add(position * tile.out.stride + row);
        if row + L::ROWS <= tile.rows {
            l.store(to, acc);
        } else {
            let mut all = [0.0; 32];
            l.store(all.as_mut_ptr(), acc);
            to.copy_from_nonoverlapping(all.as_ptr(), tile.rows - row);
        }
    }
}

/// One position, its accumulators in registers.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn one<L: Lanes, D: Dots>(l: L, tile: &Tile<'_>, acts: &Activations, position: usize) {
    for row in (0..tile.rows).step_by(L::ROWS) {
        let mut acc = l.zero();
        for block in 0..tile.row_bytes / D::Blocks::BYTES {
            // SAFETY: the rows, the block and the position are there, as asked of the caller.
            unsafe {
                let rows = rows_at::<D::Blocks>(tile, L::ROWS, row, block);
                D::add_one(l, &rows, acts, block, position, &mut acc);
            }
        }
        // SAFETY: as asked of the caller.
        unsafe { store(l, tile, position, row, acc) };
    }
}

/// Many positions: a block of rows is unpacked once and multiplied with all of them.
///
/// # Safety
/// As [`tile`]; the tile has at least `T` groups of rows.
#[inline(always)]
unsafe fn many<L: Lanes, D: Dots, const U: usize, const T: usize>(l: L, tile: &Tile<'_>, acts: &Activations) {
    let count = tile.positions.count;
    // A last few positions that are not `U` are filled up with the last one.
    let mut positions = [0; TILE_POSITIONS];
    let positions = &mut positions[..count.next_multiple_of(U)];
    for (i, position) in positions.iter_mut().enumerate() {
        *position = tile.positions.at(i.min(count - 1));
    }
    let mut sums = [l.zero(); TILE_POSITIONS];
    let sums = &mut sums[..positions.len()];
    let lanes = L::ROWS / T;
    let groups = tile.rows.div_ceil(lanes);
    for group in (0..groups).step_by(T) {
        // A last few groups that are fewer than `T` begin earlier, and some rows are computed again.
        let row = group.min(groups - T) * lanes;
        sums.fill(l.zero());
        for block in 0..tile.row_bytes / D::Blocks::BYTES {
            // SAFETY: the rows, the block and the positions are there, as asked of the caller.
            unsafe {
                let rows = rows_at::<D::Blocks>(tile, lanes, row, block);
                D::add_many::<L, U>(l, &rows, acts, block, positions, sums);
            }
        }
        for (position, acc) in positions[..count].iter().zip(&*sums) {
            // SAFETY: as asked of the caller.
            unsafe { store(l, tile, *position, row, *acc) };
        }
    }
}
