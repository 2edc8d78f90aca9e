//! Arithmetic: the thread pool, matrix products, and every operation between them.
//!
//! All SIMD `unsafe` of the crate lives here. Whatever is computed gives the same bits on every instruction set and with
//! any number of threads.

mod activations;
pub mod cancel;
mod cores;
mod disjoint;
mod gate;
pub mod isa;
mod matmul;
mod multiversion;
pub mod ops;
mod planes;
pub mod pool;
mod prefetch;

pub use activations::Activations;
pub use cancel::{Cancel, CancelHandle, Cancelled};
pub use isa::Isa;
pub use matmul::interleave::{Groups, Interleave};
pub use matmul::{MatrixOut, Positions, Task, matmul};
pub use ops::Ops;
pub use pool::Pool;

/// How a product of quantised weights with activations is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arithmetic {
    /// Weights are decoded to f32 and multiplied with f32 activations: the oracle.
    Exact,
    /// Activations are rounded to 16 bits a block, in two planes of 8, and blocks multiplied in integers.
    Int8,
    /// The same with one plane: half the multiplications, and 8 bits of activations.
    Fast,
}

/// Which kernels compute: every combination gives, for its arithmetic, the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels {
    pub isa: Isa,
    pub arithmetic: Arithmetic,
}

impl Kernels {
    /// The best kernels of this processor for an arithmetic.
    pub fn new(arithmetic: Arithmetic) -> Self {
        Self { isa: Isa::detect(), arithmetic }
    }
}
