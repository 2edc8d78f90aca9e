//! Matrix products: rows of quantised weights, as they stand in the file, times activations.

#![allow(clippy::needless_range_loop, reason = "lanes and rows are indices")]

mod blocks;
mod float;
mod int8;
pub mod interleave;
mod split;
mod tile;

use std::cell::RefCell;
use std::ops::Range;

use super::activations::Form;
use super::{Activations, Cancel, Cancelled, Kernels, Pool};
use crate::gguf::TensorType;
use interleave::{Groups, Interleave};
use split::{Portion, Split};
pub use tile::Positions;
use tile::{Kernel, Out, TILE_POSITIONS, Tile};

/// Where results go: output `r` of position `p` to `data[p * row_stride + r]`.
pub struct MatrixOut<'a> {
    /// (positions, row_stride)
    pub data: &'a mut [f32],
    pub row_stride: usize,
}

/// Some rows of one matrix: `y[p][first_row + r] = sum over k of weights[r][k] * x[p][k]`.
pub struct Task<'a> {
    /// Index into the outputs.
    pub out: usize,
    /// Where the results of the first row go in each position's outputs.
    pub first_row: usize,
    pub rows: usize,
    pub ty: TensorType,
    /// (rows, row bytes): exactly these rows; nothing outside is read.
    pub weights: &'a [u8],
    /// Whether the whole groups of rows are interleaved; without, they are while they are multiplied, which takes time.
    pub interleaved: bool,
    /// The positions to multiply, if not all: those of one head, or of one expert.
    pub positions: Option<Positions>,
}

/// Bytes of weights between two looks at the cancel token when there is one position.
const STRIDE_BYTES: usize = 1 << 20;

/// Computes all tasks, which share the activations, in one dispatch over the pool.
///
/// # Panics
/// On a processor without `kernels.isa`; when tasks do not fit the activations or the outputs, come interleaved where these
/// kernels take rows as they are, or two of them write the same place.
pub fn matmul(
    kernels: Kernels,
    pool: &Pool,
    acts: &Activations,
    outs: &mut [MatrixOut],
    tasks: &[Task],
    cancel: &Cancel,
) -> Result<(), Cancelled> {
    cancel.check()?;
    assert!(kernels.isa.is_supported(), "this processor has no {}", kernels.isa.name());
    for task in tasks {
        check(kernels, acts, outs, task);
    }
    check_apart(tasks);
    let outs = OutPointers::new(outs);
    // In blocks of two lane groups while many positions share the unpacking of weights.
    let group_rows = if acts.positions > 1 { 32 } else { 16 };
    let split = Split::new(tasks, group_rows, pool.threads(), acts.positions);
    pool.share(&|thread| {
        split.for_each(thread, |portion| {
            // SAFETY: `check` and `check_apart` hold for the tasks, and portions do not overlap.
            unsafe { compute(kernels, acts, &tasks[portion.task], &portion, &outs, group_rows, cancel) }
        });
    });
    cancel.check()
}

/// Rows that are interleaved together where they come as they are in the file.
const ROWS_AT_ONCE: usize = 32;

thread_local! {
    /// Rows that a thread has interleaved for a product.
    static GROUPS: RefCell<Groups> = const { RefCell::new(Groups::new()) };
}

/// Rows cut into steps; a rest shorter than a step goes with the last one.
fn steps(rows: Range<usize>, step: usize) -> impl Iterator<Item = Range<usize>> {
    let count = if rows.is_empty() { 0 } else { (rows.len() / step).max(1) };
    (0..count).map(move |i| {
        let start = rows.start + i * step;
        start..if i + 1 == count { rows.end } else { start + step }
    })
}

/// Computes a portion; returns false when cancelled.
///
/// # Safety
/// The task has been checked, and no other thread computes these rows.
unsafe fn compute(
    kernels: Kernels,
    acts: &Activations,
    task: &Task,
    portion: &Portion,
    outs: &OutPointers,
    group_rows: usize,
    cancel: &Cancel,
) -> bool {
    let row_bytes = task.weights.len() / task.rows;
    let positions = task.positions.unwrap_or(Positions { first: 0, step: 1, count: acts.positions });
    let Some(kernel) = kernel(kernels, acts, task.ty) else { return false };
    let out = outs.get(task.out);
    // Returns false when cancelled.
    let multiply = |rows: Range<usize>, weights: &[u8]| {
        for from in (0..positions.count).step_by(TILE_POSITIONS) {
            if cancel.is_cancelled() {
                return false;
            }
            let tile = Tile {
                ty: task.ty,
                weights,
                row_bytes,
                rows: rows.len(),
                positions: positions.part(from, TILE_POSITIONS.min(positions.count - from)),
                // SAFETY: the task's rows lie inside the output.
                out: Out { data: unsafe { out.data.add(task.first_row + rows.start) }, stride: out.stride },
            };
            // SAFETY: the tile is part of a task that was checked, and this thread's own; `Kernels` hold what was detected.
            unsafe { kernel(kernels.isa, &tile, acts) };
        }
        true
    };
    // Rows up to here are in the order that the kernel takes.
    let interleave = Interleave::of(kernels, task.ty);
    let ready = match interleave {
        None => task.rows,
        Some(interleave) if task.interleaved => task.rows / interleave.lanes() * interleave.lanes(),
        Some(_) => 0,
    };
    let ready = ready.clamp(portion.rows.start, portion.rows.end);
    let step = if positions.count > 1 { group_rows } else { (STRIDE_BYTES / row_bytes).next_multiple_of(group_rows) };
    for rows in steps(portion.rows.start..ready, step) {
        if !multiply(rows.clone(), &task.weights[rows.start * row_bytes..rows.end * row_bytes]) {
            return false;
        }
    }
    let Some(interleave) = interleave.filter(|_| ready < portion.rows.end) else { return true };
    GROUPS.with_borrow_mut(|groups| {
        (ready..portion.rows.end).step_by(ROWS_AT_ONCE).all(|first| {
            let rows = first..portion.rows.end.min(first + ROWS_AT_ONCE);
            let bytes = rows.len().next_multiple_of(interleave.lanes()) * row_bytes;
            let groups = groups.room(bytes);
            interleave.copy(&task.weights[rows.start * row_bytes..rows.end * row_bytes], row_bytes, groups);
            multiply(rows, groups)
        })
    })
}

/// The kernel for a type and activations like these, if it is one of weights.
fn kernel(kernels: Kernels, acts: &Activations, ty: TensorType) -> Option<Kernel> {
    match Form::of(kernels.arithmetic, ty) {
        Form::F32 => Some(float::kernel(ty)),
        Form::Q32 | Form::Q256 => int8::kernel(kernels, acts, ty),
    }
}

/// Asserts that a task fits the activations and its output.
fn check(kernels: Kernels, acts: &Activations, outs: &[MatrixOut], task: &Task) {
    let row_bytes = task.ty.row_bytes(acts.k as u64);
    let bytes = row_bytes.and_then(|bytes| bytes.checked_mul(task.rows as u64));
    assert_eq!(bytes, Some(task.weights.len() as u64), "{} rows of {} {}", task.rows, acts.k, task.ty);
    assert!(!task.interleaved || Interleave::of(kernels, task.ty).is_some(), "{} is never interleaved", task.ty);
    assert!(acts.has(Form::of(kernels.arithmetic, task.ty)), "activations are not prepared for {}", task.ty);
    let out = &outs[task.out];
    assert!(task.first_row + task.rows <= out.row_stride, "output rows");
    assert!(acts.positions * out.row_stride <= out.data.len(), "output positions");
    if let Some(positions) = task.positions {
        assert!(positions.step > 0 && positions.end() <= acts.positions, "positions of the activations");
    }
}

/// Asserts that no two tasks write the same place: threads may compute them at the same time.
fn check_apart(tasks: &[Task]) {
    for (i, a) in tasks.iter().enumerate() {
        for b in &tasks[i + 1..] {
            let rows = a.first_row < b.first_row + b.rows && b.first_row < a.first_row + a.rows;
            let apart =
                a.out != b.out || !rows || matches!((a.positions, b.positions), (Some(a), Some(b)) if a.is_apart(&b));
            assert!(apart, "tasks share outputs");
        }
    }
}

/// Outputs in the form that threads share: as pointers, since each writes rows of its own.
struct OutPointers {
    few: [Out; Self::FEW],
    many: Vec<Out>,
}

// SAFETY: the pointers are written through only in `compute`, whose callers vouch that the places are their own.
unsafe impl Sync for OutPointers {}

impl OutPointers {
    /// As many are held without allocating.
    const FEW: usize = 32;

    fn new(outs: &mut [MatrixOut]) -> Self {
        let mut few = [Out { data: std::ptr::null_mut(), stride: 0 }; Self::FEW];
        let mut pointers = outs.iter_mut().map(|out| Out { data: out.data.as_mut_ptr(), stride: out.row_stride });
        for (place, pointer) in few.iter_mut().zip(pointers.by_ref()) {
            *place = pointer;
        }
        Self { few, many: pointers.collect() }
    }

    fn get(&self, index: usize) -> Out {
        if index < Self::FEW { self.few[index] } else { self.many[index - Self::FEW] }
    }
}

#[cfg(test)]
mod tests;
