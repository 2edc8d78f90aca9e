//! Sixteen f32 lanes on every instruction set.
//!
//! An operation written once over [`Lanes`] gives the same bits everywhere: every method is an IEEE 754 operation lane by
//! lane (a fused multiply-add rounds once), reductions are one fixed tree, and `max` and `min` are comparisons, so that NaN
//! and signed zeros agree too.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
#[cfg(target_arch = "aarch64")]
pub(crate) use neon::Neon;
pub(crate) use scalar::Scalar;

/// Lanes of a vector.
pub(crate) const LANES: usize = 16;

/// Proof that the processor has an instruction set, and its operations on vectors of 16 f32.
///
/// Methods are inlined into the functions that [`for_each_isa`] compiles for the instruction set. So must be whatever calls
/// them: functions are marked so; closures cannot be, and are not always.
pub(crate) trait Lanes: Copy {
    type V: Copy;
    /// Vectors side by side and rows of an outer-product tile that the registers hold: `ROWS * WIDE` accumulators.
    const WIDE: usize;
    const ROWS: usize;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, from: &[f32; LANES]) -> Self::V;
    fn store(self, v: Self::V, to: &mut [f32; LANES]);
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `a > b ? x : y`.
    fn select_gt(self, a: Self::V, b: Self::V, x: Self::V, y: Self::V) -> Self::V;
    /// The bits of `n`, shifted left by 23, added to the bits of `y`: times two to the power of `n`'s low bits.
    fn add_to_exponent(self, y: Self::V, n: Self::V) -> Self::V;
    /// Lane `i` with `i + 8`, then 4, 2, 1.
    fn sum(self, v: Self::V) -> f32;
    /// The same tree.
    fn largest(self, v: Self::V) -> f32;
    /// # Safety
    /// `from` is readable for 16 half-precision numbers, at any alignment.
    unsafe fn load_f16(self, from: *const u8) -> Self::V;
    /// To nearest, ties to even.
    /// # Safety
    /// `to` is writable for 16 half-precision numbers, at any alignment.
    unsafe fn store_f16(self, v: Self::V, to: *mut u8);
    /// # Safety
    /// `from` is readable for 16 bytes.
    unsafe fn load_i8(self, from: *const u8) -> Self::V;

    /// `a > b ? a : b`: `b` where either is NaN.
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        self.select_gt(a, b, a, b)
    }

    /// `b > a ? a : b`: `b` where either is NaN.
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        self.select_gt(b, a, a, b)
    }
}

/// Defines `fn $name(isa, ...)` that runs `$body(lanes, ...)`, an `#[inline(always)]` function generic over [`Lanes`],
/// compiled for that instruction set.
macro_rules! for_each_isa {
    ($(#[$doc:meta])* $vis:vis fn $name:ident $(<$g:ident: $bound:path>)? ($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? = $body:path;) => {
        $(#[$doc])*
        #[allow(clippy::too_many_arguments)]
        $vis fn $name $(<$g: $bound>)? (isa: $crate::kernels::Isa, $($arg: $ty),*) $(-> $ret)? {
            #[allow(unused_imports)]
            use $crate::kernels::{Isa, ops::lanes};
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            #[allow(clippy::too_many_arguments)]
            fn avx2 $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: this function is compiled for, and only called on, processors with these features.
                $body(unsafe { lanes::Avx2::new() }, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            #[allow(clippy::too_many_arguments)]
            fn avx512 $(<$g: $bound>)? ($($arg: $ty),*) $(-> $ret)? {
                // SAFETY: as above.
                $body(unsafe { lanes::Avx512::new() }, $($arg),*)
            }
            match isa {
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor was asked.
                Isa::Avx512Vnni if isa.is_supported() => unsafe { avx512($($arg),*) },
                #[cfg(target_arch = "x86_64")]
                // SAFETY: the processor was asked.
                Isa::Avx2 | Isa::AvxVnni if isa.is_supported() => unsafe { avx2($($arg),*) },
                #[cfg(target_arch = "aarch64")]
                // SAFETY: NEON is part of the target.
                Isa::Neon | Isa::Dotprod | Isa::I8mm => $body(unsafe { lanes::Neon::new() }, $($arg),*),
                _ => $body(lanes::Scalar, $($arg),*),
            }
        }
    };
}
pub(crate) use for_each_isa;
