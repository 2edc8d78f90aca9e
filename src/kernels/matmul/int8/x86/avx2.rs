//! 256-bit vectors: 8 rows.

use std::arch::x86_64::*;

use super::super::lanes::{Simd, two};

/// Proof of AVX2, FMA and F16C, and of AVX-VNNI if so said; with 8-bit weights taken signed if so said.
#[derive(Clone, Copy)]
pub(super) struct Ymm<const VNNI: bool, const SIGNED: bool>(());

impl<const VNNI: bool, const SIGNED: bool> Ymm<VNNI, SIGNED> {
    /// # Safety
    /// The processor has these instructions.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

/// Defines operations that are one expression of intrinsics.
macro_rules! ops {
    ($(fn $name:ident $(<$n:ident>)? ($($arg:ident: $ty:ty),*) -> $out:ty = $body:expr;)*) => {
        $(
            #[inline(always)]
            fn $name $(<const $n: u32>)? (self, $($arg: $ty),*) -> $out {
                // SAFETY: `self` proves that the processor has the instructions.
                unsafe { $body }
            }
        )*
    };
}

impl<const VNNI: bool, const SIGNED: bool> Simd for Ymm<VNNI, SIGNED> {
    type V = __m256i;
    type F = __m256;
    const LANES: usize = 8;
    const SIGNED: bool = SIGNED;

    ops! {
        fn splat(x: u32) -> __m256i = _mm256_set1_epi32(x as i32);
        fn and(a: __m256i, b: __m256i) -> __m256i = _mm256_and_si256(a, b);
        fn or(a: __m256i, b: __m256i) -> __m256i = _mm256_or_si256(a, b);
        fn xor(a: __m256i, b: __m256i) -> __m256i = _mm256_xor_si256(a, b);
        fn add(a: __m256i, b: __m256i) -> __m256i = _mm256_add_epi32(a, b);
        fn shl<N>(a: __m256i) -> __m256i = _mm256_sllv_epi32(a, _mm256_set1_epi32(N as i32));
        fn shr<N>(a: __m256i) -> __m256i = _mm256_srlv_epi32(a, _mm256_set1_epi32(N as i32));
        fn signed_byte<N>(a: __m256i) -> __m256i = match N {
            0 => _mm256_srai_epi32::<24>(_mm256_slli_epi32::<24>(a)),
            1 => _mm256_srai_epi32::<24>(_mm256_slli_epi32::<16>(a)),
            2 => _mm256_srai_epi32::<24>(_mm256_slli_epi32::<8>(a)),
            _ => _mm256_srai_epi32::<24>(a),
        };
        fn set_bit_4<J>(a: __m256i, bits: __m256i) -> __m256i = {
            // The byte that holds the four bits, onto all bytes of the lane; each then tests a bit of it.
            let byte = (J / 2 * 0x0101_0101) as i32;
            let everywhere = _mm_set_epi32(byte + 0x0c0c_0c0c, byte + 0x0808_0808, byte + 0x0404_0404, byte);
            let test = _mm256_set1_epi32(if J.is_multiple_of(2) { 0x0804_0201 } else { 0x8040_2010_u32 as i32 });
            let byte = _mm256_shuffle_epi8(bits, _mm256_broadcastsi128_si256(everywhere));
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(byte, test), test);
            _mm256_or_si256(a, _mm256_and_si256(set, _mm256_set1_epi8(16)))
        };
        fn lookup(table: &[u8; 16], index: __m256i) -> __m256i =
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast())), index);
        fn zero() -> __m256 = _mm256_setzero_ps();
        fn splat_f32(x: f32) -> __m256 = _mm256_set1_ps(x);
        fn to_f32(a: __m256i) -> __m256 = _mm256_cvtepi32_ps(a);
        fn as_f32(a: __m256i) -> __m256 = _mm256_castsi256_ps(a);
        fn low_f16(a: __m256i) -> __m256 = narrow_f16(_mm256_and_si256(a, _mm256_set1_epi32(0xffff)));
        fn high_f16(a: __m256i) -> __m256 = narrow_f16(_mm256_srli_epi32::<16>(a));
        fn mul(a: __m256, b: __m256) -> __m256 = _mm256_mul_ps(a, b);
        fn mul_add(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fmadd_ps(a, b, c);
        fn neg_mul_add(a: __m256, b: __m256, c: __m256) -> __m256 = _mm256_fnmadd_ps(a, b, c);
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> __m256i {
        // SAFETY: the caller vouches for the bytes, `self` for the instruction.
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> __m256 {
        // SAFETY: as above.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_byte(self, from: *const u8) -> __m256i {
        // SAFETY: as above.
        unsafe { _mm256_cvtepu8_epi32(_mm_loadl_epi64(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: __m256) {
        // SAFETY: the caller vouches for the room, `self` for the instruction.
        unsafe { _mm256_storeu_ps(to, a) }
    }

    #[inline(always)]
    fn dot<const N: usize, const U: usize, const T: usize>(
        self,
        bits: u32,
        w: &[[__m256i; T]; N],
        a: [&[[i8; 4]; N]; U],
        start: [[__m256i; T]; U],
    ) -> [[__m256i; T]; U] {
        let mut sums = start;
        // Without VNNI products are summed in 16 bits as far as they fit: each adds up to 2 x 127 x (2^bits - 1).
        let together = match bits {
            _ if VNNI => 1,
            0..=4 => 8,
            5 => 4,
            6 => 2,
            _ => 1,
        };
        let mut i = 0;
        while i < N {
            let mut shorts = sums;
            for j in i..N.min(i + together) {
                for u in 0..U {
                    let four = self.splat(u32::from_le_bytes(a[u][j].map(|a| a as u8)));
                    for t in 0..T {
                        // SAFETY: `self` proves that the processor has the instructions.
                        unsafe {
                            if VNNI {
                                sums[u][t] = _mm256_dpbusd_avx_epi32(sums[u][t], w[j][t], four);
                            } else {
                                let products = products_16(w[j][t], four, bits == 8);
                                shorts[u][t] = if j == i { products } else { _mm256_add_epi16(shorts[u][t], products) };
                            }
                        }
                    }
                }
            }
            if !VNNI {
                for u in 0..U {
                    for t in 0..T {
                        // SAFETY: `self` proves that the processor has the instructions.
                        unsafe {
                            let words = _mm256_madd_epi16(shorts[u][t], _mm256_set1_epi16(1));
                            sums[u][t] = _mm256_add_epi32(sums[u][t], words);
                        }
                    }
                }
            }
            i += together;
        }
        sums
    }

    #[inline(always)]
    fn dot_pairs<const N: usize, const U: usize, const T: usize>(
        self,
        w: &[[[__m256i; T]; 2]; N],
        a: [&[[[i16; 2]; 2]; N]; U],
        start: [[__m256i; T]; U],
    ) -> [[__m256i; T]; U] {
        let mut sums = start;
        // The compiler leaves this a loop, which is well: unrolled, it would run out of registers.
        for (i, pair) in (0..N).flat_map(|i| [(i, 0), (i, 1)]) {
            for u in 0..U {
                let two = self.splat(two(a[u][i][pair]));
                for t in 0..T {
                    // SAFETY: `self` proves that the processor has the instructions.
                    sums[u][t] = unsafe { _mm256_add_epi32(sums[u][t], _mm256_madd_epi16(w[i][pair][t], two)) };
                }
            }
        }
        sums
    }
}

/// Of half-precision numbers in lanes that are otherwise zero.
///
/// # Safety
/// The processor has AVX2 and F16C.
#[inline(always)]
unsafe fn narrow_f16(a: __m256i) -> __m256 {
    // SAFETY: as asked of the caller.
    unsafe { _mm256_cvtph_ps(_mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256::<1>(a))) }
}

/// Sums of two products of bytes each, `w` unsigned or signed, `a` signed and not -128.
///
/// # Safety
/// The processor has AVX2.
#[inline(always)]
unsafe fn products_16(w: __m256i, a: __m256i, signed: bool) -> __m256i {
    // SAFETY: as asked of the caller.
    unsafe {
        if signed {
            _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w))
        } else {
            _mm256_maddubs_epi16(w, a)
        }
    }
}
