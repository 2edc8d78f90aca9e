//! The vectors of x86-64, and kernels compiled for them.

mod avx2;
mod avx512;

use super::super::super::{Activations, Isa};
use super::super::blocks::{with_blocks_32, with_blocks_256};
use super::super::tile::{Kernel, Tile};
use super::operands::Operands;
use super::{blocks32, blocks256, walk};
use crate::gguf::TensorType;

/// Defines `fn $name(type)`: the kernels of every format for vectors `$simd`, compiled with `$features`, that take `$u`
/// positions and `$t` vectors of rows at a time.
macro_rules! kernels {
    ($(#[$doc:meta])* $name:ident, $simd:ty, $features:literal, positions $u:literal, vectors $t:literal) => {
        $(#[$doc])*
        pub(super) fn $name<P: Operands>(ty: TensorType) -> Option<Kernel> {
            #[target_feature(enable = $features)]
            unsafe fn tile<D: walk::Dots>(_: Isa, tile: &Tile<'_>, acts: &Activations) {
                // SAFETY: the caller vouches for the processor, and for what a kernel asks.
                unsafe { walk::tile::<$simd, D, $u, $t>(<$simd>::new(), tile, acts) }
            }
            fn of_32<B: blocks32::Format, P: Operands>() -> Option<Kernel> {
                Some(tile::<blocks32::Products<B, P>>)
            }
            fn of_256<B: blocks256::Format, P: Operands>() -> Option<Kernel> {
                Some(tile::<blocks256::Products<B, P>>)
            }
            with_blocks_32!(ty, of_32(P), else with_blocks_256!(ty, of_256(P), else None))
        }
    };
}

kernels! {
    /// For AVX2, FMA and F16C.
    avx2, avx2::Ymm<false, true>, "avx2,fma,f16c", positions 2, vectors 2
}
kernels! {
    /// The same for words of 16 bits.
    avx2_words, avx2::Ymm<false, false>, "avx2,fma,f16c", positions 4, vectors 2
}
kernels! {
    /// For AVX2, FMA and F16C with the integer dot product.
    avx_vnni, avx2::Ymm<true, false>, "avx2,fma,f16c,avxvnni", positions 4, vectors 2
}
kernels! {
    /// For AVX-512 with the integer dot product.
    avx512_vnni, avx512::Zmm, "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni", positions 4, vectors 2
}
