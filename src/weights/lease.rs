//! Extents on loan to the kernels.

use std::ops::Range;
use std::sync::Arc;

use super::arena::Slot;
use super::readers::Shared;

#[derive(Debug)]
pub(super) struct Item {
    pub(super) id: u32,
    pub(super) slot: Arc<Slot>,
    pub(super) bytes: Range<usize>,
}

/// Extents in memory, held for a kernel. Dropping it gives them back, so an error or a cancel on the way leaks nothing;
/// [`super::WeightStore::release`] does the same and keeps the time.
#[derive(Debug)]
pub struct Lease {
    shared: Arc<Shared>,
    items: Vec<Item>,
}

impl Lease {
    pub(super) fn new(shared: Arc<Shared>, items: Vec<Item>) -> Self {
        Self { shared, items }
    }

    /// Extent ids and their bytes, laid out as their pieces say, the rows of a piece interleaved where
    /// [`interleave_of`](super::WeightStore::interleave_of) says so.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.items.iter().map(|item| (item.id, item.slot.bytes(item.bytes.clone())))
    }

    /// How many of the extents asked for are here, in the order asked: at least 1.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Gives the extents back and leaves an empty list to be used again.
    pub(super) fn give_back(mut self, compute_us: u32) -> Vec<Item> {
        let mut items = std::mem::take(&mut self.items);
        return_items(&self.shared, &mut items, compute_us);
        items
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut items = std::mem::take(&mut self.items);
        return_items(&self.shared, &mut items, 0);
    }
}

fn return_items(shared: &Shared, items: &mut Vec<Item>, compute_us: u32) {
    let Some(first) = items.first() else { return };
    let layer = shared.table.extent(first.id).layer;
    let mut state = shared.lock();
    let mut freed = false;
    for Item { id, slot, .. } in items.drain(..) {
        // The store's own reference must be the last one.
        drop(slot);
        freed |= state.give_back(&shared.table, id);
    }
    state.layers[usize::from(layer)].compute(compute_us);
    state.counters.compute_us += u64::from(compute_us);
    state.computing = None;
    shared.unlock(state);
    if freed {
        shared.work.notify_all();
    }
}
