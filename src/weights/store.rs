//! The weight store: extents pinned, in the ring, or on disk, and the walk of a pass over them.

use std::path::PathBuf;

use crate::kernels::Cancel;

use super::extents::{ExtentError, ExtentParams, ExtentTable, MatrixSpec};
use super::plan::Placement;
use super::{Residency, SourceKind};

/// How a store is opened.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    pub source: SourceKind,
    pub residency: Residency,
    /// Bytes a second, to play a slower disk.
    pub disk_limit: Option<u64>,
    /// Reader threads, 2 to 4 as a rule.
    pub readers: usize,
    /// Sizes of extents; alignment, page and residency are filled in by the store.
    pub extents: ExtentParams,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            source: SourceKind::Direct,
            residency: Residency::Quantized,
            disk_limit: None,
            readers: 3,
            extents: ExtentParams::default(),
        }
    }
}

/// Why a read failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadFailure {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file ends before the bytes it is to hold.
    #[error("the file ends at byte {end}: it was cut while in use")]
    Short { end: u64 },
    #[error("the file is gone or another file took its place")]
    Replaced,
}

/// What can go wrong with a store. After any of these the next pass may begin as usual.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cancelled")]
    Cancelled,
    #[error("{}: cannot open: {source}; check the path and its permissions", path.display())]
    Open { path: PathBuf, source: std::io::Error },
    #[error("{}: reading {bytes} bytes at {offset} failed: {failure}; check the file and the disk, then ask again", path.display())]
    Read { path: PathBuf, offset: u64, bytes: u64, failure: ReadFailure },
    #[error("no memory for a slot of {bytes} bytes: {source}; lower the budget")]
    Memory { bytes: u64, source: std::io::Error },
    #[error(transparent)]
    Extents(#[from] ExtentError),
}

/// What a pass walks over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PassEnd {
    /// The whole table.
    Head,
    /// The blocks alone: no logits are wanted (all but the last batch of a prompt).
    Blocks,
}

/// Extents in memory, held for a kernel. Dropping it gives them back (on errors and cancels too).
#[derive(Debug)]
pub struct Lease {}

impl Lease {
    /// Extent ids and their bytes, laid out as their pieces say.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        std::iter::empty()
    }

    /// How many of the extents asked for are here: at least 1, in the order asked.
    pub fn len(&self) -> usize {
        0
    }

    pub fn is_empty(&self) -> bool {
        true
    }
}

/// What one layer's weights are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LayerState {
    #[default]
    Cold,
    /// Being read or waiting in the ring.
    Loading,
    /// Under the kernels now.
    Computing,
}

/// Figures of one layer; the head is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LayerFigures {
    pub state: LayerState,
    pub bytes: u64,
    pub pinned_bytes: u64,
    /// The last pass.
    pub read_us: u32,
    pub wait_us: u32,
    pub compute_us: u32,
    /// Means over all passes.
    pub mean_read_us: u32,
    pub mean_wait_us: u32,
    pub mean_compute_us: u32,
}

/// Figures of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Weight bytes read from the source since the store was opened, alignment slack included.
    pub read_bytes: u64,
    /// Embedding rows read from the source.
    pub row_bytes: u64,
    pub passes: u64,
    /// Bytes read for the pass under way, and for the last whole pass. Bytes count for the pass that uses them.
    pub pass_streamed_bytes: u64,
    pub last_pass_streamed_bytes: u64,
    /// Sum over all passes.
    pub streamed_bytes: u64,
    /// Time during which at least one read was under way.
    pub disk_busy_us: u64,
    /// Time the engine waited for weights.
    pub wait_us: u64,
    pub compute_us: u64,
    pub pinned_bytes: u64,
    pub expert_bytes: u64,
    /// Slots in the ring or under way.
    pub ring_bytes: u64,
    /// Peak of all slots together.
    pub peak_slot_bytes: u64,
    /// Routed expert extents, and those among them that were in memory.
    pub expert_uses: u64,
    pub expert_hits: u64,
    /// Experts wholly in memory.
    pub experts_resident: u32,
}

/// The weights of one model.
#[derive(Debug)]
pub struct WeightStore {
    table: ExtentTable,
    source: SourceKind,
}

impl WeightStore {
    /// Opens the parts of a model's file (a path for each part, in order) and lays out `matrices`, which are in the order
    /// of a pass. Nothing is read until [`Self::apply`] has given it memory.
    pub fn open(paths: &[PathBuf], matrices: &[MatrixSpec], options: StoreOptions) -> Result<Self, StoreError> {
        let _ = paths;
        Ok(Self { table: ExtentTable::build(matrices, options.extents)?, source: options.source })
    }

    pub fn table(&self) -> &ExtentTable {
        &self.table
    }

    /// The source in use: `Buffered` where the file system refused `Direct`.
    pub fn source(&self) -> SourceKind {
        self.source
    }

    /// Takes on a placement, both ways, live. Slots over the target are unmapped before this returns; those under way as
    /// soon as their read ends.
    pub fn apply(&mut self, _placement: &Placement) {}

    /// Begins a walk over the table. `positions` are computed in it (for figures alone).
    pub fn begin_pass(&mut self, _positions: usize, _end: PassEnd) {}

    /// The longest beginning of `ids` that is in memory, at least one extent; waits for the first.
    /// Ids come in the order of the table, experts in the order given to [`Self::route`].
    pub fn acquire(&mut self, _ids: impl IntoIterator<Item = u32>, _cancel: &Cancel) -> Result<Lease, StoreError> {
        Err(StoreError::Cancelled)
    }

    /// Gives a lease back; extents that the placement keeps stay, the others' slots are reused.
    pub fn release(&mut self, lease: Lease, _compute_us: u32) {
        let _ = lease;
    }

    /// Experts chosen by the router: these extents are read next, in this order.
    pub fn route(&mut self, _ids: &[u32]) {}

    /// Rows of a matrix that is not in the table (embeddings): `out` gets `rows.len()` rows of `row_bytes`, in the order
    /// asked; `offset` is where row 0 begins.
    pub fn read_rows(
        &mut self,
        _part: u16,
        _offset: u64,
        _row_bytes: usize,
        _rows: &[u32],
        _out: &mut [u8],
        _cancel: &Cancel,
    ) -> Result<(), StoreError> {
        Err(StoreError::Cancelled)
    }

    /// Ends a walk, whole or broken off. Reading ahead goes on into the next one, also while idle.
    pub fn end_pass(&mut self) {}

    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Figures of every layer, the head last.
    pub fn layer_figures(&self, out: &mut Vec<LayerFigures>) {
        out.clear();
    }
}
