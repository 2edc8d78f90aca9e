//! 512-bit vectors: 16 rows.

use std::arch::x86_64::*;

use super::super::lanes::{Simd, two};

/// Proof of AVX-512 F, BW, DQ, VL and VNNI (with AVX2, FMA and F16C).
#[derive(Clone, Copy)]
pub(super) struct Zmm(());

impl Zmm {
    /// # Safety
    /// The processor has these instructions.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

/// For each number of four bits, those on bit 4 of four bytes.
const FOUR_BITS: [u32; 16] = {
    let mut entries = [0; 16];
    let mut i = 0;
    while i < 16 {
        entries[i as usize] = ((i & 1) | (i & 2) << 7 | (i & 4) << 14 | (i & 8) << 21) << 4;
        i += 1;
    }
    entries
};

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

/// Does something for each of 4 or 8 words, whose numbers and offsets are literals: the compiler leaves a loop one.
macro_rules! each_word {
    ($n:expr, |$i:ident, $offset:ident| $body:expr) => {
        each_word!(@ $n, $i, $offset, $body, 0 1 2 3 4 5 6 7)
    };
    (@ $n:expr, $i:ident, $offset:ident, $body:expr, $($word:literal)*) => {
        const { assert!($n == 4 || $n == 8) };
        $(
            if $word < $n {
                #[allow(non_snake_case)]
                let $i = $word;
                const $offset: usize = $word * 4;
                $body;
            }
        )*
    };
}

impl Simd for Zmm {
    type V = __m512i;
    type F = __m512;
    const LANES: usize = 16;
    const SIGNED: bool = false;

    ops! {
        fn splat(x: u32) -> __m512i = _mm512_set1_epi32(x as i32);
        fn and(a: __m512i, b: __m512i) -> __m512i = _mm512_and_si512(a, b);
        fn or(a: __m512i, b: __m512i) -> __m512i = _mm512_or_si512(a, b);
        fn xor(a: __m512i, b: __m512i) -> __m512i = _mm512_xor_si512(a, b);
        fn add(a: __m512i, b: __m512i) -> __m512i = _mm512_add_epi32(a, b);
        fn shl<N>(a: __m512i) -> __m512i = _mm512_slli_epi32::<N>(a);
        fn shr<N>(a: __m512i) -> __m512i = _mm512_srli_epi32::<N>(a);
        fn signed_byte<N>(a: __m512i) -> __m512i = match N {
            0 => _mm512_srai_epi32::<24>(_mm512_slli_epi32::<24>(a)),
            1 => _mm512_srai_epi32::<24>(_mm512_slli_epi32::<16>(a)),
            2 => _mm512_srai_epi32::<24>(_mm512_slli_epi32::<8>(a)),
            _ => _mm512_srai_epi32::<24>(a),
        };
        fn set_bit_4<J>(a: __m512i, bits: __m512i) -> __m512i = {
            // The entry for each lane's four bits: by index, of which the instruction looks at no more.
            let entries = _mm512_loadu_si512(FOUR_BITS.as_ptr().cast());
            _mm512_or_si512(a, _mm512_permutexvar_epi32(_mm512_srlv_epi32(bits, _mm512_set1_epi32(4 * J as i32)), entries))
        };
        fn lookup(table: &[u8; 16], index: __m512i) -> __m512i =
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast())), index);
        fn zero() -> __m512 = _mm512_setzero_ps();
        fn splat_f32(x: f32) -> __m512 = _mm512_set1_ps(x);
        fn to_f32(a: __m512i) -> __m512 = _mm512_cvtepi32_ps(a);
        fn as_f32(a: __m512i) -> __m512 = _mm512_castsi512_ps(a);
        fn low_f16(a: __m512i) -> __m512 = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
        fn high_f16(a: __m512i) -> __m512 = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32::<16>(a)));
        fn mul(a: __m512, b: __m512) -> __m512 = _mm512_mul_ps(a, b);
        fn mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fmadd_ps(a, b, c);
        fn neg_mul_add(a: __m512, b: __m512, c: __m512) -> __m512 = _mm512_fnmadd_ps(a, b, c);
    }

    #[inline(always)]
    unsafe fn load(self, from: *const u8) -> __m512i {
        // SAFETY: the caller vouches for the bytes, `self` for the instruction.
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn load_f16(self, from: *const u8) -> __m512 {
        // SAFETY: as above.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
    }

    #[inline(always)]
    unsafe fn load_byte(self, from: *const u8) -> __m512i {
        // SAFETY: as above.
        unsafe { _mm512_cvtepu8_epi32(_mm_loadu_si128(from.cast())) }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f32, a: __m512) {
        // SAFETY: the caller vouches for the room, `self` for the instruction.
        unsafe { _mm512_storeu_ps(to, a) }
    }

    #[inline(always)]
    fn dot<const N: usize, const U: usize, const T: usize>(
        self,
        _bits: u32,
        w: &[[__m512i; T]; N],
        a: [&[[i8; 4]; N]; U],
        start: [[__m512i; T]; U],
    ) -> [[__m512i; T]; U] {
        let mut sums = start;
        each_word!(N, |I, OFFSET| for u in 0..U {
            // SAFETY: `self` proves that the processor has the instructions; the word is one of the position's.
            unsafe { products::<T, OFFSET>(&mut sums[u], &w[I], a[u].as_ptr().cast()) };
        });
        sums
    }

    #[inline(always)]
    fn dot_two<const N: usize, const U: usize, const T: usize>(
        self,
        _bits: u32,
        w: &[[__m512i; T]; N],
        [high, low]: [[&[[i8; 4]; N]; U]; 2],
        start: [[__m512i; T]; U],
    ) -> [[__m512i; T]; U] {
        // Side by side: a product is long under way, and its sum waits for it.
        let (mut of_256, mut ones) = ([[self.splat(0); T]; U], start);
        each_word!(N, |I, OFFSET| for u in 0..U {
            // SAFETY: as in `dot`.
            unsafe {
                products::<T, OFFSET>(&mut of_256[u], &w[I], high[u].as_ptr().cast());
                products::<T, OFFSET>(&mut ones[u], &w[I], low[u].as_ptr().cast());
            }
        });
        for u in 0..U {
            for t in 0..T {
                ones[u][t] = self.add(ones[u][t], self.shl::<8>(of_256[u][t]));
            }
        }
        ones
    }

    #[inline(always)]
    fn dot_pairs<const N: usize, const U: usize, const T: usize>(
        self,
        w: &[[[__m512i; T]; 2]; N],
        a: [&[[[i16; 2]; 2]; N]; U],
        start: [[__m512i; T]; U],
    ) -> [[__m512i; T]; U] {
        let mut sums = start;
        for j in 0..2 * N {
            let (i, pair) = (j / 2, j % 2);
            for u in 0..U {
                let two = self.splat(two(a[u][i][pair]));
                for t in 0..T {
                    // SAFETY: `self` proves that the processor has the instruction.
                    sums[u][t] = unsafe { _mm512_dpwssd_epi32(sums[u][t], w[i][pair][t], two) };
                }
            }
        }
        sums
    }
}

/// Adds the products of vectors with the same four bytes, `OFFSET` bytes from `from`.
///
/// # Safety
/// The bytes are readable, and the processor has AVX-512 F and VNNI.
#[inline]
#[target_feature(enable = "avx512f,avx512vnni")]
unsafe fn products<const T: usize, const OFFSET: usize>(sums: &mut [__m512i; T], w: &[__m512i; T], from: *const u8) {
    if T != 2 {
        // SAFETY: as asked of the caller.
        let four = unsafe { _mm512_set1_epi32(from.add(OFFSET).cast::<i32>().read_unaligned()) };
        for t in 0..T {
            sums[t] = _mm512_dpbusd_epi32(sums[t], w[t], four);
        }
        return;
    }
    let _four: __m512i;
    // In assembly, as the compiler would load the bytes of many products early, and then have to store them for want of
    // registers.
    // SAFETY: reads the bytes, and changes nothing but the registers named.
    unsafe {
        std::arch::asm!(
            "vpbroadcastd {four}, dword ptr [{from} + {offset}]",
            "vpdpbusd {first}, {w0}, {four}",
            "vpdpbusd {second}, {w1}, {four}",
            from = in(reg) from,
            offset = const OFFSET,
            w0 = in(zmm_reg) w[0],
            w1 = in(zmm_reg) w[T - 1],
            // Written before the last input is read.
            four = out(zmm_reg) _four,
            first = inout(zmm_reg) sums[0],
            second = inout(zmm_reg) sums[T - 1],
            options(nostack, preserves_flags, readonly)
        );
    }
}
