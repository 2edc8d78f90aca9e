//! Online softmax (Milakov and Gimelshein, arXiv 1805.02867) along the pages of one KV head, for a group of query rows.
//!
//! Pages are taken in order in segments of four. A segment starts from nothing; its result is merged with those of the
//! segments before it, in order. So segments can be computed by different threads, and the bits do not tell.

use super::super::kv_page::{KvLayout, PAGE_POSITIONS, SCALE_BLOCK};
use super::super::lanes::{LANES, Lanes};
use super::super::math::{exp_lanes, tanh_lanes};
use super::tile::{Ahead, Element, scores, values};
use super::{AttentionSpec, SEGMENT_PAGES};
use crate::kernels::Cancel;

/// A maximum below every score: nothing was seen yet. Finite, so that differences are.
pub(super) const NOTHING: f32 = -1e30;

/// Query rows that one walk serves: those of one KV head's group at consecutive positions, by position.
pub(super) struct Rows<'a> {
    /// Packed by tile: for tiles of R rows, (key_dim, R).
    pub(super) q: &'a [f32],
    pub(super) count: usize,
    /// Heads of the group: row r is at position `first + r / group`.
    pub(super) group: usize,
    pub(super) first: usize,
}

/// What a softmax has come to: for each row the largest score, the sum of exponentials, and the weighted sum of values.
pub(super) struct State<'a> {
    pub(super) most: &'a mut [f32],
    pub(super) sum: &'a mut [f32],
    /// (rows, value stride)
    pub(super) o: &'a mut [f32],
}

impl State<'_> {
    pub(super) fn clear(&mut self) {
        self.most.fill(NOTHING);
        self.sum.fill(0.0);
        self.o.fill(0.0);
    }
}

/// What a thread needs besides: (rows, 32) probabilities, (rows of a tile, 32) scaled ones, (blocks, 32) scales.
pub(super) struct Workspace<'a> {
    pub(super) p: &'a mut [f32],
    pub(super) scaled: &'a mut [f32],
}

/// Rows of a tile, at most; an instruction set may have fewer.
pub(super) const TILE_ROWS: usize = 8;

/// Takes the rows along the pages `pages.0..pages.1` of one segment. `after` is where the next
/// segment's first page of the same thread begins, or null: it is fetched like the pages before it.
#[inline(always)]
pub(super) fn walk_segment<'p, S: Lanes, E: Element>(
    s: S,
    spec: &AttentionSpec<'_>,
    kv_head: usize,
    rows: &Rows<'_>,
    pages: (usize, usize),
    after: *const u8,
    page: &(dyn Fn(usize) -> &'p [u8] + Sync),
    state: &mut State<'_>,
    work: &mut Workspace<'_>,
    cancel: &Cancel,
) {
    let layout = &spec.layout;
    let head_bytes = layout.head_bytes();
    let head = |index: usize| -> &'p [u8] { &page(index)[kv_head * head_bytes..(kv_head + 1) * head_bytes] };
    let last_position = rows.first + (rows.count - 1) / rows.group;
    let mut bytes = head(pages.0);
    for index in pages.0..pages.1 {
        if cancel.is_cancelled() {
            return;
        }
        let start = index * PAGE_POSITIONS;
        // A few rows read the cache at the memory's speed; many find it in the processor's.
        let next = if index + 1 < pages.1 { head(index + 1) } else { bytes };
        let at = if index + 1 < pages.1 { next.as_ptr() } else { after };
        let wanted = rows.count <= 2 * TILE_ROWS && !at.is_null();
        let mut ahead = Ahead(wanted.then(|| (at as isize).wrapping_sub(bytes.as_ptr() as isize)));
        // Rows before this one do not see the page.
        let unseeing = start.saturating_sub(rows.first) * rows.group;
        let mut r = 0;
        while r < rows.count {
            let tile = S::ROWS.min(rows.count - r);
            if r + tile > unseeing {
                // What the tile's rows see of the page: from the first row's window on, to the last row.
                let (early, late) = (rows.first + r / rows.group, rows.first + (r + tile - 1) / rows.group);
                let from = spec.first_seen(early).saturating_sub(start);
                let to = (late + 1 - start).min(PAGE_POSITIONS);
                if from < to {
                    let whole = spec.first_seen(late) <= start && start + PAGE_POSITIONS <= early + 1;
                    let seen = Seen { start, from, to, whole };
                    macro_rules! go {
                        ($R:literal) => {
                            page_tile::<S, E, $R>(s, spec, rows, r, bytes, &seen, state, work, ahead)
                        };
                    }
                    if S::ROWS == TILE_ROWS && tile > 4 {
                        match tile {
                            8 => go!(8),
                            7 => go!(7),
                            6 => go!(6),
                            _ => go!(5),
                        }
                    } else {
                        match tile {
                            4 => go!(4),
                            3 => go!(3),
                            2 => go!(2),
                            _ => go!(1),
                        }
                    }
                    ahead = Ahead(None);
                }
            }
            r += tile;
        }
        debug_assert!(start <= last_position);
        bytes = next;
    }
}

/// What the rows of a tile see of a page.
struct Seen {
    /// Position of the page's first.
    start: usize,
    /// Positions in the page that some row sees.
    from: usize,
    to: usize,
    /// Every row sees every position.
    whole: bool,
}

/// One tile of `R` rows from row `r` on, with one page.
#[inline(always)]
fn page_tile<S: Lanes, E: Element, const R: usize>(
    s: S,
    spec: &AttentionSpec<'_>,
    rows: &Rows<'_>,
    r: usize,
    head: &[u8],
    seen: &Seen,
    state: &mut State<'_>,
    work: &mut Workspace<'_>,
    ahead: Ahead,
) {
    let layout = &spec.layout;
    let [key_scales, values_at, value_scales, end] = layout.offsets();
    let q = &rows.q[r * layout.key_dim..][..R * layout.key_dim];
    let p = &mut work.p[..R * PAGE_POSITIONS];
    assert!(head.len() >= end);
    let (keys, scales) = (head.as_ptr(), head[key_scales..].as_ptr());
    // SAFETY: q holds (key_dim, R), head a head's part of a page, p (R, 32).
    unsafe {
        if S::WIDE == 2 {
            scores::<S, E, R, 2>(s, q.as_ptr(), keys, scales, layout.key_dim, p.as_mut_ptr(), ahead);
        } else {
            scores::<S, E, R, 1>(s, q.as_ptr(), keys, scales, layout.key_dim, p.as_mut_ptr(), ahead);
        }
    }
    let factor = online_softmax::<S, R>(s, spec, rows, r, seen, p, &mut state.most[r..r + R], &mut state.sum[r..r + R]);

    let stride = layout.value_stride();
    let o = &mut state.o[r * stride..][..R * stride];
    let vectors = stride / LANES;
    let mut done = 0;
    while done < vectors {
        let wide = S::WIDE.min(vectors - done);
        let first = done * LANES;
        let mut weights: &[f32] = p;
        if E::SCALED {
            let block = first / SCALE_BLOCK;
            let at = &head[value_scales + block * PAGE_POSITIONS * 2..][..PAGE_POSITIONS * 2];
            for half in [0, LANES] {
                // SAFETY: `at` holds 32 half-precision numbers.
                let scale = unsafe { s.load_f16(at[2 * half..].as_ptr()) };
                let (from, to) = (p.as_chunks::<LANES>().0, work.scaled.as_chunks_mut::<LANES>().0);
                for i in 0..R {
                    let at = 2 * i + half / LANES;
                    s.store(s.mul(s.load(&from[at]), scale), &mut to[at]);
                }
            }
            weights = &work.scaled[..R * PAGE_POSITIONS];
        }
        let v = head[values_at + first * E::BYTES..].as_ptr();
        let to = o[first..].as_mut_ptr();
        // SAFETY: weights hold (R, 32), v the rest of 32 rows of `stride`, o that of R; from and to are within the page.
        unsafe {
            if wide == 2 {
                values::<S, E, R, 2>(s, weights.as_ptr(), &factor, v, stride, (seen.from, seen.to), to, ahead);
            } else {
                values::<S, E, R, 1>(s, weights.as_ptr(), &factor, v, stride, (seen.from, seen.to), to, ahead);
            }
        }
        done += wide;
    }
}

/// Turns the scores `p` (R, 32) into exponentials against the largest so far, and says what earlier sums are to be
/// multiplied with.
#[inline(always)]
fn online_softmax<S: Lanes, const R: usize>(
    s: S,
    spec: &AttentionSpec<'_>,
    rows: &Rows<'_>,
    r: usize,
    seen: &Seen,
    p: &mut [f32],
    most: &mut [f32],
    sum: &mut [f32],
) -> [f32; LANES] {
    const COUNT: [f32; PAGE_POSITIONS] = {
        let mut count = [0.0; PAGE_POSITIONS];
        let mut i = 0;
        while i < PAGE_POSITIONS {
            count[i] = i as f32;
            i += 1;
        }
        count
    };
    let (p, count) = (p.as_chunks_mut::<LANES>().0, COUNT.as_chunks::<LANES>().0);
    let scale = s.splat(spec.scale);
    let mut change = [0.0; LANES];
    for i in 0..R {
        let row = &mut p[2 * i..2 * i + 2];
        let mut scores = [s.mul(s.load(&row[0]), scale), s.mul(s.load(&row[1]), scale)];
        if let Some(cap) = spec.softcap {
            let (cap, inverse) = (s.splat(cap), s.splat(1.0 / cap));
            for v in &mut scores {
                *v = s.mul(tanh_lanes(s, s.mul(*v, inverse)), cap);
            }
        }
        if !seen.whole {
            let position = rows.first + (r + i) / rows.group;
            // -0.5 on both sides: whole numbers compare strictly.
            let from = s.splat(spec.first_seen(position).saturating_sub(seen.start) as f32 - 0.5);
            let to = s.splat((position + 1).saturating_sub(seen.start).min(PAGE_POSITIONS) as f32 - 0.5);
            let hidden = s.splat(f32::NEG_INFINITY);
            for (v, count) in scores.iter_mut().zip(count) {
                let count = s.load(count);
                *v = s.select_gt(to, count, s.select_gt(count, from, *v, hidden), hidden);
            }
        }
        let largest = s.largest(s.max(scores[0], scores[1]));
        let largest = if largest > most[i] { largest } else { most[i] };
        change[i] = most[i] - largest;
        most[i] = largest;
        let largest = s.splat(largest);
        s.store(s.sub(scores[0], largest), &mut row[0]);
        s.store(s.sub(scores[1], largest), &mut row[1]);
    }
    let mut factor = [0.0; LANES];
    s.store(exp_lanes(s, s.load(&change)), &mut factor);
    for i in 0..R {
        let row = &mut p[2 * i..2 * i + 2];
        let (a, b) = (exp_lanes(s, s.load(&row[0])), exp_lanes(s, s.load(&row[1])));
        s.store(a, &mut row[0]);
        s.store(b, &mut row[1]);
        sum[i] = sum[i] * factor[i] + s.sum(s.add(a, b));
    }
    factor
}

/// Adds a later segment's state to that of the ones before it.
#[inline(always)]
pub(super) fn merge<S: Lanes>(s: S, stride: usize, whole: &mut State<'_>, segment: &State<'_>) {
    let rows = whole.most.len();
    for start in (0..rows).step_by(LANES) {
        let end = (start + LANES).min(rows);
        let mut changes = [[0.0; LANES]; 2];
        for r in start..end {
            let (a, b) = (whole.most[r], segment.most[r]);
            let most = if a > b { a } else { b };
            (changes[0][r - start], changes[1][r - start]) = (a - most, b - most);
            whole.most[r] = most;
        }
        for change in &mut changes {
            s.store(exp_lanes(s, s.load(change)), change);
        }
        for r in start..end {
            let (a, b) = (changes[0][r - start], changes[1][r - start]);
            whole.sum[r] = whole.sum[r] * a + segment.sum[r] * b;
            let o = whole.o[r * stride..][..stride].as_chunks_mut::<LANES>().0;
            let add = segment.o[r * stride..][..stride].as_chunks::<LANES>().0;
            for (o, add) in o.iter_mut().zip(add) {
                s.store(s.fma(s.load(o), s.splat(a), s.mul(s.load(add), s.splat(b))), o);
            }
        }
    }
}

/// `out = o / sum`, and zeros without a sign, whatever masked positions left behind.
#[inline(always)]
pub(super) fn finish_row<S: Lanes>(s: S, o: &[f32], sum: f32, out: &mut [f32]) {
    let inverse = s.splat(1.0 / sum);
    for (o, out) in o.as_chunks::<LANES>().0.iter().zip(out.chunks_mut(LANES)) {
        let mut lanes = [0.0; LANES];
        s.store(s.add(s.mul(s.load(o), inverse), s.splat(0.0)), &mut lanes);
        out.copy_from_slice(&lanes[..out.len()]);
    }
}

/// Packs rows of q, `row(r)` each (key_dim), as tiles of the instruction set.
#[inline(always)]
pub(super) fn pack<'q, S: Lanes>(_: S, dim: usize, count: usize, row: impl Fn(usize) -> &'q [f32], to: &mut [f32]) {
    let mut r = 0;
    while r < count {
        let tile = S::ROWS.min(count - r);
        let packed = &mut to[r * dim..][..tile * dim];
        for i in 0..tile {
            for (d, x) in row(r + i)[..dim].iter().enumerate() {
                packed[d * tile + i] = *x;
            }
        }
        r += tile;
    }
}

/// The pages that positions `first..=last` see, cut into segments: those numbers, and the pages of one.
pub(super) fn segments(spec: &AttentionSpec<'_>, first: usize, last: usize) -> std::ops::Range<usize> {
    let pages = spec.first_seen(first) / PAGE_POSITIONS..last / PAGE_POSITIONS + 1;
    pages.start / SEGMENT_PAGES..pages.end.div_ceil(SEGMENT_PAGES)
}

pub(super) fn pages_of_segment(spec: &AttentionSpec<'_>, segment: usize, first: usize, last: usize) -> (usize, usize) {
    let pages = (spec.first_seen(first) / PAGE_POSITIONS, last / PAGE_POSITIONS + 1);
    ((segment * SEGMENT_PAGES).max(pages.0), ((segment + 1) * SEGMENT_PAGES).min(pages.1))
}

/// Values of a page are whole vectors; checked once for a layer.
pub(super) fn check(layout: &KvLayout) {
    assert!(layout.kv_heads > 0 && layout.key_dim > 0 && layout.value_dim > 0);
}
