//! Keys and values of every position so far, in pages that are allocated as the context grows.
//!
//! Growing never copies: a group of pages (one an attending layer, for the next [`PAGE_POSITIONS`] positions) is mapped
//! when its first position comes, and unmapped when it holds none any more. Behind its pages a group has what short
//! convolutions remember at its end.

use super::convolution_state::ConvolutionState;
use super::hyperparameters::Hyperparameters;
use crate::kernels::ops::{KvElement, KvLayout, Ops, PAGE_POSITIONS};
use crate::weights::arena::{Slot, page_bytes};

/// What a pass adds to the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KvGrowth {
    /// New groups of pages, the layers that have a page in each, and its bytes.
    pub groups: usize,
    pub attending: usize,
    pub page_bytes: usize,
}

impl KvGrowth {
    /// Bytes that are still untouched when a pass comes to `layer`: what the layers after it will fill. Where not all
    /// have pages it may be told too small.
    pub fn free_at(&self, layer: usize) -> usize {
        let after = self.attending.saturating_sub(layer + 1) * self.page_bytes;
        // Pages of the system lie across those of two layers.
        self.groups * after.saturating_sub(page_bytes())
    }
}

/// The cache of all layers.
pub struct KvCache {
    layout: KvLayout,
    /// Each layer's number among the layers of its kind.
    places: Vec<usize>,
    /// Layers with keys and values.
    attending: usize,
    /// One group for each [`PAGE_POSITIONS`] positions.
    groups: Vec<Slot>,
    positions: usize,
    convolutions: ConvolutionState,
}

impl KvCache {
    pub fn new(hp: &Hyperparameters, element: KvElement) -> Self {
        let layout = KvLayout { kv_heads: hp.kv_heads, key_dim: hp.key_dim, value_dim: hp.value_dim, element };
        let of_kind = |layer: usize| {
            let kind = hp.kinds[layer].is_convolution;
            hp.kinds[..layer].iter().filter(|k| k.is_convolution == kind).count()
        };
        let attending = hp.attending_layers();
        Self {
            layout,
            places: (0..hp.layers).map(of_kind).collect(),
            attending,
            groups: Vec::new(),
            positions: 0,
            convolutions: ConvolutionState::new(hp.layers - attending, hp.convolution, hp.width),
        }
    }

    pub fn layout(&self) -> &KvLayout {
        &self.layout
    }

    /// One layer's page of a group, to be read.
    pub fn page(&self, group: usize, layer: usize) -> &[u8] {
        self.groups[group].bytes(self.page_range(layer))
    }

    /// Positions that are filled.
    pub fn positions(&self) -> usize {
        self.positions
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.groups.len() * self.group_bytes()
    }

    /// Bytes that [`PAGE_POSITIONS`] more positions take.
    pub fn group_bytes(&self) -> usize {
        (self.pages_bytes() + self.convolutions.bytes()).next_multiple_of(page_bytes())
    }

    /// What a pass that ends with `positions` in all adds.
    pub fn growth(&self, positions: usize) -> KvGrowth {
        let groups = positions.div_ceil(PAGE_POSITIONS).saturating_sub(self.groups.len());
        KvGrowth { groups, attending: self.attending, page_bytes: self.layout.page_bytes() }
    }

    /// Makes room for `positions` in all.
    ///
    /// # Errors
    /// The system gives no more memory.
    pub fn reserve(&mut self, positions: usize) -> std::io::Result<()> {
        while self.groups.len() * PAGE_POSITIONS < positions {
            self.groups.push(Slot::anonymous(self.group_bytes())?);
        }
        Ok(())
    }

    /// Says that a pass has filled `positions`.
    pub fn advance(&mut self, positions: usize) {
        self.positions = positions;
        self.convolutions.advance();
    }

    /// Forgets what comes after `positions`, its memory kept. What convolutions remember is there for the ends of pages
    /// only, so more may have to be forgotten: returns what is left.
    pub fn rewind(&mut self, positions: usize) -> usize {
        if positions >= self.positions {
            return self.positions;
        }
        self.positions = positions;
        if !self.convolutions.is_empty() {
            let pages = positions / PAGE_POSITIONS;
            self.positions = pages * PAGE_POSITIONS;
            let range = self.copy_range();
            self.convolutions.restore(pages.checked_sub(1).map(|group| self.groups[group].bytes(range)));
        }
        self.positions
    }

    /// Gives back the memory of groups that hold no position.
    pub fn trim(&mut self) {
        self.groups.truncate(self.positions.div_ceil(PAGE_POSITIONS));
    }

    fn pages_bytes(&self) -> usize {
        self.layout.page_bytes() * self.attending
    }

    fn page_range(&self, layer: usize) -> std::ops::Range<usize> {
        let bytes = self.layout.page_bytes();
        self.places[layer] * bytes..(self.places[layer] + 1) * bytes
    }

    fn copy_range(&self) -> std::ops::Range<usize> {
        self.pages_bytes()..self.pages_bytes() + self.convolutions.bytes()
    }

    /// Stores one layer's keys (positions, kv_heads, key_dim) and values of the positions from `first` on.
    pub fn store(&mut self, ops: Ops<'_>, layer: usize, first: usize, k: &[f32], v: &[f32]) {
        let range = self.page_range(layer);
        let (key_row, value_row) =
            (self.layout.kv_heads * self.layout.key_dim, self.layout.kv_heads * self.layout.value_dim);
        for (group, offset, span) in KvLayout::spans(first, k.len() / key_row) {
            let page = &mut self.groups[group].bytes_mut(range.end)[range.clone()];
            let k = &k[span.start * key_row..span.end * key_row];
            let v = &v[span.start * value_row..span.end * value_row];
            ops.kv_store(&self.layout, page, offset, k, v);
        }
    }

    /// The rows (taps - 1, width) that a layer's convolution has seen last.
    pub fn before(&self, layer: usize) -> &[f32] {
        self.convolutions.before(self.places[layer])
    }

    /// Stores the rows (positions, width) of a layer's convolution for the positions from `first` on.
    pub fn store_convolved(&mut self, layer: usize, first: usize, x: &[f32]) {
        let (range, groups) = (self.copy_range(), &mut self.groups);
        self.convolutions.take(self.places[layer], first, x, |group, at, row| {
            let copy = &mut groups[group].bytes_mut(range.end)[range.clone()];
            for (to, value) in copy[at..].chunks_exact_mut(size_of::<f32>()).zip(row) {
                to.copy_from_slice(&value.to_ne_bytes());
            }
        });
    }
}
