//! Products in f32: each row is decoded and dotted with every position.
//!
//! The dot product is defined to the operation: 16 partial sums, the `k`-th product going to sum `k mod 16` in ascending
//! order, multiply and add separate; at the end the upper half of the sums is added to the lower, four times. So however
//! wide the vectors, the bits are the same.

use super::super::Activations;
use super::super::multiversion::compiled_for_each_isa;
use super::super::prefetch::prefetch;
use super::blocks::{Blocks, f16, with_blocks};
use super::tile::{Kernel, TILE_POSITIONS, Tile};
use crate::gguf::TensorType;

/// Elements decoded at a time; a multiple of 16 and of every block.
const CHUNK: usize = 256;
/// Rows decoded together, so that activations are loaded once for all of them.
const ROWS: usize = 4;

/// The kernel for a weight type that can be decoded.
pub(super) fn kernel(ty: TensorType) -> Kernel {
    fn blocks<B: Blocks>() -> Kernel {
        tile::<Dequantise<B>>
    }
    match ty {
        TensorType::F32 => tile::<F32>,
        TensorType::F16 => tile::<F16>,
        TensorType::BF16 => tile::<Bf16>,
        _ => with_blocks!(ty, blocks(), else tile::<Oracle>),
    }
}

/// Decoding of whole blocks to f32, with the bits of [`crate::quant::decode_row`].
trait Decode {
    /// Elements and bytes of a block of the type, which all but [`Oracle`] know by themselves.
    fn block(ty: TensorType) -> (usize, usize);
    fn decode(ty: TensorType, bytes: &[u8], out: &mut [f32]);
}

struct F32;
struct F16;
struct Bf16;
struct Dequantise<B>(B);
/// The formats that are too rare for a decoder of their own here.
struct Oracle;

impl Decode for F32 {
    #[inline(always)]
    fn block(_: TensorType) -> (usize, usize) {
        (1, 4)
    }

    #[inline(always)]
    fn decode(_: TensorType, bytes: &[u8], out: &mut [f32]) {
        for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
            *out = f32::from_le_bytes(*bytes);
        }
    }
}

impl Decode for F16 {
    #[inline(always)]
    fn block(_: TensorType) -> (usize, usize) {
        (1, 2)
    }

    #[inline(always)]
    fn decode(_: TensorType, bytes: &[u8], out: &mut [f32]) {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("f16c") {
            // SAFETY: the processor has the instructions.
            return unsafe { decode_f16c(bytes, out) };
        }
        decode_f16(bytes, out);
    }
}

#[inline(always)]
fn decode_f16(bytes: &[u8], out: &mut [f32]) {
    for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
        *out = f16(*bytes);
    }
}

/// The same with the instruction for it.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx,f16c")]
fn decode_f16c(bytes: &[u8], out: &mut [f32]) {
    use std::arch::x86_64::{_mm_loadu_si128, _mm256_cvtph_ps, _mm256_storeu_ps};
    let (eights, rest) = bytes.as_chunks::<16>();
    let (whole, last) = out.as_chunks_mut::<8>();
    for (bytes, out) in eights.iter().zip(whole) {
        // SAFETY: 16 bytes are read and 8 numbers written.
        unsafe { _mm256_storeu_ps(out.as_mut_ptr(), _mm256_cvtph_ps(_mm_loadu_si128(bytes.as_ptr().cast()))) };
    }
    decode_f16(rest, last);
}

impl Decode for Bf16 {
    #[inline(always)]
    fn block(_: TensorType) -> (usize, usize) {
        (1, 2)
    }

    #[inline(always)]
    fn decode(_: TensorType, bytes: &[u8], out: &mut [f32]) {
        for (out, bytes) in out.iter_mut().zip(bytes.as_chunks().0) {
            *out = f32::from_bits(u32::from(u16::from_le_bytes(*bytes)) << 16);
        }
    }
}

impl<B: Blocks> Decode for Dequantise<B> {
    #[inline(always)]
    fn block(_: TensorType) -> (usize, usize) {
        (B::LEN, B::BYTES)
    }

    #[inline(always)]
    fn decode(_: TensorType, bytes: &[u8], out: &mut [f32]) {
        for (block, out) in bytes.chunks_exact(B::BYTES).zip(out.chunks_exact_mut(B::LEN)) {
            let mut q = [0_i8; 256];
            let scales = B::unpack(block, &mut q);
            for sub in 0..B::LEN / B::SUB {
                let (d, m) = match B::LEN {
                    32 => (scales.d, scales.m),
                    _ => (scales.d * f32::from(scales.scale[sub]), -(scales.m * f32::from(scales.min[sub]))),
                };
                for i in sub * B::SUB..(sub + 1) * B::SUB {
                    let x = d * f32::from(q[i]);
                    out[i] = if B::MIN { x + m } else { x };
                }
            }
        }
    }
}

impl Decode for Oracle {
    #[inline(always)]
    fn block(ty: TensorType) -> (usize, usize) {
        (ty.block_len(), ty.block_bytes())
    }

    fn decode(ty: TensorType, bytes: &[u8], out: &mut [f32]) {
        crate::quant::decode_row(ty, bytes, out);
    }
}

/// The partial sums of one row and position.
type Sums = [f32; 16];

/// What a tile is computed in.
struct Scratch {
    decoded: [[f32; CHUNK]; ROWS],
    sums: [[Sums; ROWS]; TILE_POSITIONS],
}

/// Adds the products of a chunk to the partial sums of `R` rows.
#[inline(always)]
fn add_products<const R: usize>(rows: &[[f32; CHUNK]; R], x: &[f32], sums: &mut [Sums; R]) {
    let mut acc = *sums;
    let (whole, rest) = x.as_chunks::<16>();
    for (step, x) in whole.iter().enumerate() {
        for r in 0..R {
            for lane in 0..16 {
                acc[r][lane] += rows[r][step * 16 + lane] * x[lane];
            }
        }
    }
    for r in 0..R {
        for (lane, x) in rest.iter().enumerate() {
            acc[r][lane] += rows[r][whole.len() * 16 + lane] * x;
        }
    }
    *sums = acc;
}

/// Adds up the partial sums, halves onto halves.
#[inline(always)]
fn total(mut sums: Sums) -> f32 {
    for half in [8, 4, 2, 1] {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
    }
    sums[0]
}

/// Some rows from `row` on (where the tile has fewer, its last one again), against all positions of the tile.
///
/// # Safety
/// As [`Kernel`].
#[inline(always)]
unsafe fn row_block<D: Decode>(tile: &Tile<'_>, acts: &Activations, row: usize, scratch: &mut Scratch) {
    let (k, positions) = (acts.k, tile.positions);
    let (block_len, block_bytes) = D::block(tile.ty);
    let Scratch { decoded, sums } = scratch;
    let sums = &mut sums[..positions.count];
    sums.fill([[0.0; 16]; ROWS]);
    for first in (0..k).step_by(CHUNK) {
        let len = CHUNK.min(k - first);
        let bytes = first / block_len * block_bytes..(first + len) / block_len * block_bytes;
        for (r, decoded) in decoded.iter_mut().enumerate() {
            let first_byte = (row + r).min(tile.rows - 1) * tile.row_bytes;
            let weights = &tile.weights[first_byte..first_byte + tile.row_bytes];
            D::decode(tile.ty, &weights[bytes.clone()], &mut decoded[..len]);
            // Meanwhile the next rows, which follow these in memory, are fetched front to back.
            let ahead = (row + ROWS) * tile.row_bytes + bytes.start * ROWS + r * bytes.len();
            for line in (ahead..ahead + bytes.len()).step_by(64) {
                prefetch(tile.weights.as_ptr().wrapping_add(line), 1);
            }
        }
        for (i, sums) in sums.iter_mut().enumerate() {
            let x = positions.at(i) * k + first;
            add_products(decoded, &acts.f32s[x..x + len], sums);
        }
    }
    for (i, sums) in sums.iter().enumerate() {
        for (r, sums) in sums.iter().enumerate() {
            // SAFETY: the tile's rows and positions are inside the output and this thread's own.
            unsafe { tile.out.set(positions.at(i), (row + r).min(tile.rows - 1), total(*sums)) };
        }
    }
}

/// # Safety
/// As [`Kernel`].
#[inline(always)]
unsafe fn all_rows<D: Decode>(tile: &Tile<'_>, acts: &Activations) {
    let mut scratch = Scratch { decoded: [[0.0; CHUNK]; ROWS], sums: [[[0.0; 16]; ROWS]; TILE_POSITIONS] };
    for row in (0..tile.rows).step_by(ROWS) {
        // SAFETY: as asked of the caller.
        unsafe { row_block::<D>(tile, acts, row, &mut scratch) };
    }
}

compiled_for_each_isa! {
    /// # Safety
    /// As [`Kernel`].
    unsafe fn tile<D: Decode>(tile: &Tile<'_>, acts: &Activations) = all_rows::<D>;
}
