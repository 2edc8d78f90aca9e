//! Weights in less memory than they take: what is kept, what is read ahead, and from where.
//!
//! [`extents`] lays the matrices out in the order of a pass and cuts them into reads; [`plan`] turns a budget into a
//! placement; [`store`] holds the placement live while reader threads keep the ring full and put rows in the order that
//! the kernels take; [`source`] reads the file; [`memory`] asks the kernel what the process really holds; [`calibrate`]
//! measures the device and forecasts.

pub mod arena;
pub mod calibrate;
mod experts;
pub mod extents;
pub mod figures;
pub mod lease;
pub mod memory;
pub mod pin_order;
pub mod plan;
mod readers;
mod rows;
pub mod source;
mod state;
pub mod store;
#[cfg(test)]
mod store_tests;
mod throttle;

pub use extents::{Extent, ExtentParams, ExtentTable, MatrixSpec, Piece};
pub use figures::{Counters, LayerFigures, LayerState};
pub use lease::Lease;
pub use pin_order::PinPolicy;
pub use plan::{
    Budget, ContextRequest, KvCost, LeastCost, LedgerLine, Placement, Plan, PlanInput, ScratchCost, Shortfall,
};
pub use rows::RowsAt;
pub use store::{PassEnd, ReadFailure, StoreError, StoreOptions, WeightStore};

/// How weights are read from their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SourceKind {
    /// Past the page cache; falls back to `Buffered` where the file system refuses it.
    #[default]
    Direct,
    /// Through the page cache, dropped behind the reader.
    Buffered,
    /// Maps of the file, for comparison.
    Mmap,
}

/// What an extent is kept as once it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Residency {
    #[default]
    Quantized,
    /// Expanded to f32 on arrival: the numeric oracle, up to 8 times the memory.
    Fp32,
}
