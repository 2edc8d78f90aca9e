//! The vectors of aarch64, and kernels compiled for them.

mod neon;
mod products;

use super::super::super::{Activations, Isa};
use super::super::blocks::{with_blocks_32, with_blocks_256};
use super::super::tile::{Kernel, Tile};
use super::operands::Operands;
use super::{blocks32, blocks256, walk};
use crate::gguf::TensorType;
use neon::Neon;
use products::{Long, Matrix, Sdot};

/// Defines `fn $name(type)`: the kernels of every format with products by `$products`, compiled with `$features`, that take
/// `$u` positions and `$t` vectors of rows at a time.
macro_rules! kernels {
    ($(#[$doc:meta])* $name:ident, $products:ty, $features:literal, positions $u:literal, vectors $t:literal) => {
        $(#[$doc])*
        pub(super) fn $name<P: Operands>(ty: TensorType) -> Option<Kernel> {
            #[target_feature(enable = $features)]
            unsafe fn tile<D: walk::Dots>(_: Isa, tile: &Tile<'_>, acts: &Activations) {
                // SAFETY: the caller vouches for the processor, and for what a kernel asks.
                unsafe { walk::tile::<Neon<$products>, D, $u, $t>(Neon::new(), tile, acts) }
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
    /// For every aarch64 processor (Cortex-A72).
    neon, Long, "neon", positions 2, vectors 1
}
kernels! {
    /// With the integer dot product (Cortex-A76).
    dotprod, Sdot, "neon,dotprod", positions 4, vectors 2
}
kernels! {
    /// With the integer matrix product.
    i8mm, Matrix, "neon,dotprod,i8mm", positions 4, vectors 2
}
