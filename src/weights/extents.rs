//! The extent table: the matrices in the order in which a pass uses them, cut into pieces that are read whole.
//!
//! Real files store tensors in any order (layers 0, 1, 10, 11 ...; `ffn_down` before the attention; the head first).
//! The table follows the pass instead. An extent is one contiguous read of whole rows, a multiple of 16 of each matrix
//! (but for a matrix's last rows), all of one stage. Its size trades the memory that a ring of extents takes against the
//! efficiency of the disk.

use std::ops::Range;

use crate::gguf::TensorType;

use super::Residency;
use super::pin_order::{PinOrder, PinPolicy};

/// Rows that kernels take together; every piece begins at a multiple of this.
pub const ROW_GROUP: u64 = 16;
/// Gaps up to this between two matrices are read along (tensors are padded to the file's alignment).
const GAP_BYTES: u64 = 512;

/// One matrix, or one expert's slice of a stack of matrices; given in the order in which a pass uses them.
#[derive(Clone, Debug)]
pub struct MatrixSpec {
    pub name: String,
    pub ty: TensorType,
    /// Elements of a row.
    pub k: usize,
    pub rows: usize,
    /// Which part of a split file, and where the matrix begins in it.
    pub part: u16,
    pub offset: u64,
    /// The block, counted from 0; the head is the number of blocks.
    pub layer: u16,
    /// Matrices of one stage share their input and may share a dispatch. Stages ascend in the order of execution, from 0.
    pub stage: u32,
    /// Set where the matrix is read only when the router has chosen this expert.
    pub expert: Option<u16>,
}

/// How the table is cut.
#[derive(Clone, Copy, Debug)]
pub struct ExtentParams {
    /// An extent is about a layer's bytes through this ...
    pub extents_per_layer: u64,
    /// ... within these.
    pub least_bytes: u64,
    pub most_bytes: u64,
    /// Reads begin and end at multiples of this (direct I/O, or the page of a map); what is read on top is counted.
    pub alignment: u64,
    /// The memory page.
    pub page: u64,
    pub residency: Residency,
    pub pins: PinPolicy,
}

impl Default for ExtentParams {
    fn default() -> Self {
        Self {
            extents_per_layer: 8,
            least_bytes: 64 << 10,
            most_bytes: 1 << 20,
            alignment: 4096,
            page: 4096,
            residency: Residency::Quantized,
            pins: PinPolicy::Spread,
        }
    }
}

/// What makes a table impossible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExtentError {
    #[error("{name}: a row of {k} elements is not whole blocks of {ty}; the file is damaged")]
    RowLength { name: String, k: usize, ty: TensorType },
    #[error("{name}: {rows} rows of {row_bytes} bytes are more than this program can address")]
    TooLarge { name: String, rows: usize, row_bytes: u64 },
    #[error("{name}: stage {stage} comes after stage {before}; stages must ascend")]
    StageOrder { name: String, stage: u32, before: u32 },
}

/// What the table keeps of a matrix.
#[derive(Clone, Copy, Debug)]
pub struct Matrix {
    /// The type in the file.
    pub file_type: TensorType,
    /// The type in memory: the file's, or F32 where extents are expanded on arrival.
    pub ty: TensorType,
    pub k: u32,
    pub rows: u32,
    /// Bytes of a row in the file and in memory.
    pub file_row_bytes: u32,
    pub row_bytes: u32,
    pub part: u16,
    pub layer: u16,
    pub offset: u64,
}

/// Rows of one matrix within an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Index into the matrices the table was built from.
    pub matrix: u32,
    pub first_row: u32,
    pub rows: u32,
    /// Where the rows begin in the extent's memory, and how many bytes they are there.
    pub offset: u32,
    pub bytes: u32,
    /// Where they begin in the extent's bytes of the file.
    pub file_offset: u32,
}

/// One contiguous read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Where it begins in its part of the file.
    pub offset: u64,
    /// Bytes in the file.
    pub bytes: u32,
    /// Bytes in memory, as a lease hands them out.
    pub memory_bytes: u32,
    pub stage: u32,
    pub part: u16,
    pub layer: u16,
    pub expert: Option<u16>,
    first_piece: u32,
    pieces: u32,
}

/// All extents in the order of a pass.
#[derive(Debug)]
pub struct ExtentTable {
    matrices: Vec<Matrix>,
    extents: Vec<Extent>,
    pieces: Vec<Piece>,
    /// First extent of each stage, and one past the last.
    stages: Vec<u32>,
    /// First extent of each layer, and one past the last.
    layers: Vec<u32>,
    params: ExtentParams,
    slot_capacity: u64,
    read_bytes: u64,
    always_file_bytes: u64,
    all_file_bytes: u64,
    experts_per_layer: u16,
    pin_order: PinOrder,
}

impl ExtentTable {
    /// Lays `specs` out and cuts them.
    pub fn build(specs: &[MatrixSpec], params: ExtentParams) -> Result<Self, ExtentError> {
        let matrices = specs.iter().map(|spec| matrix(spec, params.residency)).collect::<Result<Vec<_>, _>>()?;
        if let Some(pair) = specs.windows(2).find(|pair| pair[1].stage < pair[0].stage) {
            let [before, after] = [&pair[0], &pair[1]];
            return Err(ExtentError::StageOrder { name: after.name.clone(), stage: after.stage, before: before.stage });
        }
        let target = target_bytes(specs, &matrices, &params);
        let mut order: Vec<u32> = (0..specs.len() as u32).collect();
        order.sort_by_key(|&m| {
            let spec = &specs[m as usize];
            (spec.stage, spec.expert, spec.part, spec.offset)
        });

        let mut cutter =
            Cutter { specs, matrices: &matrices, residency: params.residency, extents: Vec::new(), pieces: Vec::new() };
        let mut start = 0;
        while start < order.len() {
            let mut end = start + 1;
            while end < order.len() && adjacent(specs, &matrices, order[end - 1], order[end]) {
                end += 1;
            }
            cutter.cut(&order[start..end], target);
            start = end;
        }
        let Cutter { extents, pieces, .. } = cutter;

        let stages = first_of_each(&extents, |extent| extent.stage);
        let layers = first_of_each(&extents, |extent| u32::from(extent.layer));
        let experts_per_layer = extents.iter().filter_map(|extent| extent.expert).max().map_or(0, |most| most + 1);
        let file_bytes = |want_always: bool| -> u64 {
            extents.iter().filter(|e| !want_always || e.expert.is_none()).map(|e| u64::from(e.bytes)).sum()
        };
        let (always_file_bytes, all_file_bytes) = (file_bytes(true), file_bytes(false));
        let pin_order = PinOrder::new(&extents, |extent| slot_bytes(extent, &params), params.pins);
        let slot_capacity = extents.iter().map(|extent| slot_bytes(extent, &params)).max().unwrap_or(0);
        let read_bytes = extents.iter().map(|extent| span(extent, params.alignment).1).max().unwrap_or(0);
        Ok(Self {
            matrices,
            extents,
            pieces,
            stages,
            layers,
            params,
            slot_capacity,
            read_bytes,
            always_file_bytes,
            all_file_bytes,
            experts_per_layer,
            pin_order,
        })
    }

    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    pub fn len(&self) -> u32 {
        self.extents.len() as u32
    }

    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    pub fn extent(&self, id: u32) -> &Extent {
        &self.extents[id as usize]
    }

    /// The rows that an extent holds.
    pub fn pieces(&self, id: u32) -> &[Piece] {
        let extent = self.extent(id);
        &self.pieces[extent.first_piece as usize..(extent.first_piece + extent.pieces) as usize]
    }

    pub fn matrices(&self) -> &[Matrix] {
        &self.matrices
    }

    pub fn matrix(&self, matrix: u32) -> &Matrix {
        &self.matrices[matrix as usize]
    }

    pub fn stages(&self) -> u32 {
        self.stages.len() as u32 - 1
    }

    /// Layers, the head counted as one.
    pub fn layers(&self) -> usize {
        self.layers.len() - 1
    }

    /// Every extent of a stage, experts included.
    pub fn stage_extents(&self, stage: u32) -> Range<u32> {
        self.stages[stage as usize]..self.stages[stage as usize + 1]
    }

    /// Every extent of a layer, experts included.
    pub fn layer_extents(&self, layer: usize) -> Range<u32> {
        self.layers[layer]..self.layers[layer + 1]
    }

    /// The extents of one expert in a stage.
    pub fn expert_extents(&self, stage: u32, expert: u16) -> Range<u32> {
        let range = self.stage_extents(stage);
        let extents = &self.extents[range.start as usize..range.end as usize];
        let first = extents.partition_point(|extent| extent.expert < Some(expert)) as u32;
        let end = extents.partition_point(|extent| extent.expert <= Some(expert)) as u32;
        range.start + first..range.start + end
    }

    /// Experts of a layer; 0 in a dense model.
    pub fn experts_per_layer(&self) -> u16 {
        self.experts_per_layer
    }

    /// First extent of the last layer, which is the head.
    pub fn head_start(&self) -> u32 {
        self.layers.len().checked_sub(2).map_or(0, |head| self.layers[head])
    }

    /// Memory that an extent takes as a pin.
    pub fn pin_bytes(&self, id: u32) -> u64 {
        slot_bytes(self.extent(id), &self.params)
    }

    /// Memory of one slot of the ring; where extents are expanded, with the buffer they are read into.
    pub fn slot_bytes(&self) -> u64 {
        match self.params.residency {
            Residency::Quantized => self.slot_capacity,
            Residency::Fp32 => self.slot_capacity + self.read_bytes,
        }
    }

    /// The length of a slot into which any extent fits.
    pub fn slot_capacity(&self) -> u64 {
        self.slot_capacity
    }

    /// The longest single read.
    pub fn longest_read_bytes(&self) -> u64 {
        self.read_bytes
    }

    /// Where the read of an extent begins in its part, and its length, both aligned.
    pub fn read_span(&self, id: u32) -> (u64, u64) {
        span(self.extent(id), self.params.alignment)
    }

    /// File bytes of all extents that every pass needs.
    pub fn always_file_bytes(&self) -> u64 {
        self.always_file_bytes
    }

    /// File bytes of all extents.
    pub fn all_file_bytes(&self) -> u64 {
        self.all_file_bytes
    }

    pub fn params(&self) -> &ExtentParams {
        &self.params
    }

    pub fn pin_order(&self) -> &PinOrder {
        &self.pin_order
    }
}

fn matrix(spec: &MatrixSpec, residency: Residency) -> Result<Matrix, ExtentError> {
    let row_bytes = spec.ty.row_bytes(spec.k as u64).ok_or_else(|| ExtentError::RowLength {
        name: spec.name.clone(),
        k: spec.k,
        ty: spec.ty,
    })?;
    let (ty, memory_row_bytes) = match residency {
        Residency::Quantized => (spec.ty, row_bytes),
        Residency::Fp32 => (TensorType::F32, spec.k as u64 * 4),
    };
    let too_large = || ExtentError::TooLarge { name: spec.name.clone(), rows: spec.rows, row_bytes };
    // A group of rows is the least extent; its length must be a u32 in memory.
    u32::try_from(memory_row_bytes.max(row_bytes).saturating_mul(2 * ROW_GROUP)).map_err(|_| too_large())?;
    (spec.rows as u64)
        .checked_mul(row_bytes)
        .and_then(|bytes| bytes.checked_add(spec.offset))
        .filter(|end| *end < i64::MAX as u64)
        .ok_or_else(too_large)?;
    Ok(Matrix {
        file_type: spec.ty,
        ty,
        k: u32::try_from(spec.k).map_err(|_| too_large())?,
        rows: u32::try_from(spec.rows).map_err(|_| too_large())?,
        file_row_bytes: row_bytes as u32,
        row_bytes: memory_row_bytes as u32,
        part: spec.part,
        layer: spec.layer,
        offset: spec.offset,
    })
}

/// About an eighth of the largest block. The head takes no part: a table whose extents follow the vocabulary would need
/// a larger ring for the same layers.
fn target_bytes(specs: &[MatrixSpec], matrices: &[Matrix], params: &ExtentParams) -> u64 {
    let head = specs.iter().map(|spec| spec.layer).max().unwrap_or(0);
    let mut bytes = vec![0u64; usize::from(head) + 1];
    for (spec, matrix) in specs.iter().zip(matrices) {
        bytes[usize::from(spec.layer)] += u64::from(matrix.rows) * u64::from(matrix.file_row_bytes);
    }
    let block = bytes[..usize::from(head)].iter().max().copied().unwrap_or(bytes[0]);
    (block / params.extents_per_layer.max(1)).clamp(params.least_bytes, params.most_bytes.max(params.least_bytes))
}

fn end_of(spec: &MatrixSpec, matrix: &Matrix) -> u64 {
    spec.offset + u64::from(matrix.rows) * u64::from(matrix.file_row_bytes)
}

/// Whether `b` follows `a` in the file, in the same stage and expert.
fn adjacent(specs: &[MatrixSpec], matrices: &[Matrix], a: u32, b: u32) -> bool {
    let (first, second) = (&specs[a as usize], &specs[b as usize]);
    let end = end_of(first, &matrices[a as usize]);
    first.stage == second.stage
        && first.expert == second.expert
        && first.layer == second.layer
        && first.part == second.part
        && second.offset.checked_sub(end).is_some_and(|gap| gap <= GAP_BYTES)
}

struct Cutter<'a> {
    specs: &'a [MatrixSpec],
    matrices: &'a [Matrix],
    residency: Residency,
    extents: Vec<Extent>,
    pieces: Vec<Piece>,
}

impl Cutter<'_> {
    /// Cuts a run of adjacent matrices into extents of nearly one size, `target` at most where rows allow it.
    fn cut(&mut self, run: &[u32], target: u64) {
        let (Some(&first), Some(&last)) = (run.first(), run.last()) else { return };
        let start = self.specs[first as usize].offset;
        let end = end_of(&self.specs[last as usize], &self.matrices[last as usize]);
        let parts = (end - start).div_ceil(target).max(1);
        let boundary = |part: u64| start + ((end - start) as u128 * part as u128 / parts as u128) as u64;

        let mut part = 1;
        let mut open: Option<Extent> = None;
        for &index in run {
            let (spec, matrix) = (&self.specs[index as usize], &self.matrices[index as usize]);
            let (rows, row_bytes) = (u64::from(matrix.rows), u64::from(matrix.file_row_bytes));
            let mut row = 0;
            while row < rows {
                let at = spec.offset + row * row_bytes;
                // As many whole groups as come nearest to the boundary, one at least.
                let group = ROW_GROUP * row_bytes;
                let wanted = (boundary(part).saturating_sub(at) + group / 2) / group.max(1) * ROW_GROUP;
                let take = if part == parts { rows - row } else { wanted.clamp(ROW_GROUP, rows - row + ROW_GROUP) };
                let take = take.min(rows - row);
                self.extend(&mut open, index, row, take);
                row += take;
                if part < parts && spec.offset + row * row_bytes + group / 2 >= boundary(part) {
                    self.extents.extend(open.take());
                    while part < parts && spec.offset + row * row_bytes + group / 2 >= boundary(part) {
                        part += 1;
                    }
                }
            }
        }
        self.extents.extend(open.take());
    }

    fn extend(&mut self, open: &mut Option<Extent>, index: u32, row: u64, rows: u64) {
        let (spec, matrix) = (&self.specs[index as usize], &self.matrices[index as usize]);
        let at = spec.offset + row * u64::from(matrix.file_row_bytes);
        let extent = open.get_or_insert(Extent {
            offset: at,
            bytes: 0,
            memory_bytes: 0,
            stage: spec.stage,
            part: spec.part,
            layer: spec.layer,
            expert: spec.expert,
            first_piece: self.pieces.len() as u32,
            pieces: 0,
        });
        let file_offset = (at - extent.offset) as u32;
        // Rows kept as they are lie as in the file; expanded rows lie one after another.
        let offset = match self.residency {
            Residency::Quantized => file_offset,
            Residency::Fp32 => extent.memory_bytes,
        };
        let bytes = rows as u32 * matrix.row_bytes;
        self.pieces.push(Piece { matrix: index, first_row: row as u32, rows: rows as u32, offset, bytes, file_offset });
        extent.pieces += 1;
        extent.bytes = file_offset + rows as u32 * matrix.file_row_bytes;
        extent.memory_bytes = offset + bytes;
    }
}

/// The aligned read that covers an extent.
fn span(extent: &Extent, alignment: u64) -> (u64, u64) {
    let start = extent.offset / alignment * alignment;
    let end = (extent.offset + u64::from(extent.bytes)).next_multiple_of(alignment);
    (start, end - start)
}

/// Memory of a slot that holds exactly this extent.
fn slot_bytes(extent: &Extent, params: &ExtentParams) -> u64 {
    match params.residency {
        Residency::Quantized => span(extent, params.alignment).1.next_multiple_of(params.page),
        Residency::Fp32 => u64::from(extent.memory_bytes).next_multiple_of(params.page),
    }
}

/// For keys that ascend from 0: the first index of each, and the length.
fn first_of_each(extents: &[Extent], key: impl Fn(&Extent) -> u32) -> Vec<u32> {
    let mut firsts = Vec::new();
    for (index, extent) in extents.iter().enumerate() {
        while firsts.len() <= key(extent) as usize {
            firsts.push(index as u32);
        }
    }
    firsts.push(extents.len() as u32);
    firsts
}

#[cfg(test)]
pub(super) mod tests;
