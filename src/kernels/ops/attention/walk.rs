//! Online softmax (Milakov and Gimelshein, arXiv 1805.02867) along the segments of one KV head, for a group of query rows.
//!
//! A segment is four pages. Its softmax is a plain one: all scores, the largest, exponentials and their sum, then the values.
//! Its result is merged with those of the segments before it, in order. So segments can be computed by different threads,
//! and the bits do not tell.

use std::ptr;

use super::super::kv_page::{KvLayout, PAGE_POSITIONS, SCALE_BLOCK};
use super::super::lanes::{LANES, Lanes};
use super::super::math::{exp_lanes, exp_to_zero, tanh_lanes};
use super::tile::{Column, Element, Pace, scores, values};
use super::{AttentionSpec, SEGMENT_PAGES, SEGMENT_POSITIONS};
use crate::kernels::Cancel;
use crate::kernels::prefetch::prefetch;

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

/// What a thread needs besides: weights of a tile's rows (rows, 128), and of one page times scales (rows, 32).
pub(super) struct Workspace<'a> {
    pub(super) p: &'a mut [f32],
    pub(super) scaled: &'a mut [f32],
}

/// Rows of a tile, at most; an instruction set may have fewer.
pub(super) const TILE_ROWS: usize = 8;

/// Parts that are on their way from memory while one is computed with: with one, memory is late where parts are small.
const PARTS_AHEAD: usize = 2;

/// A KV head's part of the pages of a segment; none if there is no segment.
#[derive(Clone, Copy, Default)]
pub(super) struct Pages<'p> {
    /// Number of the first.
    first: usize,
    count: usize,
    heads: [&'p [u8]; SEGMENT_PAGES],
}

impl<'p> Pages<'p> {
    /// Those of `segment` that some of the positions `first..=last` see.
    pub(super) fn of_segment(
        spec: &AttentionSpec<'_>,
        page: &(dyn Fn(usize) -> &'p [u8] + Sync),
        kv_head: usize,
        segment: usize,
        (first, last): (usize, usize),
    ) -> Self {
        let from = (segment * SEGMENT_PAGES).max(spec.first_seen(first) / PAGE_POSITIONS);
        let to = ((segment + 1) * SEGMENT_PAGES).min(last / PAGE_POSITIONS + 1);
        let bytes = spec.layout.head_bytes();
        let mut heads = [[].as_slice(); SEGMENT_PAGES];
        for (head, index) in heads.iter_mut().zip(from..to) {
            *head = &page(index)[kv_head * bytes..(kv_head + 1) * bytes];
        }
        Self { first: from, count: to - from, heads }
    }
}

/// The way through a segment and on to the next of the same thread: its parts are the keys of each page, then the values
/// of each.
struct Way<'a, 'p> {
    layout: &'a KvLayout,
    pages: &'a Pages<'p>,
    next: &'a Pages<'p>,
    /// How many parts ahead memory is asked for; none if what is read will be in the processor's cache.
    ahead: Option<usize>,
}

impl Way<'_, '_> {
    /// Where a part begins, or null beyond the end.
    #[inline(always)]
    fn part(&self, mut part: usize) -> *const u8 {
        for pages in [self.pages, self.next] {
            if part < pages.count {
                return pages.heads[part].as_ptr();
            }
            if part < 2 * pages.count {
                return pages.heads[part - pages.count].as_ptr().wrapping_add(self.layout.offsets()[1]);
            }
            part -= 2 * pages.count;
        }
        ptr::null()
    }

    /// What is prefetched while this part is read.
    #[inline(always)]
    fn pace(&self, part: usize) -> Pace {
        let ahead = self.ahead.map_or(ptr::null(), |ahead| self.part(part + ahead));
        Pace::new(ahead, self.part(part))
    }

    /// Asks for the parts that nothing before has asked for.
    #[inline(always)]
    fn begin(&self) {
        let [_, values, _, end] = self.layout.offsets();
        for part in 0..self.ahead.unwrap_or(0) {
            prefetch(self.part(part), if part < self.pages.count { values } else { end - values });
        }
    }
}

/// Takes the rows along the pages of one segment. `next` are those of the thread's next segment, whose first parts are
/// prefetched like the parts before them; `cold`, that nobody has prefetched this segment's.
#[inline(always)]
pub(super) fn walk_segment<S: Lanes, E: Element>(
    s: S,
    _: E,
    spec: &AttentionSpec<'_>,
    rows: &Rows<'_>,
    pages: &Pages<'_>,
    next: &Pages<'_>,
    cold: bool,
    state: &mut State<'_>,
    work: &mut Workspace<'_>,
    cancel: &Cancel,
) {
    state.clear();
    let layout = &spec.layout;
    // A few rows read the cache at the memory's speed; many find it in the processor's.
    let mut way = Way { layout, pages, next, ahead: (rows.count <= 2 * TILE_ROWS).then_some(PARTS_AHEAD) };
    if cold {
        way.begin();
    }
    let mut r = 0;
    while r < rows.count {
        if cancel.is_cancelled() {
            return;
        }
        let tile = S::ROWS.min(rows.count - r);
        let seen = Seen::of_tile(spec, rows, (r, r + tile), pages);
        macro_rules! go {
            ($R:literal) => {
                segment_tile::<S, E, $R>(s, spec, rows, r, &way, &seen, state, work)
            };
        }
        // What an instruction set never has is not even compiled.
        match tile {
            8 if const { S::ROWS >= 8 } => go!(8),
            7 if const { S::ROWS >= 8 } => go!(7),
            6 if const { S::ROWS >= 8 } => go!(6),
            5 if const { S::ROWS >= 8 } => go!(5),
            4 if const { S::ROWS >= 4 } => go!(4),
            3 if const { S::ROWS >= 4 } => go!(3),
            2 => go!(2),
            _ => go!(1),
        }
        way.ahead = None;
        r += tile;
    }
}

/// What the rows of a tile see of a page.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// Position of the page's first.
    start: usize,
    /// Positions in the page that some row sees.
    from: usize,
    to: usize,
    /// Every row sees every position.
    whole: bool,
}

impl Seen {
    /// Of each page of a segment: from the first row's window on, to the last row.
    #[inline(always)]
    fn of_tile(
        spec: &AttentionSpec<'_>,
        rows: &Rows<'_>,
        tile: (usize, usize),
        pages: &Pages<'_>,
    ) -> [Self; SEGMENT_PAGES] {
        let (early, late) = (rows.first + tile.0 / rows.group, rows.first + (tile.1 - 1) / rows.group);
        let mut seen = [Self::default(); SEGMENT_PAGES];
        for (i, seen) in seen[..pages.count].iter_mut().enumerate() {
            let start = (pages.first + i) * PAGE_POSITIONS;
            let from = spec.first_seen(early).saturating_sub(start);
            let to = (late + 1).saturating_sub(start).min(PAGE_POSITIONS);
            let whole = spec.first_seen(late) <= start && start + PAGE_POSITIONS <= early + 1;
            *seen = Self { start, from, to, whole };
        }
        seen
    }

    fn any(&self) -> bool {
        self.from < self.to
    }
}

/// Vectors side by side for a tile of `rows`, at most: sums as many as the registers hold.
const fn vectors_of_tile<S: Lanes, E: Element>(rows: usize) -> usize {
    let fit = S::WIDE * S::ROWS / rows;
    // A block of elements shares its scales; where a vector is several registers, two fill them.
    let most = if S::WIDE == 1 || E::SCALED { 2 } else { 8 };
    if fit < most { fit } else { most }
}

/// One tile of `R` rows from row `r` on, with the pages of a segment.
#[inline(always)]
fn segment_tile<S: Lanes, E: Element, const R: usize>(
    s: S,
    spec: &AttentionSpec<'_>,
    rows: &Rows<'_>,
    r: usize,
    way: &Way<'_, '_>,
    seen: &[Seen; SEGMENT_PAGES],
    state: &mut State<'_>,
    work: &mut Workspace<'_>,
) {
    let layout = &spec.layout;
    let [key_scales, values_at, value_scales, end] = layout.offsets();
    // What a row sees is in one piece.
    let Some(from) = seen.iter().position(Seen::any) else { return };
    let to = from + seen[from..].iter().take_while(|seen| seen.any()).count();
    let heads = &way.pages.heads;
    assert!(heads[from..to].iter().all(|head| head.len() >= end));

    let q = &rows.q[r * layout.key_dim..][..R * layout.key_dim];
    let p = &mut work.p[..R * SEGMENT_POSITIONS];
    let out = p.as_mut_ptr();
    let column = |column: usize| {
        let (page, first) = (column / 2, column % 2 * LANES);
        let head = heads[page].as_ptr();
        Column {
            keys: head.wrapping_add(first * E::BYTES),
            scales: head.wrapping_add(key_scales + 2 * first),
            out: out.wrapping_add(column * LANES),
        }
    };
    let mut page = from;
    while page < to {
        // SAFETY: q holds (key_dim, R), each head a head's part of a page, p (R, 128).
        unsafe {
            if const { vectors_of_tile::<S, E>(R) >= 4 }
                && let Some(rest) = to.checked_sub(page + 2)
            {
                let columns = std::array::from_fn(|i| column(2 * page + i));
                let mut paces = [way.pace(page), way.pace(page + 1)];
                scores::<S, E, R, 4, 2>(s, q.as_ptr(), &columns, layout.key_dim, &mut paces);
                page = to - rest;
                continue;
            }
            let mut paces = [way.pace(page)];
            let columns = [column(2 * page), column(2 * page + 1)];
            if const { vectors_of_tile::<S, E>(R) >= 2 } {
                scores::<S, E, R, 2, 1>(s, q.as_ptr(), &columns, layout.key_dim, &mut paces);
            } else {
                for column in columns {
                    scores::<S, E, R, 1, 1>(s, q.as_ptr(), &[column], layout.key_dim, &mut paces);
                }
            }
        }
        page += 1;
    }
    softmax::<S, R>(s, spec, rows, r, seen, (from, to), p, &mut state.most[r..r + R], &mut state.sum[r..r + R]);

    let stride = layout.value_stride();
    let o = &mut state.o[r * stride..][..R * stride];
    let vectors = stride / LANES;
    for page in from..to {
        let (head, seen) = (heads[page], &seen[page]);
        let mut pace = way.pace(way.pages.count + page);
        let mut done = 0;
        while done < vectors {
            let first = done * LANES;
            let (mut weights, mut row) = (&p[page * PAGE_POSITIONS..], SEGMENT_POSITIONS);
            if E::SCALED {
                let block = first / SCALE_BLOCK;
                let at = &head[value_scales + block * PAGE_POSITIONS * 2..][..PAGE_POSITIONS * 2];
                for half in 0..2 {
                    // SAFETY: `at` holds 32 half-precision numbers.
                    let scale = unsafe { s.load_f16(at[2 * half * LANES..].as_ptr()) };
                    let (from, to) = (weights.as_chunks::<LANES>().0, work.scaled.as_chunks_mut::<LANES>().0);
                    for i in 0..R {
                        let from = &from[i * SEGMENT_POSITIONS / LANES + half];
                        s.store(s.mul(s.load(from), scale), &mut to[2 * i + half]);
                    }
                }
                (weights, row) = (&work.scaled[..R * PAGE_POSITIONS], PAGE_POSITIONS);
            }
            let v = head[values_at + first * E::BYTES..].as_ptr();
            let to = o[first..].as_mut_ptr();
            macro_rules! go {
                ($W:literal) => {{
                    // SAFETY: weights hold R rows of 32, v the rest of 32 rows of `stride`, o that of R; what is seen is
                    // within the page.
                    unsafe {
                        let seen = (seen.from, seen.to);
                        values::<S, E, R, $W>(s, weights.as_ptr(), row, v, stride, seen, to, &mut pace);
                    }
                    done += $W;
                }};
            }
            match vectors - done {
                8.. if const { vectors_of_tile::<S, E>(R) >= 8 } => go!(8),
                6.. if const { vectors_of_tile::<S, E>(R) >= 6 } => go!(6),
                4.. if const { vectors_of_tile::<S, E>(R) >= 4 } => go!(4),
                2.. if const { vectors_of_tile::<S, E>(R) >= 2 } => go!(2),
                _ => go!(1),
            }
        }
    }
}

/// Turns the scores `p` (R, 128) of the pages `pages.0..pages.1` into exponentials against each row's largest.
#[inline(always)]
fn softmax<S: Lanes, const R: usize>(
    s: S,
    spec: &AttentionSpec<'_>,
    rows: &Rows<'_>,
    r: usize,
    seen: &[Seen; SEGMENT_PAGES],
    pages: (usize, usize),
    p: &mut [f32],
    most: &mut [f32],
    sum: &mut [f32],
) {
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
    let vectors = |i: usize| i * SEGMENT_POSITIONS / LANES + 2 * pages.0..i * SEGMENT_POSITIONS / LANES + 2 * pages.1;
    for i in 0..R {
        let mut largest = s.splat(NOTHING);
        for (row, seen) in p[vectors(i)].as_chunks_mut::<2>().0.iter_mut().zip(&seen[pages.0..]) {
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
            for (v, to) in scores.into_iter().zip(row) {
                largest = s.max(v, largest);
                s.store(v, to);
            }
        }
        most[i] = s.largest(largest);
    }
    for i in 0..R {
        let largest = s.splat(most[i]);
        let mut total = s.splat(0.0);
        // A whole segment at a time, so that the steps of one exponential do not wait for each other.
        let (whole, pages) = p[vectors(i)].as_chunks_mut::<{ SEGMENT_POSITIONS / LANES }>();
        for segment in whole {
            total = weights(s, segment, largest, total);
        }
        for page in pages.as_chunks_mut::<{ PAGE_POSITIONS / LANES }>().0 {
            total = weights(s, page, largest, total);
        }
        sum[i] = s.sum(total);
    }
}

/// Exponentials of `N` vectors of scores, all at a time, whose sum is added to `total` in order.
#[inline(always)]
fn weights<S: Lanes, const N: usize>(s: S, scores: &mut [[f32; LANES]; N], largest: S::V, total: S::V) -> S::V {
    let mut x = [total; N];
    for (x, scores) in x.iter_mut().zip(scores.iter()) {
        *x = s.sub(s.load(scores), largest);
    }
    let x = exp_to_zero(s, x);
    let mut total = total;
    for (x, to) in x.into_iter().zip(scores) {
        total = s.add(total, x);
        s.store(x, to);
    }
    total
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

/// Numbers of the segments that positions `first..=last` see.
pub(super) fn segments(spec: &AttentionSpec<'_>, first: usize, last: usize) -> std::ops::Range<usize> {
    let pages = spec.first_seen(first) / PAGE_POSITIONS..last / PAGE_POSITIONS + 1;
    pages.start / SEGMENT_PAGES..pages.end.div_ceil(SEGMENT_PAGES)
}

/// Values of a page are whole vectors; checked once for a layer.
pub(super) fn check(layout: &KvLayout) {
    assert!(layout.kv_heads > 0 && layout.key_dim > 0 && layout.value_dim > 0);
}
