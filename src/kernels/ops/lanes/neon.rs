//! Four 128-bit registers.

use std::arch::aarch64::*;
use std::arch::asm;

use super::{LANES, Lanes};

/// A processor with NEON.
#[derive(Clone, Copy)]
pub(crate) struct Neon(());

impl Neon {
    /// # Safety
    /// The processor has NEON.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Runs one intrinsic. `self` proves that the processor has it.
macro_rules! has {
    ($call:expr) => {
        // SAFETY: whoever made the token vouched for NEON; pointers, where there are any, come from references or are
        // vouched for by the caller.
        unsafe { $call }
    };
}

#[inline(always)]
fn each(f: impl Fn(usize) -> float32x4_t) -> [float32x4_t; 4] {
    [f(0), f(1), f(2), f(3)]
}

/// `a > b ? a : b`; the processor's own maximum treats NaN otherwise.
#[inline(always)]
fn larger(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    has!(vbslq_f32(vcgtq_f32(a, b), a, b))
}

impl Lanes for Neon {
    type V = [float32x4_t; 4];
    const WIDE: usize = 1;
    const ROWS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        has!([vdupq_n_f32(x); 4])
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        each(|i| has!(vld1q_f32(from.as_ptr().add(4 * i))))
    }
    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        (0..4).for_each(|i| has!(vst1q_f32(to.as_mut_ptr().add(4 * i), v[i])));
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| has!(vaddq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| has!(vsubq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| has!(vmulq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        each(|i| has!(vdivq_f32(a[i], b[i])))
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        each(|i| has!(vfmaq_f32(c[i], a[i], b[i])))
    }
    #[inline(always)]
    fn select_gt(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V {
        each(|i| has!(vbslq_f32(vcgtq_f32(a[i], b[i]), x[i], y[i])))
    }
    #[inline(always)]
    fn add_to_exponent(self, y: Self::V, n: Self::V) -> Self::V {
        each(|i| {
            has!(vreinterpretq_f32_u32(vaddq_u32(
                vreinterpretq_u32_f32(y[i]),
                vshlq_n_u32::<23>(vreinterpretq_u32_f32(n[i]))
            )))
        })
    }
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        has!({
            let v = vaddq_f32(vaddq_f32(v[0], v[2]), vaddq_f32(v[1], v[3]));
            let v = vadd_f32(vget_low_f32(v), vget_high_f32(v));
            vget_lane_f32::<0>(v) + vget_lane_f32::<1>(v)
        })
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        let v = larger(larger(v[0], v[2]), larger(v[1], v[3]));
        has!({
            let v = larger(v, vextq_f32::<2>(v, v));
            let v = larger(v, vextq_f32::<1>(v, v));
            vgetq_lane_f32::<0>(v)
        })
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> Self::V {
        // The conversion is in every ARMv8 processor; its intrinsic asks for the unstable half-precision type.
        let wide = |bits: uint16x8_t| -> [float32x4_t; 2] {
            let (low, high): (float32x4_t, float32x4_t);
            // SAFETY: register to register.
            unsafe {
                asm!("fcvtl {0:v}.4s, {2:v}.4h", "fcvtl2 {1:v}.4s, {2:v}.8h",
                    out(vreg) low, lateout(vreg) high, in(vreg) bits, options(pure, nomem, nostack, preserves_flags));
            }
            [low, high]
        };
        let [a, b] =
            has!([wide(vreinterpretq_u16_u8(vld1q_u8(from))), wide(vreinterpretq_u16_u8(vld1q_u8(from.add(16))))]);
        [a[0], a[1], b[0], b[1]]
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: Self::V, to: *mut u8) {
        let narrow = |low: float32x4_t, high: float32x4_t| -> uint8x16_t {
            let bits: uint16x8_t;
            // SAFETY: register to register; rounds as the default mode does, to nearest, ties to even.
            unsafe {
                asm!("fcvtn {0:v}.4h, {1:v}.4s", "fcvtn2 {0:v}.8h, {2:v}.4s",
                    out(vreg) bits, in(vreg) low, in(vreg) high, options(pure, nomem, nostack, preserves_flags));
                vreinterpretq_u8_u16(bits)
            }
        };
        has!({
            vst1q_u8(to, narrow(v[0], v[1]));
            vst1q_u8(to.add(16), narrow(v[2], v[3]));
        })
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const u8) -> Self::V {
        has!({
            let bytes = vreinterpretq_s8_u8(vld1q_u8(from));
            let (low, high) = (vmovl_s8(vget_low_s8(bytes)), vmovl_high_s8(bytes));
            [
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))),
                vcvtq_f32_s32(vmovl_high_s16(low)),
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))),
                vcvtq_f32_s32(vmovl_high_s16(high)),
            ]
        })
    }
}
