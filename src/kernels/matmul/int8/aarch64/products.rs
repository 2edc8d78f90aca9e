//! Sums of products of bytes: by long multiplication, by the dot product, by the matrix product.
//!
//! The intrinsics of the last two are not stable; their instructions are written out.

use std::arch::aarch64::*;
use std::arch::asm;

/// A way to multiply; see [`Simd::dot`](super::super::lanes::Simd::dot) for what.
pub(super) trait Products {
    /// # Safety
    /// The processor has the instructions.
    unsafe fn dot<const N: usize, const U: usize, const T: usize>(
        bits: u32,
        w: &[[uint32x4_t; T]; N],
        a: [&[[i8; 4]; N]; U],
        start: [[uint32x4_t; T]; U],
    ) -> [[uint32x4_t; T]; U];
}

/// Long multiplication, in every processor with NEON.
pub(super) struct Long;

/// `sdot`: four products in each lane.
pub(super) struct Sdot;

/// `smmla`: two rows by two positions, eight products each.
pub(super) struct Matrix;

impl Products for Long {
    #[inline(always)]
    unsafe fn dot<const N: usize, const U: usize, const T: usize>(
        bits: u32,
        w: &[[uint32x4_t; T]; N],
        a: [&[[i8; 4]; N]; U],
        start: [[uint32x4_t; T]; U],
    ) -> [[uint32x4_t; T]; U] {
        // Products that fit into 16 bits together: each is up to 127 x (2^bits - 1), of signed bytes 127 x 128.
        let together = match bits {
            0..=5 => 8,
            6 => 4,
            _ => 2,
        };
        let mut out = start;
        for u in 0..U {
            for t in 0..T {
                // SAFETY: the caller vouches for the processor.
                unsafe {
                    // Of rows 0 and 1, and of rows 2 and 3: two sums of each.
                    let (mut low, mut high) = (vdupq_n_s32(0), vdupq_n_s32(0));
                    let mut i = 0;
                    while i < N {
                        let (mut shorts_low, mut shorts_high) = (vdupq_n_s16(0), vdupq_n_s16(0));
                        for j in i..N.min(i + together) {
                            let four = vreinterpretq_s8_u32(splat(a[u][j]));
                            let w = vreinterpretq_s8_u32(w[j][t]);
                            shorts_low = vmlal_s8(shorts_low, vget_low_s8(w), vget_low_s8(four));
                            shorts_high = vmlal_high_s8(shorts_high, w, four);
                        }
                        low = vpadalq_s16(low, shorts_low);
                        high = vpadalq_s16(high, shorts_high);
                        i += together;
                    }
                    let sums = vpaddq_s32(low, high);
                    out[u][t] = vaddq_u32(out[u][t], vreinterpretq_u32_s32(sums));
                }
            }
        }
        out
    }
}

/// The four bytes in every lane.
///
/// # Safety
/// The processor has NEON.
#[inline(always)]
unsafe fn splat(four: [i8; 4]) -> uint32x4_t {
    // SAFETY: as asked of the caller.
    unsafe { vdupq_n_u32(u32::from_le_bytes(four.map(|a| a as u8))) }
}

/// Adds to each lane of `acc` the products of the lane's bytes of `w` with the four bytes number `lane` of `a`.
///
/// # Safety
/// The processor has the integer dot product.
#[inline(always)]
unsafe fn sdot(mut acc: uint32x4_t, w: uint32x4_t, a: int8x16_t, lane: usize) -> uint32x4_t {
    macro_rules! sdot {
        ($lane:literal) => {
            // SAFETY: register to register; the caller vouches for the instruction.
            unsafe {
                asm!(
                    concat!("sdot {0:v}.4s, {1:v}.16b, {2:v}.4b[", $lane, "]"),
                    inout(vreg) acc, in(vreg) w, in(vreg) a,
                    options(pure, nomem, nostack, preserves_flags)
                )
            }
        };
    }
    // Known when this is compiled into a kernel.
    match lane {
        0 => sdot!("0"),
        1 => sdot!("1"),
        2 => sdot!("2"),
        _ => sdot!("3"),
    }
    acc
}

/// Adds to lane `2 i + j` of `acc` the products of eight bytes `i` of `w` with eight bytes `j` of `a`.
///
/// # Safety
/// The processor has the integer matrix product.
#[inline(always)]
unsafe fn smmla(mut acc: uint32x4_t, w: uint32x4_t, a: uint32x4_t) -> uint32x4_t {
    // SAFETY: register to register; the caller vouches for the instruction.
    unsafe {
        asm!(
            "smmla {0:v}.4s, {1:v}.16b, {2:v}.16b",
            inout(vreg) acc, in(vreg) w, in(vreg) a,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    acc
}

impl Products for Sdot {
    #[inline(always)]
    unsafe fn dot<const N: usize, const U: usize, const T: usize>(
        _: u32,
        w: &[[uint32x4_t; T]; N],
        a: [&[[i8; 4]; N]; U],
        start: [[uint32x4_t; T]; U],
    ) -> [[uint32x4_t; T]; U] {
        const { assert!(N.is_multiple_of(4)) };
        let mut sums = start;
        for i in (0..N).step_by(4) {
            for u in 0..U {
                // SAFETY: 16 bytes from element `i` on are part of the position's; the caller vouches for the processor.
                unsafe {
                    let a = vld1q_s8(a[u][i..].as_ptr().cast());
                    for j in 0..4 {
                        for t in 0..T {
                            sums[u][t] = sdot(sums[u][t], w[i + j][t], a, j);
                        }
                    }
                }
            }
        }
        sums
    }
}

impl Products for Matrix {
    #[inline(always)]
    unsafe fn dot<const N: usize, const U: usize, const T: usize>(
        bits: u32,
        w: &[[uint32x4_t; T]; N],
        a: [&[[i8; 4]; N]; U],
        start: [[uint32x4_t; T]; U],
    ) -> [[uint32x4_t; T]; U] {
        if !U.is_multiple_of(2) {
            // SAFETY: as asked of the caller; whoever has the matrix product has the dot product.
            return unsafe { Sdot::dot(bits, w, a, start) };
        }
        let mut sums = start;
        for t in 0..T {
            for u in (0..U).step_by(2) {
                // SAFETY: 8 bytes from element `i` on are part of the position's; the caller vouches for the processor.
                unsafe {
                    // Rows 0 and 1, and rows 2 and 3, each with both positions.
                    let (mut low, mut high) = (vdupq_n_u32(0), vdupq_n_u32(0));
                    for i in (0..N).step_by(2) {
                        let eight = |u: usize| vld1_s8(a[u][i..].as_ptr().cast());
                        let two = vreinterpretq_u32_s8(vcombine_s8(eight(u), eight(u + 1)));
                        low = smmla(low, vzip1q_u32(w[i][t], w[i + 1][t]), two);
                        high = smmla(high, vzip2q_u32(w[i][t], w[i + 1][t]), two);
                    }
                    sums[u][t] = vaddq_u32(sums[u][t], vuzp1q_u32(low, high));
                    sums[u + 1][t] = vaddq_u32(sums[u + 1][t], vuzp2q_u32(low, high));
                }
            }
        }
        sums
    }
}
