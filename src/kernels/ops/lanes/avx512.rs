//! One 512-bit register.

use std::arch::x86_64::*;

use super::{LANES, Lanes};

/// A processor with AVX-512 F, BW, DQ, VL, and AVX2, FMA, F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The processor has the features.
    #[inline(always)]
    pub(crate) unsafe fn new() -> Self {
        Self(())
    }
}

/// Runs one intrinsic. `self` proves that the processor has it.
macro_rules! has {
    ($call:expr) => {
        // SAFETY: whoever made the token vouched for the features; pointers, where there are any, come from references
        // or are vouched for by the caller.
        unsafe { $call }
    };
}

impl Lanes for Avx512 {
    type V = __m512;
    const WIDE: usize = 2;
    const ROWS: usize = 8;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        has!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> __m512 {
        has!(_mm512_loadu_ps(from.as_ptr()))
    }
    #[inline(always)]
    fn store(self, v: __m512, to: &mut [f32; LANES]) {
        has!(_mm512_storeu_ps(to.as_mut_ptr(), v))
    }
    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        has!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn select_gt(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        has!(_mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_GT_OQ>(a, b), y, x))
    }
    // The instructions are these comparisons, with NaN and zeros too.
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        has!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn add_to_exponent(self, y: __m512, n: __m512) -> __m512 {
        has!(_mm512_castsi512_ps(_mm512_add_epi32(
            _mm512_castps_si512(y),
            _mm512_slli_epi32::<23>(_mm512_castps_si512(n))
        )))
    }
    #[inline(always)]
    fn sum(self, v: __m512) -> f32 {
        has!({
            let v = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            super::avx2::sum_of_eight(v)
        })
    }
    #[inline(always)]
    fn largest(self, v: __m512) -> f32 {
        has!({
            let v = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v));
            super::avx2::largest_of_eight(v)
        })
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> __m512 {
        has!(_mm512_cvtph_ps(_mm256_loadu_si256(from.cast())))
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: __m512, to: *mut u8) {
        has!(_mm256_storeu_si256(to.cast(), _mm512_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v)))
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const u8) -> __m512 {
        has!(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast()))))
    }
}
