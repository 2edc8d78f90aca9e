//! Products in 8-bit integers with rows in the lanes of vectors.
//!
//! One vector register holds four bytes of each of as many rows as it has 32-bit lanes, so that a row's products are summed
//! in its lane and no sum goes across lanes. Rows come interleaved, so that a load fills a register. The formats
//! ([`blocks32`], [`blocks256`]) say how packed rows become such vectors, in terms of the operations of [`lanes::Lanes`];
//! an instruction set says what the operations are. [`operands`] has the forms in which activations come: planes of bytes,
//! or words where two products of 16 bits are quicker than four of 8.
//! One position and many are the same code: many keep their accumulators in the first-level cache.
//!
//! [`scalar`] defines the results.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod blocks256;
mod blocks32;
mod lanes;
mod operands;
mod scalar;
mod walk;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "x86_64")]
use super::super::planes::Words;
use super::super::planes::{One, Two};
use super::super::{Activations, Arithmetic, Isa, Kernels};
use super::tile::Kernel;
use crate::gguf::TensorType;
use operands::Operands;

/// Rows in a vector of an instruction set; 1 where the kernel is in portable code.
pub(super) fn lanes(isa: Isa) -> usize {
    match isa {
        Isa::Scalar => 1,
        Isa::Avx2 | Isa::AvxVnni => 8,
        Isa::Avx512Vnni => 16,
        Isa::Neon | Isa::Dotprod | Isa::I8mm => 4,
    }
}

/// The kernel for a weight type that is multiplied in integers, and for activations like these.
pub(super) fn kernel(kernels: Kernels, acts: &Activations, ty: TensorType) -> Option<Kernel> {
    match (kernels.isa, acts.has_words()) {
        #[cfg(target_arch = "x86_64")]
        (Isa::Avx2, true) => x86::avx2_words::<Words>(ty),
        (isa, _) if kernels.arithmetic == Arithmetic::Fast => of_planes::<One>(isa, ty),
        (isa, _) => of_planes::<Two>(isa, ty),
    }
}

/// The kernel for activations in planes.
fn of_planes<P: Operands>(isa: Isa, ty: TensorType) -> Option<Kernel> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => x86::avx2::<P>(ty),
        #[cfg(target_arch = "x86_64")]
        Isa::AvxVnni => x86::avx_vnni::<P>(ty),
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512Vnni => x86::avx512_vnni::<P>(ty),
        #[cfg(target_arch = "aarch64")]
        Isa::Neon => aarch64::neon::<P>(ty),
        #[cfg(target_arch = "aarch64")]
        Isa::Dotprod => aarch64::dotprod::<P>(ty),
        #[cfg(target_arch = "aarch64")]
        Isa::I8mm => aarch64::i8mm::<P>(ty),
        _ => scalar::kernel::<P>(ty),
    }
}
