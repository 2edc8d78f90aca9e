//! 128-bit vectors: 4 rows.

use std::arch::aarch64::*;
use std::arch::asm;
use std::marker::PhantomData;

use super::super::lanes::{Simd, two};
use super::products::Products;

/// Proof of NEON, and of what `P` multiplies with.
pub(super) struct Neon<P>(PhantomData<P>);

impl<P> Clone for Neon<P> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Neon<P> {}

impl<P> Neon<P> {
    /// # Safety
    /// The processor has these instructions.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(PhantomData)
    }
}

/// Defines operations that are one expression of intrinsics.
macro_rules! ops {
    ($(fn $name:ident $(<$n:ident>)? ($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {
        $(
            #[inline(always)]
            #[allow(unused_unsafe)]
            fn $name $(<const $n: u32>)? (self, $($arg: $ty),*) -> $out {
                // SAFETY: `self` proves that the processor has the instructions.
                unsafe { $body }
            }
        )*
    };
}

/// A vector's bytes.
macro_rules! bytes {
    ($a:expr) => {
        vreinterpretq_u8_u32($a)
    };
}

impl<P: Products> Simd for Neon<P> {
    type V = uint32x4_t;
    type F = float32x4_t;
    const LANES: usize = 4;
    const SIGNED: bool = true;

    ops! {
        fn splat(x: u32) -> uint32x4_t = vdupq_n_u32(x);
        fn and(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t = vandq_u32(a, b);
        fn or(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t = vorrq_u32(a, b);
        fn xor(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t = veorq_u32(a, b);
        fn add(a: uint32x4_t, b: uint32x4_t) -> uint32x4_t = vaddq_u32(a, b);
        fn shl<N>(a: uint32x4_t) -> uint32x4_t = vshlq_u32(a, vdupq_n_s32(N as i32));
        fn shr<N>(a: uint32x4_t) -> uint32x4_t = vshlq_u32(a, vdupq_n_s32(-(N as i32)));
        fn signed_byte<N>(a: uint32x4_t) -> uint32x4_t = {
            let top = vshlq_u32(a, vdupq_n_s32(24 - 8 * N as i32));
            vreinterpretq_u32_s32(vshrq_n_s32::<24>(vreinterpretq_s32_u32(top)))
        };
        fn set_bit_4<J>(a: uint32x4_t, bits: uint32x4_t) -> uint32x4_t = {
            // The byte that holds the four bits, onto all bytes of the lane; each then tests a bit of it.
            let byte = J / 2 * 0x0101_0101;
            let everywhere = [byte, byte + 0x0404_0404, byte + 0x0808_0808, byte + 0x0c0c_0c0c];
            let test = vdupq_n_u32(if J.is_multiple_of(2) { 0x0804_0201 } else { 0x8040_2010 });
            let byte = vqtbl1q_u8(bytes!(bits), bytes!(vld1q_u32(everywhere.as_ptr())));
            let set = vandq_u8(vtstq_u8(byte, bytes!(test)), vdupq_n_u8(16));
            vorrq_u32(a, vreinterpretq_u32_u8(set))
        };
        fn lookup(table: &[u8; 16], index: uint32x4_t) -> uint32x4_t =
            vreinterpretq_u32_u8(vqtbl1q_u8(vld1q_u8(table.as_ptr()), bytes!(index)));
        fn zero() -> float32x4_t = vdupq_n_f32(0.0);
        fn splat_f32(x: f32) -> float32x4_t = vdupq_n_f32(x);
        fn to_f32(a: uint32x4_t) -> float32x4_t = vcvtq_f32_s32(vreinterpretq_s32_u32(a));
        fn as_f32(a: uint32x4_t) -> float32x4_t = vreinterpretq_f32_u32(a);
        fn low_f16(a: uint32x4_t) -> float32x4_t = widen(vmovn_u32(a));
        fn high_f16(a: uint32x4_t) -> float32x4_t = widen(vshrn_n_u32::<16>(a));
        fn mul(a: float32x4_t, b: float32x4_t) -> float32x4_t = vmulq_f32(a, b);
        fn mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmaq_f32(c, a, b);
        fn neg_mul_add(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t = vfmsq_f32(c, a, b);
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> uint32x4_t {
        // SAFETY: the caller vouches for the bytes, `self` for the instruction.
        unsafe { vreinterpretq_u32_u8(vld1q_u8(from)) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> float32x4_t {
        // SAFETY: as above.
        unsafe { widen(vreinterpret_u16_u8(vld1_u8(from))) }
    }

    #[inline(always)]
    unsafe fn load_byte(self, from: *const u8) -> uint32x4_t {
        // SAFETY: as above.
        unsafe {
            let four = vdup_n_u32(from.cast::<u32>().read_unaligned());
            vmovl_u16(vget_low_u16(vmovl_u8(vreinterpret_u8_u32(four))))
        }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: float32x4_t) {
        // SAFETY: the caller vouches for the room, `self` for the instruction.
        unsafe { vst1q_f32(to, a) }
    }

    #[inline(always)]
    fn dot<const N: usize, const U: usize, const T: usize>(
        self,
        bits: u32,
        w: &[[uint32x4_t; T]; N],
        a: [&[[i8; 4]; N]; U],
        start: [[uint32x4_t; T]; U],
    ) -> [[uint32x4_t; T]; U] {
        // SAFETY: `self` proves that the processor has what `P` multiplies with.
        unsafe { P::dot(bits, w, a, start) }
    }

    #[inline(always)]
    fn dot_pairs<const N: usize, const U: usize, const T: usize>(
        self,
        w: &[[[uint32x4_t; T]; 2]; N],
        a: [&[[[i16; 2]; 2]; N]; U],
        mut start: [[uint32x4_t; T]; U],
    ) -> [[uint32x4_t; T]; U] {
        for u in 0..U {
            for t in 0..T {
                // SAFETY: `self` proves that the processor has the instructions.
                unsafe {
                    // Products of rows 0 and 1, and of rows 2 and 3, two of each.
                    let (mut low, mut high) = (vdupq_n_s32(0), vdupq_n_s32(0));
                    for (i, pair) in (0..N).flat_map(|i| [(i, 0), (i, 1)]) {
                        let two = vreinterpretq_s16_u32(vdupq_n_u32(two(a[u][i][pair])));
                        let w = vreinterpretq_s16_u32(w[i][pair][t]);
                        low = vmlal_s16(low, vget_low_s16(w), vget_low_s16(two));
                        high = vmlal_high_s16(high, w, two);
                    }
                    start[u][t] = vaddq_u32(start[u][t], vreinterpretq_u32_s32(vpaddq_s32(low, high)));
                }
            }
        }
        start
    }
}

/// Of half-precision numbers.
#[inline(always)]
fn widen(half: uint16x4_t) -> float32x4_t {
    let wide: float32x4_t;
    // SAFETY: register to register. The conversion is in every ARMv8 processor; its intrinsic asks for the unstable
    // half-precision type.
    unsafe {
        asm!("fcvtl {0:v}.4s, {1:v}.4h", out(vreg) wide, in(vreg) half, options(pure, nomem, nostack, preserves_flags));
    }
    wide
}
