//! What stays in memory: pins, the ring's slots, and what a placement changes about them.

use std::sync::Arc;

use super::{Place, State};
use crate::weights::arena::{HugeArena, Slot};
use crate::weights::extents::ExtentTable;
use crate::weights::plan::{LEAST_RING_SLOTS, Placement};

/// Maps that a ring of more than the least leaves room for: those being made are priced and not yet resident when the
/// program is measured, so it is taken for smaller by them than it is.
const MAPS_IN_PASSING: u32 = 2;

impl State {
    pub(in crate::weights) fn apply(&mut self, table: &ExtentTable, placement: Placement) {
        self.placement = placement;
        let over = self.over(table);
        self.over_bytes = over.iter().filter(|&&id| self.is_pinned(id)).map(|&id| table.pin_bytes(id)).sum();
        self.unpin_surplus(table);
        while self.experts.bytes() > placement.expert_bytes {
            let entries = &self.entries;
            let coldest = self.experts.coldest(table, self.pass, |other| entries[other as usize].leases == 0);
            let Some(coldest) = coldest else { break };
            self.unpin(table, coldest);
        }
        self.shrink_ring(table);
        if placement.huge {
            if self.arena.is_none() && self.slot_bytes == 0 {
                // Without an arena, slots of their own do as well, only slower.
                self.arena = HugeArena::new((0..table.len()).map(|id| table.pin_bytes(id))).ok();
            }
        } else {
            self.arena = None;
        }
    }

    /// No more than this is lent from now on.
    pub(in crate::weights) fn call_in(&mut self, table: &ExtentTable, bytes: u64) {
        self.placement.lent_bytes = self.placement.lent_bytes.min(bytes);
        self.unpin_surplus(table);
    }

    /// Extents that are not to be pins, but for what is lent.
    fn over<'a>(&self, table: &'a ExtentTable) -> &'a [u32] {
        let order = table.pin_order().order();
        &order[(self.placement.pins as usize).min(order.len())..]
    }

    fn is_pinned(&self, id: u32) -> bool {
        self.entries[id as usize].place == Place::Pinned
    }

    /// Unpins what is over the target and what is lent: what the pass has used first, then what was pinned last.
    fn unpin_surplus(&mut self, table: &ExtentTable) {
        if self.over_bytes <= self.placement.lent_bytes {
            return;
        }
        let (over, next) = (self.over(table), self.next);
        let used = over.iter().rev().filter(|&&id| id < next);
        for &id in used.chain(over.iter().rev()) {
            if self.over_bytes <= self.placement.lent_bytes {
                return;
            }
            if self.is_pinned(id) && self.entries[id as usize].leases == 0 {
                self.unpin(table, id);
            }
        }
    }

    /// Drops slots over the ring's target; those under way follow when their read ends.
    pub(super) fn shrink_ring(&mut self, table: &ExtentTable) {
        let slots = self.ring_slots();
        let keep_free = if self.placement.whole { 0 } else { slots.saturating_sub(self.transit.len()) };
        while self.free.len() > keep_free {
            let slot = self.free.pop();
            self.drop_slot(slot);
        }
        while self.transit.len() > slots {
            let ready = self.transit.iter().copied().filter(|&id| self.is_idle_ready(id));
            let Some(id) = ready.max_by_key(|&id| self.distance(table, id)) else { return };
            if self.demanded == Some(id) {
                return;
            }
            let slot = self.evict(table, id);
            self.drop_slot(slot);
        }
    }

    // --- pins ---

    /// Whether an extent is to stay, now that it has been used.
    pub(super) fn keeps(&mut self, table: &ExtentTable, id: u32) -> bool {
        if table.extent(id).expert.is_none() {
            let more = if self.is_pinned(id) { 0 } else { table.pin_bytes(id) };
            let lent = self.over_bytes + more <= self.placement.lent_bytes;
            return lent || table.pin_order().rank(id) < self.placement.pins;
        }
        if self.entries[id as usize].place == Place::Pinned {
            return self.experts.bytes() <= self.placement.expert_bytes;
        }
        let wanted = table.pin_bytes(id);
        if wanted > self.placement.expert_bytes {
            return false;
        }
        while self.experts.bytes() + wanted > self.placement.expert_bytes {
            let entries = &self.entries;
            let pass = self.pass;
            let coldest = self.experts.coldest(table, pass, |other| entries[other as usize].leases == 0);
            match coldest.filter(|&coldest| self.experts.hotter(table, id, coldest, pass)) {
                Some(coldest) => self.unpin(table, coldest),
                None => return false,
            }
        }
        true
    }

    pub(super) fn pin(&mut self, table: &ExtentTable, id: u32) {
        self.transit.retain(|&other| other != id);
        let wanted = table.pin_bytes(id);
        let entry = &mut self.entries[id as usize];
        entry.place = Place::Pinned;
        if let Some(slot) = entry.slot.as_mut().and_then(Arc::get_mut) {
            let before = slot.resident_bytes();
            slot.trim(wanted as usize);
            self.slot_bytes -= before - slot.resident_bytes();
        }
        self.account_pin(table, id, true);
    }

    pub(super) fn unpin(&mut self, table: &ExtentTable, id: u32) {
        self.account_pin(table, id, false);
        let slot = self.entries[id as usize].slot.take();
        self.set_on_disk(table, id);
        // A walk that already read past this extent comes back for it.
        self.cursor = self.cursor.min(self.base(table) + u64::from(self.next));
        self.drop_slot(slot);
    }

    fn account_pin(&mut self, table: &ExtentTable, id: u32, pinned: bool) {
        let extent = table.extent(id);
        let layer = &mut self.layers[usize::from(extent.layer)];
        let (file_bytes, memory) = (u64::from(extent.bytes), table.pin_bytes(id));
        let over = if table.pin_order().rank(id) < self.placement.pins { 0 } else { memory };
        if pinned {
            layer.pinned_bytes += file_bytes;
        } else {
            layer.pinned_bytes -= file_bytes;
        }
        match (extent.expert.is_some(), pinned) {
            (true, true) => self.experts.insert(table, id),
            (true, false) => self.experts.remove(table, id),
            (false, true) => {
                self.counters.pinned_bytes += memory;
                self.over_bytes += over;
            }
            (false, false) => {
                self.counters.pinned_bytes -= memory;
                self.over_bytes -= over;
            }
        }
    }

    // --- slots ---

    /// Takes an extent out of the ring; its slot is free, or goes if the ring has enough.
    pub(super) fn recycle(&mut self, table: &ExtentTable, id: u32) {
        let slot = self.evict(table, id);
        let room = !self.placement.whole && self.free.len() + self.transit.len() < self.ring_slots();
        match slot {
            Some(slot) if room && !slot.is_in_arena() => self.free.push(slot),
            slot => self.drop_slot(slot),
        }
    }

    /// Takes an extent out of the ring and hands its slot over.
    pub(super) fn evict(&mut self, table: &ExtentTable, id: u32) -> Option<Arc<Slot>> {
        self.transit.retain(|&other| other != id);
        self.set_on_disk(table, id);
        if table.extent(id).expert.is_none() {
            let at = self.base(table) + u64::from(self.next) + u64::from(self.distance(table, id));
            self.cursor = self.cursor.min(at);
        }
        self.entries[id as usize].slot.take()
    }

    pub(super) fn drop_slot(&mut self, slot: Option<Arc<Slot>>) {
        if let Some(slot) = slot {
            self.slot_bytes -= slot.resident_bytes();
            self.discarded.push(slot);
        }
    }

    /// Slots to drop after the lock is released.
    pub(in crate::weights) fn take_discarded(&mut self) -> Vec<Arc<Slot>> {
        std::mem::take(&mut self.discarded)
    }

    /// Slots that extents on their way may take; one, whatever the placement says, for what the engine waits for.
    pub(super) fn ring_slots(&self) -> usize {
        let given = self.placement.ring_slots;
        let spare = if self.mapped { given.saturating_sub(LEAST_RING_SLOTS).min(MAPS_IN_PASSING) } else { 0 };
        (given - spare).max(u32::from(self.demanded.is_some())) as usize
    }
}
