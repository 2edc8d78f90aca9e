//! Arithmetic: the thread pool, matrix products, and every operation between them.
//!
//! All SIMD `unsafe` of the crate lives here. Whatever is computed gives the same bits on every instruction set and with
//! any number of threads.

pub mod cancel;
mod cores;
pub mod isa;
pub mod pool;

pub use cancel::{Cancel, CancelHandle, Cancelled};
pub use isa::Isa;
pub use pool::Pool;
