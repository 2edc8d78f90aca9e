//! Attention of one layer: query rows of consecutive positions against the pages of the KV cache.
//!
//! Work is shared by KV head and tile of positions, and for a single position by KV head and segment of pages, so K and V
//! are read once for all heads of a group. Position i's result is the same to the bit however positions are batched,
//! pages are shared among threads, and whichever instruction set computes it.

// The lanes, the shape, the buffers: each is one thing, and they change together nowhere.
#![allow(clippy::too_many_arguments)]

mod runs;
mod tile;
mod walk;

use std::sync::atomic::{AtomicU32, Ordering};

use super::Ops;
use super::kv_page::{KvElement, KvLayout, PAGE_POSITIONS};
use super::lanes::{Lanes, for_each_isa};
use crate::kernels::disjoint::Disjoint;
use crate::kernels::{Cancel, Cancelled, Isa};
use runs::Runs;
use tile::Element;
use walk::{Pages, Rows, State, TILE_ROWS, Workspace};

/// Pages of a segment, the unit in which a long context is shared among threads.
const SEGMENT_PAGES: usize = 4;
const SEGMENT_POSITIONS: usize = SEGMENT_PAGES * PAGE_POSITIONS;

/// Query rows of a unit of work, unless a single position has more.
const UNIT_ROWS: usize = 64;

/// What attention is in one layer.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSpec<'a> {
    pub layout: KvLayout,
    /// Query heads; a multiple of the KV heads, whose groups are consecutive.
    pub heads: usize,
    /// Factor of `q . k`, mostly `1 / sqrt(key_dim)`.
    pub scale: f32,
    /// Position i sees the last `window` positions up to itself; `None` sees all.
    pub window: Option<usize>,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// One more score for each head that takes part in the sum and has no value (gpt-oss).
    pub sinks: Option<&'a [f32]>,
}

impl AttentionSpec<'_> {
    /// The first position that `position` sees.
    fn first_seen(&self, position: usize) -> usize {
        self.window.map_or(0, |window| (position + 1).saturating_sub(window))
    }

    fn group(&self) -> usize {
        self.heads / self.layout.kv_heads
    }
}

/// Memory that attention works in; allocated at first and grown only with the shape or the context.
#[derive(Default)]
pub struct AttentionScratch {
    /// By thread: see [`Shape::thread_floats`].
    threads: Vec<f32>,
    /// By KV head and segment: the state of the group's rows.
    partials: Vec<f32>,
    /// Segments to go, by KV head.
    left: Vec<Left>,
    runs: Runs,
}

/// On cache lines of their own, as cores can be far from each other.
#[derive(Default)]
#[repr(align(128))]
struct Left(AtomicU32);

/// Sizes that follow from a layer's shape, in f32.
struct Shape {
    group: usize,
    rows: usize,
    stride: usize,
    key_dim: usize,
}

impl Shape {
    fn new(heads: usize, layout: &KvLayout) -> Self {
        let group = heads / layout.kv_heads;
        Self { group, rows: group.max(UNIT_ROWS), stride: layout.value_stride(), key_dim: layout.key_dim }
    }

    fn state_floats(&self, rows: usize) -> usize {
        rows * (self.stride + 2)
    }

    /// Packed queries, two states, weights plain and scaled.
    fn thread_floats(&self) -> usize {
        let floats = self.rows * self.key_dim
            + 2 * self.state_floats(self.rows)
            + TILE_ROWS * (SEGMENT_POSITIONS + PAGE_POSITIONS);
        // Threads keep to their own cache lines.
        floats.next_multiple_of(32)
    }
}

fn segments_for(context: usize) -> usize {
    context.div_ceil(SEGMENT_POSITIONS) + 1
}

impl AttentionScratch {
    /// For contexts up to `context` positions on `threads` threads; nothing is allocated later for this shape.
    pub fn new(threads: usize, heads: usize, layout: &KvLayout, context: usize) -> Self {
        let mut scratch = Self::default();
        scratch.reserve(threads, heads, layout, segments_for(context));
        scratch
    }

    /// Bytes of such a scratch.
    pub fn bytes_for(threads: usize, heads: usize, layout: &KvLayout, context: usize) -> usize {
        let shape = Shape::new(heads, layout);
        let partials = layout.kv_heads * segments_for(context) * shape.state_floats(shape.group);
        let counters = layout.kv_heads * size_of::<Left>() + Runs::bytes_for(threads);
        (threads * shape.thread_floats() + partials) * size_of::<f32>() + counters
    }

    /// Bytes it holds.
    pub fn bytes(&self) -> usize {
        let counters = self.left.len() * size_of::<Left>() + self.runs.bytes();
        (self.threads.len() + self.partials.len()) * size_of::<f32>() + counters
    }

    /// Room for another shape, where layers differ: as [`new`](Self::new).
    pub fn also_for(&mut self, threads: usize, heads: usize, layout: &KvLayout, context: usize) {
        self.reserve(threads, heads, layout, segments_for(context));
    }

    fn reserve(&mut self, threads: usize, heads: usize, layout: &KvLayout, segments: usize) {
        let shape = Shape::new(heads, layout);
        let grow = |buffer: &mut Vec<f32>, len: usize| {
            if buffer.len() < len {
                *buffer = vec![0.0; len];
            }
        };
        grow(&mut self.threads, threads * shape.thread_floats());
        grow(&mut self.partials, layout.kv_heads * segments * shape.state_floats(shape.group));
        if self.left.len() < layout.kv_heads {
            self.left.resize_with(layout.kv_heads, Left::default);
        }
        self.runs.reserve(threads);
    }
}

/// What every unit of work of a call sees.
struct Call<'a, 'p> {
    spec: &'a AttentionSpec<'a>,
    q: &'a [f32],
    first: usize,
    positions: usize,
    page: &'a (dyn Fn(usize) -> &'p [u8] + Sync),
    cancel: &'a Cancel,
}

impl<'p> Call<'_, 'p> {
    /// A KV head's part of a segment's pages, with one position.
    fn pages(&self, kv_head: usize, segment: usize) -> Pages<'p> {
        Pages::of_segment(self.spec, self.page, kv_head, segment, (self.first, self.first))
    }
}

impl Ops<'_> {
    /// `out[i][h] = sum over j of softmax(scale * q[i][h] . k[j]) v[j]` for positions i in `first..`, over the j it sees.
    ///
    /// q (positions, heads, key_dim), already turned; out (positions, heads, value_dim). K and V of these positions are
    /// already stored. `page(n)` is the layer's page of positions `32 n..32 n + 32`. When cancelled, `out` is undefined.
    pub fn attention<'p>(
        self,
        spec: &AttentionSpec<'_>,
        q: &[f32],
        first: usize,
        page: &(dyn Fn(usize) -> &'p [u8] + Sync),
        scratch: &mut AttentionScratch,
        out: &mut [f32],
        cancel: &Cancel,
    ) -> Result<(), Cancelled> {
        walk::check(&spec.layout);
        let (heads, kv_heads) = (spec.heads, spec.layout.kv_heads);
        assert!(heads.is_multiple_of(kv_heads) && spec.sinks.is_none_or(|sinks| sinks.len() >= heads));
        let positions = q.len() / (heads * spec.layout.key_dim);
        assert_eq!(q.len(), positions * heads * spec.layout.key_dim);
        assert_eq!(out.len(), positions * heads * spec.layout.value_dim);
        if positions == 0 {
            return Ok(());
        }
        let last = first + positions - 1;
        let segments = walk::segments(spec, first, last);
        scratch.reserve(self.pool.threads(), heads, &spec.layout, segments.len());
        let call = Call { spec, q, first, positions, page, cancel };
        if positions == 1 {
            self.one_position(&call, segments, scratch, out);
        } else {
            self.many_positions(&call, scratch, out);
        }
        cancel.check()
    }

    /// Units are (KV head, segment); whoever finishes a KV head's last segment merges them all, in order.
    fn one_position(
        self,
        call: &Call<'_, '_>,
        segments: std::ops::Range<usize>,
        scratch: &mut AttentionScratch,
        out: &mut [f32],
    ) {
        let spec = call.spec;
        let shape = Shape::new(spec.heads, &spec.layout);
        let count = segments.len();
        let state_floats = shape.state_floats(shape.group);
        for left in &scratch.left[..spec.layout.kv_heads] {
            left.0.store(count as u32, Ordering::Relaxed);
        }
        let scratches = Disjoint::new(&mut scratch.threads);
        let partials = Disjoint::new(&mut scratch.partials);
        let (left, runs) = (&scratch.left, &scratch.runs);
        let out_len = shape.group * spec.layout.value_dim;
        let out = Disjoint::new(out);
        let pages = |unit: usize| call.pages(unit / count, segments.start + unit % count);
        let one = |thread: usize, unit: usize, before: Option<usize>, cold: bool, next: Option<usize>| {
            let kv_head = unit / count;
            let packed = before.is_some_and(|unit| unit / count == kv_head);
            let next = next.map_or(Pages::default(), pages);
            // SAFETY: each thread has its own scratch, each unit its own partial state.
            let (own, partial) = unsafe {
                let floats = shape.thread_floats();
                (
                    scratches.range(thread * floats..(thread + 1) * floats),
                    partials.range(unit * state_floats..(unit + 1) * state_floats),
                )
            };
            one_segment(self.isa, call, &shape, kv_head, packed, (&pages(unit), &next), cold, own, partial);
            if left[kv_head].0.fetch_sub(1, Ordering::AcqRel) == 1 && !call.cancel.is_cancelled() {
                // SAFETY: all of this KV head's units are done; nobody else touches its states or its part of the output.
                let (states, out) = unsafe {
                    let first = kv_head * count * state_floats;
                    (
                        partials.range(first..first + count * state_floats),
                        out.range(kv_head * out_len..(kv_head + 1) * out_len),
                    )
                };
                merge_segments(self.isa, call, &shape, kv_head, own, states, out);
            }
        };
        let (units, threads) = (spec.layout.kv_heads * count, self.pool.threads());
        runs.begin(units, threads);
        let all = |thread: usize| {
            let (mut before, mut on_its_way) = (None, None);
            while let Some((unit, next)) = runs.take(thread, units, threads) {
                one(thread, unit, before, on_its_way != Some(unit), next);
                (before, on_its_way) = (Some(unit), next);
            }
        };
        if units == 1 {
            all(0);
        } else {
            self.pool.share(&all);
        }
    }

    /// Units are (KV head, tile of positions), the last positions first since they see the most.
    fn many_positions(self, call: &Call<'_, '_>, scratch: &mut AttentionScratch, out: &mut [f32]) {
        let spec = call.spec;
        let kv_heads = spec.layout.kv_heads;
        let shape = Shape::new(spec.heads, &spec.layout);
        // Full tiles of rows, but enough units for all threads.
        let most = (UNIT_ROWS / shape.group).max(1);
        let enough = call.positions * kv_heads / (4 * self.pool.threads());
        let tile = enough.clamp(TILE_ROWS.div_ceil(shape.group), most.max(TILE_ROWS.div_ceil(shape.group))).min(most);
        let tiles = call.positions.div_ceil(tile);
        let threads = Disjoint::new(&mut scratch.threads);
        let out = Disjoint::new(out);
        self.pool.for_each_item(kv_heads * tiles, &|thread, unit| {
            let (kv_head, from) = (unit % kv_heads, (tiles - 1 - unit / kv_heads) * tile);
            let floats = shape.thread_floats();
            // SAFETY: each thread has its own scratch.
            let own = unsafe { threads.range(thread * floats..(thread + 1) * floats) };
            let to = (from + tile).min(call.positions);
            position_tile(self.isa, call, &shape, kv_head, (from, to), own, &out);
        });
    }
}

/// A thread's scratch, taken apart.
struct Own<'a> {
    q: &'a mut [f32],
    whole: &'a mut [f32],
    segment: &'a mut [f32],
    work: Workspace<'a>,
}

fn take_apart<'a>(shape: &Shape, own: &'a mut [f32]) -> Own<'a> {
    let (q, own) = own.split_at_mut(shape.rows * shape.key_dim);
    let (whole, own) = own.split_at_mut(shape.state_floats(shape.rows));
    let (segment, own) = own.split_at_mut(shape.state_floats(shape.rows));
    let (p, own) = own.split_at_mut(TILE_ROWS * SEGMENT_POSITIONS);
    Own { q, whole, segment, work: Workspace { p, scaled: &mut own[..TILE_ROWS * PAGE_POSITIONS] } }
}

fn state<'a>(shape: &Shape, rows: usize, floats: &'a mut [f32]) -> State<'a> {
    let (o, floats) = floats.split_at_mut(rows * shape.stride);
    let (most, floats) = floats.split_at_mut(rows);
    State { most, sum: &mut floats[..rows], o }
}

/// The state before any page: nothing, or the sinks, each a score without a value.
fn begin(spec: &AttentionSpec<'_>, kv_head: usize, state: &mut State<'_>) {
    state.clear();
    if let Some(sinks) = spec.sinks {
        let sinks = &sinks[kv_head * spec.group()..][..spec.group()];
        for (most, sink) in state.most.iter_mut().zip(sinks.iter().cycle()) {
            *most = *sink;
        }
        state.sum.fill(1.0);
    }
}

fn query_row<'a>(call: &Call<'a, '_>, kv_head: usize, position: usize, head: usize) -> &'a [f32] {
    let dim = call.spec.layout.key_dim;
    &call.q[(position * call.spec.heads + kv_head * call.spec.group() + head) * dim..][..dim]
}

fn walk_segment(
    isa: Isa,
    call: &Call<'_, '_>,
    rows: &Rows<'_>,
    pages: (&Pages<'_>, &Pages<'_>),
    cold: bool,
    state: &mut State<'_>,
    work: &mut Workspace<'_>,
) {
    let (spec, (pages, next), cancel) = (call.spec, pages, call.cancel);
    match spec.layout.element {
        KvElement::F16 => walk(isa, tile::F16, spec, rows, pages, next, cold, state, work, cancel),
        KvElement::F32 => walk(isa, tile::F32, spec, rows, pages, next, cold, state, work, cancel),
        KvElement::Q8_0 => walk(isa, tile::Q8, spec, rows, pages, next, cold, state, work, cancel),
    }
}

/// One unit of a single position: a segment for the heads of a group, whose queries may be packed already.
fn one_segment(
    isa: Isa,
    call: &Call<'_, '_>,
    shape: &Shape,
    kv_head: usize,
    packed: bool,
    pages: (&Pages<'_>, &Pages<'_>),
    cold: bool,
    own: &mut [f32],
    partial: &mut [f32],
) {
    let mut own = take_apart(shape, own);
    if !packed {
        pack(isa, call, shape, kv_head, (0, 1), own.q);
    }
    let rows = Rows { q: own.q, count: shape.group, group: shape.group, first: call.first };
    walk_segment(isa, call, &rows, pages, cold, &mut state(shape, shape.group, partial), &mut own.work);
}

#[inline(always)]
fn pack_lanes<S: Lanes>(
    s: S,
    call: &Call<'_, '_>,
    shape: &Shape,
    kv_head: usize,
    positions: (usize, usize),
    to: &mut [f32],
) {
    let group = shape.group;
    let row = |r: usize| query_row(call, kv_head, positions.0 + r / group, r % group);
    walk::pack(s, shape.key_dim, (positions.1 - positions.0) * group, row, to);
}

/// Merges the segments of a group, in order, and writes its heads' outputs.
fn merge_segments(
    isa: Isa,
    call: &Call<'_, '_>,
    shape: &Shape,
    kv_head: usize,
    own: &mut [f32],
    states: &mut [f32],
    out: &mut [f32],
) {
    let own = take_apart(shape, own);
    let mut whole = state(shape, shape.group, own.whole);
    begin(call.spec, kv_head, &mut whole);
    for segment in states.chunks_exact_mut(shape.state_floats(shape.group)) {
        merge(isa, shape.stride, &mut whole, &state(shape, shape.group, segment));
    }
    for (r, out) in out.chunks_exact_mut(call.spec.layout.value_dim).enumerate() {
        finish_row(isa, &whole.o[r * shape.stride..][..shape.stride], whole.sum[r], out);
    }
}

/// One unit of many positions.
fn position_tile(
    isa: Isa,
    call: &Call<'_, '_>,
    shape: &Shape,
    kv_head: usize,
    positions: (usize, usize),
    own: &mut [f32],
    out: &Disjoint<'_, f32>,
) {
    let mut own = take_apart(shape, own);
    let group = shape.group;
    let count = (positions.1 - positions.0) * group;
    pack(isa, call, shape, kv_head, positions, own.q);
    let rows = Rows { q: own.q, count, group, first: call.first + positions.0 };
    let mut whole = state(shape, count, own.whole);
    let mut part = state(shape, count, own.segment);
    begin(call.spec, kv_head, &mut whole);
    for segment in walk::segments(call.spec, rows.first, call.first + positions.1 - 1) {
        let seeing = (rows.first, call.first + positions.1 - 1);
        let pages = Pages::of_segment(call.spec, call.page, kv_head, segment, seeing);
        walk_segment(isa, call, &rows, (&pages, &Pages::default()), false, &mut part, &mut own.work);
        if call.cancel.is_cancelled() {
            return;
        }
        merge(isa, shape.stride, &mut whole, &part);
    }
    let dim = call.spec.layout.value_dim;
    for (r, sum) in whole.sum.iter().enumerate() {
        let head = (positions.0 + r / group) * call.spec.heads + kv_head * group + r % group;
        // SAFETY: this unit alone computes these heads at these positions.
        let out = unsafe { out.range(head * dim..(head + 1) * dim) };
        finish_row(isa, &whole.o[r * shape.stride..][..shape.stride], *sum, out);
    }
}

for_each_isa! {
    fn pack(
        call: &Call<'_, '_>, shape: &Shape, kv_head: usize, positions: (usize, usize), to: &mut [f32],
    ) = pack_lanes;
}
for_each_isa! {
    fn walk<E: Element>(
        element: E, spec: &AttentionSpec<'_>, rows: &Rows<'_>, pages: &Pages<'_>, next: &Pages<'_>, cold: bool,
        state: &mut State<'_>, work: &mut Workspace<'_>, cancel: &Cancel,
    ) = walk::walk_segment;
}
for_each_isa! {
    fn merge(stride: usize, whole: &mut State<'_>, segment: &State<'_>) = walk::merge;
}
for_each_isa! {
    fn finish_row(o: &[f32], sum: f32, out: &mut [f32]) = walk::finish_row;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
