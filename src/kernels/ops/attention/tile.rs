//! The two inner products of attention over one page, as outer-product tiles in registers.
//!
//! Scores have positions in the lanes, outputs have elements in the lanes; neither sums across lanes, so each result is one
//! chain of fused multiply-adds in ascending order whatever the tile, the vector width or the number of rows.

use super::super::kv_page::{PAGE_POSITIONS, SCALE_BLOCK};
use super::super::lanes::{LANES, Lanes};
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

/// What is prefetched while a tile works: the same bytes of another page, as far from this one. At the pace at which this
/// one is read, as all at once would be more than a processor asks of memory at a time.
#[derive(Clone, Copy)]
pub(super) struct Ahead(pub(super) Option<isize>);

impl Ahead {
    #[inline(always)]
    fn fetch(self, row: *const u8, bytes: usize) {
        if let Some(distance) = self.0 {
            prefetch(row.wrapping_offset(distance), bytes);
        }
    }
}

/// `out[r][j] = sum over d of q[d][r] * k[d][j]`; q (dim, R), k (dim, 32), key scales (blocks, 32), out (R, 32).
///
/// With scales, a block's sum is multiplied by its scale and added to the blocks before it.
///
/// # Safety
/// The pointers are good for these shapes; `W` divides 2.
#[inline(always)]
pub(super) unsafe fn scores<S: Lanes, E: Element, const R: usize, const W: usize>(
    s: S,
    q: *const f32,
    k: *const u8,
    key_scales: *const u8,
    dim: usize,
    out: *mut f32,
    ahead: Ahead,
) {
    let block = if E::SCALED { SCALE_BLOCK } else { dim };
    for part in 0..PAGE_POSITIONS / (W * LANES) {
        let column = part * W * LANES;
        for start in (0..dim).step_by(block) {
            let mut sums = [[s.splat(0.0); W]; R];
            for d in start..(start + block).min(dim) {
                // SAFETY: row d of k, element d of each q.
                unsafe {
                    let row = k.add((d * PAGE_POSITIONS + column) * E::BYTES);
                    ahead.fetch(row, W * LANES * E::BYTES);
                    let keys: [S::V; W] = std::array::from_fn(|w| E::load(s, row.add(w * LANES * E::BYTES)));
                    for (r, sums) in sums.iter_mut().enumerate() {
                        let query = s.splat(*q.add(d * R + r));
                        for w in 0..W {
                            sums[w] = s.fma(query, keys[w], sums[w]);
                        }
                    }
                }
            }
            for w in 0..W {
                let mut scale = s.splat(1.0);
                if E::SCALED {
                    let at = (start / SCALE_BLOCK) * PAGE_POSITIONS + column + w * LANES;
                    // SAFETY: this block's scales.
                    scale = unsafe { s.load_f16(key_scales.add(2 * at)) };
                }
                for (r, sums) in sums.iter().enumerate() {
                    // SAFETY: within row r of `out`.
                    let to = unsafe { &mut *out.add(r * PAGE_POSITIONS + column + w * LANES).cast::<[f32; LANES]>() };
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
}

/// `o[r][i] = o[r][i] * factor[r] + sum over j in seen of p[r][j] * v[j][i]` for `W` vectors of elements;
/// p (R, 32), v (32, stride), o (R, stride), both from the first of those elements on.
///
/// # Safety
/// The pointers are good for these shapes, and `seen` is within 0..32.
#[inline(always)]
pub(super) unsafe fn values<S: Lanes, E: Element, const R: usize, const W: usize>(
    s: S,
    p: *const f32,
    factor: &[f32; LANES],
    v: *const u8,
    stride: usize,
    seen: (usize, usize),
    o: *mut f32,
    ahead: Ahead,
) {
    // SAFETY: vector w of row r of `o`.
    let place = |r: usize, w: usize| unsafe { o.add(r * stride + w * LANES).cast::<[f32; LANES]>() };
    let mut sums: [[S::V; W]; R] = std::array::from_fn(|r| {
        let factor = s.splat(factor[r]);
        // SAFETY: nothing else borrows `o`.
        std::array::from_fn(|w| s.mul(s.load(unsafe { &*place(r, w) }), factor))
    });
    for j in seen.0..seen.1 {
        // SAFETY: row j of v, element j of each p.
        unsafe {
            let row = v.add(j * stride * E::BYTES);
            ahead.fetch(row, W * LANES * E::BYTES);
            let elements: [S::V; W] = std::array::from_fn(|w| E::load(s, row.add(w * LANES * E::BYTES)));
            for (r, sums) in sums.iter_mut().enumerate() {
                let weight = s.splat(*p.add(r * PAGE_POSITIONS + j));
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
