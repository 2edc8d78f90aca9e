//! Pages of the KV cache: 32 positions of one layer, laid out for attention.
//!
//! For each KV head, one after the other:
//!
//! * keys `(key_dim, 32)`: positions side by side, so that a score needs no sum across lanes;
//! * with q8_0, key scales `(ceil(key_dim / 32), 32)` in f16: one for each position and 32 elements;
//! * values `(32, value_dim rounded up to 16)`: elements side by side;
//! * with q8_0, value scales `(ceil(value_dim / 32), 32)` in f16.

use super::Ops;
use super::elementwise::padded;
use super::lanes::{LANES, Lanes, for_each_isa};

/// Positions in a page.
pub const PAGE_POSITIONS: usize = 32;

/// Elements that share a scale in q8_0.
pub(super) const SCALE_BLOCK: usize = 32;

/// Type of the elements of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvElement {
    F16,
    /// 8 bits, and an f16 scale for 32 elements of a head at a position.
    Q8_0,
    F32,
}

impl KvElement {
    fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::Q8_0 => 1,
            Self::F32 => 4,
        }
    }

    fn has_scales(self) -> bool {
        self == Self::Q8_0
    }
}

/// The shape of a layer's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayout {
    pub kv_heads: usize,
    /// Elements of a head of K; any.
    pub key_dim: usize,
    /// Elements of a head of V; any.
    pub value_dim: usize,
    pub element: KvElement,
}

impl KvLayout {
    /// Bytes of one page. A page needs no alignment; that of a cache line is faster. What it holds at positions never
    /// stored does not matter.
    pub fn page_bytes(&self) -> usize {
        self.kv_heads * self.head_bytes()
    }

    /// Pages that hold `positions` positions.
    pub fn pages_for(positions: usize) -> usize {
        positions.div_ceil(PAGE_POSITIONS)
    }

    /// Cuts positions `first..first + count` by page: (page, first position in the page, positions counted from `first`).
    pub fn spans(first: usize, count: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let position = first + done;
            let offset = position % PAGE_POSITIONS;
            let len = (PAGE_POSITIONS - offset).min(count - done);
            let span = (position / PAGE_POSITIONS, offset, done..done + len);
            done += len;
            (len > 0).then_some(span)
        })
    }

    /// `value_dim` in whole vectors.
    pub(super) fn value_stride(&self) -> usize {
        self.value_dim.next_multiple_of(LANES)
    }

    /// Byte offsets, in a head's part of a page, of key scales, values, value scales and the end.
    pub(super) fn offsets(&self) -> [usize; 4] {
        let scales = |dim: usize| {
            if self.element.has_scales() { dim.div_ceil(SCALE_BLOCK) * PAGE_POSITIONS * 2 } else { 0 }
        };
        let key_scales = self.key_dim * PAGE_POSITIONS * self.element.bytes();
        let values = key_scales + scales(self.key_dim);
        let value_scales = values + PAGE_POSITIONS * self.value_stride() * self.element.bytes();
        [key_scales, values, value_scales, value_scales + scales(self.value_dim)]
    }

    pub(super) fn head_bytes(&self) -> usize {
        self.offsets()[3]
    }
}

impl Ops<'_> {
    /// Stores consecutive positions of one page, the first of which is the page's `offset`th;
    /// k (positions, kv_heads, key_dim), v (positions, kv_heads, value_dim). See [`KvLayout::spans`].
    ///
    /// f16 saturates at +-65504, so that one element out of range does not become infinite.
    pub fn kv_store(self, layout: &KvLayout, page: &mut [u8], offset: usize, k: &[f32], v: &[f32]) {
        let (key_row, value_row) = (layout.kv_heads * layout.key_dim, layout.kv_heads * layout.value_dim);
        let positions = k.len() / key_row;
        assert!(k.len() == positions * key_row && v.len() == positions * value_row);
        assert!(offset + positions <= PAGE_POSITIONS && page.len() >= layout.page_bytes());
        for i in 0..positions {
            let (k, v) = (&k[i * key_row..][..key_row], &v[i * value_row..][..value_row]);
            match layout.element {
                KvElement::F16 => store_f16(self.isa, layout, page, offset + i, k, v),
                KvElement::F32 => store_f32(self.isa, layout, page, offset + i, k, v),
                KvElement::Q8_0 => store_q8_0(self.isa, layout, page, offset + i, k, v),
            }
        }
    }
}

/// Up to 16 numbers in f16, saturated.
#[inline(always)]
fn half_precision<S: Lanes>(s: S, from: &[f32]) -> [u8; 2 * LANES] {
    let x = match from.first_chunk() {
        Some(chunk) => s.load(chunk),
        None => s.load(&padded(from, 0.0)),
    };
    let x = s.max(s.splat(-65504.0), s.min(s.splat(65504.0), x));
    let mut bytes = [0_u8; 2 * LANES];
    // SAFETY: `bytes` holds 16 half-precision numbers.
    unsafe { s.store_f16(x, bytes.as_mut_ptr()) };
    bytes
}

/// One position of f16. `k`, `v`: all heads.
#[inline(always)]
fn store_f16_lanes<S: Lanes>(s: S, layout: &KvLayout, page: &mut [u8], position: usize, k: &[f32], v: &[f32]) {
    let values = layout.offsets()[1];
    let heads = page.chunks_exact_mut(layout.head_bytes()).take(layout.kv_heads);
    for ((head, k), v) in heads.zip(k.chunks_exact(layout.key_dim)).zip(v.chunks_exact(layout.value_dim)) {
        let (columns, _) = head.as_chunks_mut::<{ 2 * PAGE_POSITIONS }>();
        for (columns, part) in columns.chunks_mut(LANES).zip(k.chunks(LANES)) {
            let bytes = half_precision(s, part);
            for (column, element) in columns.iter_mut().zip(bytes.as_chunks::<2>().0).take(part.len()) {
                column[2 * position..][..2].copy_from_slice(element);
            }
        }
        let row = &mut head[values + 2 * position * layout.value_stride()..][..2 * layout.value_stride()];
        for (to, part) in row.as_chunks_mut::<{ 2 * LANES }>().0.iter_mut().zip(v.chunks(LANES)) {
            *to = half_precision(s, part);
        }
    }
}

/// One position of f32.
#[inline(always)]
fn store_f32_lanes<S: Lanes>(_: S, layout: &KvLayout, page: &mut [u8], position: usize, k: &[f32], v: &[f32]) {
    let values = layout.offsets()[1];
    let heads = page.chunks_exact_mut(layout.head_bytes()).take(layout.kv_heads);
    for ((head, k), v) in heads.zip(k.chunks_exact(layout.key_dim)).zip(v.chunks_exact(layout.value_dim)) {
        for (column, x) in head.as_chunks_mut::<{ 4 * PAGE_POSITIONS }>().0.iter_mut().zip(k) {
            column[4 * position..][..4].copy_from_slice(&x.to_ne_bytes());
        }
        let row = &mut head[values + 4 * position * layout.value_stride()..];
        for (to, x) in row.as_chunks_mut::<4>().0.iter_mut().zip(v) {
            *to = x.to_ne_bytes();
        }
    }
}

/// One position of q8_0.
#[inline(always)]
fn store_q8_0_lanes<S: Lanes>(_: S, layout: &KvLayout, page: &mut [u8], position: usize, k: &[f32], v: &[f32]) {
    let [key_scales, values, value_scales, _] = layout.offsets();
    let scale_at = |block: usize| 2 * (block * PAGE_POSITIONS + position);
    let heads = page.chunks_exact_mut(layout.head_bytes()).take(layout.kv_heads);
    for ((head, k), v) in heads.zip(k.chunks_exact(layout.key_dim)).zip(v.chunks_exact(layout.value_dim)) {
        for (block, part) in k.chunks(SCALE_BLOCK).enumerate() {
            let (scale, bytes) = quantize(part);
            head[key_scales + scale_at(block)..][..2].copy_from_slice(&scale.to_ne_bytes());
            for (i, byte) in bytes.iter().enumerate().take(part.len()) {
                head[(block * SCALE_BLOCK + i) * PAGE_POSITIONS + position] = *byte as u8;
            }
        }
        for (block, part) in v.chunks(SCALE_BLOCK).enumerate() {
            let (scale, bytes) = quantize(part);
            head[value_scales + scale_at(block)..][..2].copy_from_slice(&scale.to_ne_bytes());
            let row = &mut head[values + position * layout.value_stride() + block * SCALE_BLOCK..];
            for (to, byte) in row.iter_mut().zip(bytes).take(part.len()) {
                *to = byte as u8;
            }
        }
    }
}

/// The scale, max|x| / 127 in f16, and `x / scale` to the nearest integer, ties to even.
#[inline(always)]
fn quantize(x: &[f32]) -> (u16, [i8; SCALE_BLOCK]) {
    let mut most = 0.0_f32;
    for v in x {
        let v = v.abs();
        most = if v > most { v } else { most };
    }
    let scale = (most / 127.0).min(65504.0);
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut bytes = [0; SCALE_BLOCK];
    for (byte, v) in bytes.iter_mut().zip(x) {
        const ROUND: f32 = 12_582_912.0;
        *byte = ((v * inverse).clamp(-127.0, 127.0) + ROUND - ROUND) as i8;
    }
    (half::f16::from_f32_const(scale).to_bits(), bytes)
}

for_each_isa! {
    fn store_f16(layout: &KvLayout, page: &mut [u8], position: usize, k: &[f32], v: &[f32]) = store_f16_lanes;
}
for_each_isa! {
    fn store_f32(layout: &KvLayout, page: &mut [u8], position: usize, k: &[f32], v: &[f32]) = store_f32_lanes;
}
for_each_isa! {
    fn store_q8_0(layout: &KvLayout, page: &mut [u8], position: usize, k: &[f32], v: &[f32]) = store_q8_0_lanes;
}
