//! Plain loops compiled once for each instruction set that has wider vectors.

/// Defines `fn $name(isa, ...)` that runs the `#[inline(always)]` function `$body`, compiled for that instruction set.
///
/// For plain loops: the compiler finds the vectors. It may not contract or reassociate, so the bits are the same in each.
/// The function is unsafe to call if `$body` is, or on a processor without `isa`.
macro_rules! compiled_for_each_isa {
    ($(#[$doc:meta])* unsafe fn $name:ident $(<$($g:ident: $bound:path),*>)? ($($arg:ident: $ty:ty),* $(,)?) = $body:path;) => {
        $(#[$doc])*
        unsafe fn $name $(<$($g: $bound),*>)? (isa: $crate::kernels::Isa, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2 $(<$($g: $bound),*>)? ($($arg: $ty),*) {
                // SAFETY: the caller vouches for what `$body` asks.
                unsafe { $body($($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")]
            unsafe fn avx512 $(<$($g: $bound),*>)? ($($arg: $ty),*) {
                // SAFETY: the caller vouches for what `$body` asks.
                unsafe { $body($($arg),*) }
            }
            // SAFETY: the caller vouches for what `$body` asks, and for the processor.
            unsafe {
                match isa {
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::Isa::Avx2 | $crate::kernels::Isa::AvxVnni => avx2 $(::<$($g),*>)? ($($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    $crate::kernels::Isa::Avx512Vnni => avx512 $(::<$($g),*>)? ($($arg),*),
                    _ => $body($($arg),*),
                }
            }
        }
    };
}
pub(super) use compiled_for_each_isa;
