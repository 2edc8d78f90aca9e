//! Keys and values of every position so far, in pages that are allocated as the context grows.
//!
//! Growing never copies: a group of pages (one a layer, for the next [`PAGE_POSITIONS`] positions) is mapped when
//! its first position comes, and unmapped when it holds none any more.

use super::hyperparameters::Hyperparameters;
use crate::kernels::ops::{KvElement, KvLayout, Ops, PAGE_POSITIONS};
use crate::weights::arena::{Slot, page_bytes};

/// The cache of all layers.
pub struct KvCache {
    layout: KvLayout,
    layers: usize,
    /// One group for each [`PAGE_POSITIONS`] positions; a group holds a page a layer.
    groups: Vec<Slot>,
    positions: usize,
}

impl KvCache {
    pub fn new(hp: &Hyperparameters, element: KvElement) -> Self {
        let layout = KvLayout { kv_heads: hp.kv_heads, key_dim: hp.key_dim, value_dim: hp.value_dim, element };
        Self { layout, layers: hp.layers, groups: Vec::new(), positions: 0 }
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
        (self.layout.page_bytes() * self.layers).next_multiple_of(page_bytes())
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

    /// Says that `positions` are filled now. Positions past that are forgotten, their memory kept.
    pub fn set_positions(&mut self, positions: usize) {
        self.positions = positions;
    }

    /// Gives back the memory of groups that hold no position.
    pub fn trim(&mut self) {
        self.groups.truncate(self.positions.div_ceil(PAGE_POSITIONS));
    }

    fn page_range(&self, layer: usize) -> std::ops::Range<usize> {
        let bytes = self.layout.page_bytes();
        layer * bytes..(layer + 1) * bytes
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
}
