//! Everything that is not a matrix: norms, activation functions, RoPE, attention, expert routing.
//!
//! Defined to the operation: reductions are 16 partial sums and a fixed tree, transcendental functions are polynomials of
//! our own, so every instruction set, thread count and batch gives the same bits. Buffers are rows of equal length, dense.

pub(crate) mod lanes;

pub mod attention;
mod convolution;
mod elementwise;
pub mod kv_page;
pub mod math;
mod norm;
pub mod rope;
mod softmax;

use super::{Isa, Pool};

pub use attention::{AttentionScratch, AttentionSpec};
pub use kv_page::{KvElement, KvLayout, PAGE_POSITIONS};
pub use rope::{Pairing, RopeParams, RopeTable, Yarn};

/// The operations, on one instruction set and one pool. Work too small to share stays on the calling thread.
#[derive(Clone, Copy)]
pub struct Ops<'a> {
    pub isa: Isa,
    pub pool: &'a Pool,
}

/// Elements that are worth the dispatch to another thread.
const SHARE: usize = 8192;

impl<'a> Ops<'a> {
    pub fn new(isa: Isa, pool: &'a Pool) -> Self {
        Self { isa, pool }
    }

    /// Shares the rows of `data` among the threads, where there are enough of them.
    fn for_rows(self, data: &mut [f32], row_len: usize, job: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        assert!(row_len > 0 && data.len().is_multiple_of(row_len), "{} elements are no rows of {row_len}", data.len());
        if data.len() < 2 * SHARE {
            job(0, data);
        } else {
            self.pool.for_each_row(data, row_len, SHARE.div_ceil(row_len), job);
        }
    }

    /// Shares a flat `data` among the threads; `job(start, part)`.
    fn for_parts(self, data: &mut [f32], job: &(dyn Fn(usize, &mut [f32]) + Sync)) {
        if data.len() < 2 * SHARE {
            return job(0, data);
        }
        let (len, shared) = (data.len(), super::disjoint::Disjoint::new(data));
        self.pool.for_each_chunk(len, SHARE, &|_, range| {
            // SAFETY: chunks do not overlap.
            job(range.start, unsafe { shared.range(range) });
        });
    }
}

#[cfg(test)]
mod testing;
