//! The two inner products of attention over pages, as outer-product tiles in registers.
//!
//! Scores have positions in the lanes, outputs have elements in the lanes; neither sums across lanes, so each result is one
//! chain of fused multiply-adds in ascending order whatever the tile, the vector width or the number of rows.

use std::sync::atomic::{Ordering, compiler_fence};

use super::super::kv_page::{PAGE_POSITIONS, SCALE_BLOCK};
use super::super::lanes::{LANES, Lanes};
use super::SEGMENT_POSITIONS;
use crate::kernels::prefetch::prefetch;

/// An element type of the cache.
pub(super) trait Element {
    const BYTES: usize;
    /// Whether blocks of 32 elements have scales.
    const SCALED: bool;
    /// # Safety
    /// `from` is readable for 16 elements.
    unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V;
}

pub(super) struct F16;
pub(super) struct F32;
pub(super) struct Q8;

impl Element for F16 {
    const BYTES: usize = 2;
    const SCALED: bool = false;
    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V {
        // SAFETY: as the caller vouches.
        unsafe { s.load_f16(from) }
    }
}

impl Element for F32 {
    const BYTES: usize = 4;
    const SCALED: bool = false;
    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V {
        // SAFETY: as the caller vouches; the read does not ask for alignment.
        let lanes = unsafe { from.cast::<[f32; LANES]>().read_unaligned() };
        s.load(&lanes)
    }
}

impl Element for Q8 {
    const BYTES: usize = 1;
    const SCALED: bool = true;
    #[inline(always)]
    unsafe fn load<S: Lanes>(s: S, from: *const u8) -> S::V {
        // SAFETY: as the caller vouches.
        unsafe { s.load_i8(from) }
    }
}

/// What is prefetched while something else is read: as many bytes, front to back, at the same pace, as all at once would be
/// more than a processor asks of memory at a time.
#[derive(Clone, Copy)]
pub(super) struct Pace {
    at: *const u8,
    /// 1, or 0 to stay.
    goes: usize,
}

impl Pace {
    /// From `ahead` on, or, where that is null, what is being read itself, which costs next to nothing.
    #[inline(always)]
    pub(super) fn new(ahead: *const u8, reads: *const u8) -> Self {
        if ahead.is_null() { Self { at: reads, goes: 0 } } else { Self { at: ahead, goes: 1 } }
    }

    /// With each `bytes` that are read.
    #[inline(always)]
    fn step(&mut self, bytes: usize) {
        prefetch(self.at, bytes);
        self.at = self.at.wrapping_add(bytes * self.goes);
        // The compiler would gather what is spread here.
        compiler_fence(Ordering::SeqCst);
    }
}

/// Sixteen positions of a page.
#[derive(Clone, Copy)]
pub(super) struct Column {
    /// Keys (dim, 32), from the first of these positions on.
    pub(super) keys: *const u8,
    /// Their scales (blocks, 32), likewise.
    pub(super) scales: *const u8,
    /// Scores (R, [`SEGMENT_POSITIONS`]), likewise.
    pub(super) out: *mut f32,
}

/// `out[r][j] = sum over d of q[d][r] * k[d][j]` for `W` columns of positions; q (dim, R).
///
/// With scales, a block's sum is multiplied by its scale and added to the blocks before it.
///
/// # Safety
/// The pointers are good for these shapes.
#[inline(always)]
pub(super) unsafe fn scores<S: Lanes, E: Element, const R: usize, const W: usize, const P: usize>(
    s: S,
    q: *const f32,
    columns: &[Column; W],
    dim: usize,
    paces: &mut [Pace; P],
) {
    let block = if E::SCALED { SCALE_BLOCK } else { dim };
    for start in (0..dim).step_by(block) {
        let mut sums = [[s.splat(0.0); W]; R];
        for d in start..(start + block).min(dim) {
            paces.iter_mut().for_each(|pace| pace.step(W / P * LANES * E::BYTES));
            // SAFETY: row d of the keys, element d of each q.
            unsafe {
                let row = d * PAGE_POSITIONS * E::BYTES;
                let keys: [S::V; W] = std::array::from_fn(|w| E::load(s, columns[w].keys.add(row)));
                for (r, sums) in sums.iter_mut().enumerate() {
                    let query = s.splat(*q.add(d * R + r));
                    for w in 0..W {
                        sums[w] = s.fma(query, keys[w], sums[w]);
                    }
                }
            }
        }
        if E::SCALED {
            paces.iter_mut().for_each(|pace| pace.step(W / P * LANES * 2));
        }
        for (w, column) in columns.iter().enumerate() {
            let mut scale = s.splat(1.0);
            if E::SCALED {
                // SAFETY: this block's scales.
                scale = unsafe { s.load_f16(column.scales.add(2 * (start / SCALE_BLOCK) * PAGE_POSITIONS)) };
            }
            for (r, sums) in sums.iter().enumerate() {
                // SAFETY: within row r of `out`.
                let to = unsafe { &mut *column.out.add(r * SEGMENT_POSITIONS).cast::<[f32; LANES]>() };
                let sum = match (E::SCALED, start) {
                    (false, _) => sums[w],
                    (true, 0) => s.mul(sums[w], scale),
                    (true, _) => s.fma(sums[w], scale, s.load(to)),
                };
                s.store(sum, to);
            }
        }
    }
}

/// `o[r][i] += sum over j in seen of p[r][j] * v[j][i]` for `W` vectors of elements;
/// p (R, `row`), v (32, stride), o (R, stride), both from the first of those elements on.
///
/// # Safety
/// The pointers are good for these shapes, and `seen` is within 0..32.
#[inline(always)]
pub(super) unsafe fn values<S: Lanes, E: Element, const R: usize, const W: usize>(
    s: S,
    p: *const f32,
    row: usize,
    v: *const u8,
    stride: usize,
    seen: (usize, usize),
    o: *mut f32,
    pace: &mut Pace,
) {
    // SAFETY: vector w of row r of `o`.
    let place = |r: usize, w: usize| unsafe { o.add(r * stride + w * LANES).cast::<[f32; LANES]>() };
    let mut sums: [[S::V; W]; R] = [[s.splat(0.0); W]; R];
    for (r, sums) in sums.iter_mut().enumerate() {
        for (w, sum) in sums.iter_mut().enumerate() {
            // SAFETY: nothing else borrows `o`.
            *sum = s.load(unsafe { &*place(r, w) });
        }
    }
    for j in seen.0..seen.1 {
        pace.step(W * LANES * E::BYTES);
        // SAFETY: row j of v, element j of each p.
        unsafe {
            let elements = v.add(j * stride * E::BYTES);
            let elements: [S::V; W] = std::array::from_fn(|w| E::load(s, elements.add(w * LANES * E::BYTES)));
            for (r, sums) in sums.iter_mut().enumerate() {
                let weight = s.splat(*p.add(r * row + j));
                for w in 0..W {
                    sums[w] = s.fma(weight, elements[w], sums[w]);
                }
            }
        }
    }
    for (r, sums) in sums.iter().enumerate() {
        for (w, sum) in sums.iter().enumerate() {
            // SAFETY: nothing else borrows `o`.
            s.store(*sum, unsafe { &mut *place(r, w) });
        }
    }
}
