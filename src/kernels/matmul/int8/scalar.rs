//! int8 products in portable code: the definition that every vector kernel agrees with to the bit.
//!
//! Within a block the products with the planes of the activations are summed in integers, exactly. Each output has one
//! f32 accumulator that the blocks are added to in order, by fused multiply-add:
//! * blocks of 32: `acc = fma(dot * da, d, acc)`, then with a minimum `acc = fma(da * sum, m, acc)`;
//! * blocks of 256: `s = fma(dot, scale, s)` over the sub-blocks in the format's order, `acc = fma(s * da, d, acc)`, then
//!   with minimums `acc = fma(-(mins * da), m, acc)`, where `mins` sums min times activations in integers.

use super::super::super::planes::Planes;
use super::super::super::{Activations, Isa};
use super::super::blocks::{Blocks, Scales, with_blocks};
use super::super::tile::{Kernel, TILE_POSITIONS, Tile};
use crate::gguf::TensorType;

/// The kernel for a weight type that is multiplied in integers.
pub(super) fn kernel<P: Planes>(ty: TensorType) -> Option<Kernel> {
    fn blocks<B: Blocks, P: Planes>() -> Option<Kernel> {
        Some(tile::<B, P>)
    }
    with_blocks!(ty, blocks(P), else None)
}

/// The product with the planes of the activations that there are.
fn dot<P: Planes>(q: &[i8], high: &[i8], low: &[i8]) -> i32 {
    let plane = |a: &[i8]| q.iter().zip(a).map(|(q, a)| i32::from(*q) * i32::from(*a)).sum::<i32>();
    P::join(plane(high), plane(low))
}

/// Adds the product of a block of 32 to an accumulator.
fn add_block_32<B: Blocks, P: Planes>(q: &[i8], scales: &Scales, acts: &Activations, at: usize, acc: f32) -> f32 {
    let a = &acts.q32;
    let [high, low] = a.integers.planes(at * 32, 32);
    let sum = dot::<P>(q, high, low) as f32 * a.scale[at];
    let acc = sum.mul_add(scales.d, acc);
    if B::MIN { a.sum[at].mul_add(scales.m, acc) } else { acc }
}

/// Adds the product of a block of 256 to an accumulator.
fn add_block_256<B: Blocks, P: Planes>(q: &[i8], scales: &Scales, acts: &Activations, at: usize, acc: f32) -> f32 {
    let a = &acts.q256;
    let (q, da) = (&q[..256], a.scale[at]);
    let mut sum = 0.0_f32;
    let mut mins = 0;
    for sub in B::ORDER {
        for first in (sub * 32..sub * 32 + 32).step_by(B::SUB) {
            let [high, low] = a.integers.planes(at * 256 + first, B::SUB);
            let product = dot::<P>(&q[first..first + B::SUB], high, low);
            sum = (product as f32).mul_add(f32::from(scales.scale[first / B::SUB]), sum);
            if B::MIN {
                let plane = |a: &[i8]| a.iter().map(|a| i32::from(*a)).sum::<i32>();
                let total = P::join(plane(high), plane(low));
                mins += i32::from(scales.min[first / B::SUB]) * total;
            }
        }
    }
    let acc = (sum * da).mul_add(scales.d, acc);
    if B::MIN { (-(mins as f32 * da)).mul_add(scales.m, acc) } else { acc }
}

/// # Safety
/// As [`Kernel`].
pub(super) unsafe fn tile<B: Blocks, P: Planes>(_: Isa, tile: &Tile<'_>, acts: &Activations) {
    let positions = tile.positions;
    for row in 0..tile.rows {
        let mut sums = [0.0; TILE_POSITIONS];
        let weights = &tile.weights[row * tile.row_bytes..(row + 1) * tile.row_bytes];
        for (b, block) in weights.chunks_exact(B::BYTES).enumerate() {
            let mut q = [0; 256];
            let scales = B::unpack(block, &mut q);
            for (i, acc) in sums[..positions.count].iter_mut().enumerate() {
                let at = b * acts.positions + positions.at(i);
                *acc = match B::LEN {
                    32 => add_block_32::<B, P>(&q[..32], &scales, acts, at, *acc),
                    _ => add_block_256::<B, P>(&q, &scales, acts, at, *acc),
                };
            }
        }
        for (i, acc) in sums[..positions.count].iter().enumerate() {
            // SAFETY: the tile's rows and positions are inside the output and this thread's own.
            unsafe { tile.out.set(positions.at(i), row, *acc) };
        }
    }
}
