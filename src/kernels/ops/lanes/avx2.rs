//! Two 256-bit registers.

use std::arch::x86_64::*;

use super::{LANES, Lanes};

/// A processor with AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
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

/// Lane `i` with `i + 4`, then 2, 1.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn sum_of_eight(v: __m256) -> f32 {
    let v = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_add_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_add_ss(v, _mm_movehdup_ps(v)))
}

/// The same tree; the instruction is `a > b ? a : b`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn largest_of_eight(v: __m256) -> f32 {
    let v = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps::<1>(v));
    let v = _mm_max_ps(v, _mm_movehl_ps(v, v));
    _mm_cvtss_f32(_mm_max_ss(v, _mm_movehdup_ps(v)))
}

impl Lanes for Avx2 {
    type V = [__m256; 2];
    const WIDE: usize = 1;
    const ROWS: usize = 4;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        has!([_mm256_set1_ps(x); 2])
    }
    #[inline(always)]
    fn load(self, from: &[f32; LANES]) -> Self::V {
        has!([_mm256_loadu_ps(from.as_ptr()), _mm256_loadu_ps(from.as_ptr().add(8))])
    }
    #[inline(always)]
    fn store(self, v: Self::V, to: &mut [f32; LANES]) {
        has!({
            _mm256_storeu_ps(to.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(to.as_mut_ptr().add(8), v[1]);
        })
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        has!([_mm256_add_ps(a[0], b[0]), _mm256_add_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        has!([_mm256_sub_ps(a[0], b[0]), _mm256_sub_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        has!([_mm256_mul_ps(a[0], b[0]), _mm256_mul_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        has!([_mm256_div_ps(a[0], b[0]), _mm256_div_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        has!([_mm256_fmadd_ps(a[0], b[0], c[0]), _mm256_fmadd_ps(a[1], b[1], c[1])])
    }
    #[inline(always)]
    fn select_gt(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V {
        has!([
            _mm256_blendv_ps(y[0], x[0], _mm256_cmp_ps::<_CMP_GT_OQ>(a[0], b[0])),
            _mm256_blendv_ps(y[1], x[1], _mm256_cmp_ps::<_CMP_GT_OQ>(a[1], b[1])),
        ])
    }
    // The instructions are these comparisons, with NaN and zeros too.
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        has!([_mm256_max_ps(a[0], b[0]), _mm256_max_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        has!([_mm256_min_ps(a[0], b[0]), _mm256_min_ps(a[1], b[1])])
    }
    #[inline(always)]
    fn add_to_exponent(self, y: Self::V, n: Self::V) -> Self::V {
        let one = |y, n| {
            has!(_mm256_castsi256_ps(_mm256_add_epi32(
                _mm256_castps_si256(y),
                _mm256_slli_epi32::<23>(_mm256_castps_si256(n))
            )))
        };
        [one(y[0], n[0]), one(y[1], n[1])]
    }
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        has!(sum_of_eight(_mm256_add_ps(v[0], v[1])))
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        has!(largest_of_eight(_mm256_max_ps(v[0], v[1])))
    }
    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> Self::V {
        has!([_mm256_cvtph_ps(_mm_loadu_si128(from.cast())), _mm256_cvtph_ps(_mm_loadu_si128(from.add(16).cast())),])
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: Self::V, to: *mut u8) {
        has!({
            _mm_storeu_si128(to.cast(), _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v[0]));
            _mm_storeu_si128(to.add(16).cast(), _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(v[1]));
        })
    }
    #[inline(always)]
    unsafe fn load_i8(self, from: *const u8) -> Self::V {
        has!([
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast()))),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.add(8).cast()))),
        ])
    }
}
