//! The state of every extent, and which is read next. All of it lives under one lock; no I/O happens here.
//!
//! An extent is on disk, being read, ready in the ring, or pinned. Readers take the unpinned extents in the order of the
//! pass, as far ahead as the ring has slots, and wrap into the next pass. Should something nearer come to be missing (a
//! cut budget, a broken-off pass), the farthest extent that is ready gives up its slot for it, so whatever the engine
//! waits for can always be read.

use std::collections::VecDeque;
use std::sync::Arc;

use super::arena::{HugeArena, Slot};
use super::experts::ExpertCache;
use super::extents::ExtentTable;
use super::figures::{BusyClock, Counters, LayerSums};
use super::plan::Placement;
use super::readers::ReadExtent;
use super::rows::RowsJob;
use super::store::StoreError;

/// Where an extent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Disk,
    Reading,
    /// In the ring.
    Ready,
    /// Kept from pass to pass.
    Pinned,
    /// The last read failed; the failure waits for whoever asks for the extent.
    Failed,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) place: Place,
    leases: u16,
    /// Time the read took, until it is accounted to a pass.
    read_us: u32,
    slot: Option<Arc<Slot>>,
    /// The pass that an expert was routed in.
    routed_in: u64,
}

/// What a reader is to do next.
pub(super) enum Job {
    Extent {
        id: u32,
        /// A slot to reuse, or none: then the reader makes one of its own.
        slot: Option<Arc<Slot>>,
    },
    Rows {
        job: Arc<RowsJob>,
        group: usize,
    },
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) entries: Vec<Entry>,
    /// Extents being read or ready, oldest first.
    transit: Vec<u32>,
    free: Vec<Arc<Slot>>,
    /// Slots to be dropped once the lock is released: unmapping takes time.
    discarded: Vec<Arc<Slot>>,
    placement: Placement,
    arena: Option<Arc<HugeArena>>,
    /// Passes so far, and the extent that the pass under way will use next.
    pass: u64,
    next: u32,
    pass_end: u32,
    /// Next extent to read, counted over all passes.
    cursor: u64,
    /// Extents that every pass needs and that are on disk.
    on_disk: u32,
    routed: VecDeque<u32>,
    /// What the engine waits for.
    demanded: Option<u32>,
    pub(super) experts: ExpertCache,
    pub(super) rows: Option<Arc<RowsJob>>,
    failures: Vec<(u32, StoreError)>,
    /// The last read failed: nothing is read ahead until one that somebody waits for succeeds.
    ailing: bool,
    pub(super) counters: Counters,
    pub(super) busy: BusyClock,
    pub(super) layers: Vec<LayerSums>,
    /// Layer under the kernels.
    pub(super) computing: Option<u16>,
    slot_bytes: u64,
    pub(super) stop: bool,
}

impl State {
    pub(super) fn new(table: &ExtentTable) -> Self {
        let entry = || Entry { place: Place::Disk, leases: 0, read_us: 0, slot: None, routed_in: 0 };
        let mut layers = vec![LayerSums::default(); table.layers()];
        for extent in table.extents() {
            layers[usize::from(extent.layer)].bytes += u64::from(extent.bytes);
        }
        let experts = ExpertCache::new(table);
        let counters = Counters { experts: experts.experts(), ..Counters::default() };
        Self {
            entries: (0..table.len()).map(|_| entry()).collect(),
            transit: Vec::new(),
            free: Vec::new(),
            discarded: Vec::new(),
            placement: Placement::default(),
            arena: None,
            pass: 0,
            next: 0,
            pass_end: table.len(),
            cursor: 0,
            on_disk: table.pin_order().order().len() as u32,
            routed: VecDeque::new(),
            demanded: None,
            experts,
            rows: None,
            failures: Vec::new(),
            ailing: false,
            counters,
            busy: BusyClock::default(),
            layers,
            computing: None,
            slot_bytes: 0,
            stop: false,
        }
    }

    // --- the pass ---

    pub(super) fn begin_pass(&mut self, positions: usize, end: u32) {
        self.pass_end = end;
        self.counters.pass_positions = positions as u64;
        self.counters.pass_streamed_bytes = 0;
    }

    pub(super) fn end_pass(&mut self, table: &ExtentTable) {
        self.pass += 1;
        self.next = 0;
        self.pass_end = table.len();
        self.cursor = self.cursor.max(self.base(table));
        self.demanded = None;
        self.routed.clear();
        self.computing = None;
        // Experts that were read for a pass that did not come to use them.
        let mut at = 0;
        while let Some(&id) = self.transit.get(at) {
            if table.extent(id).expert.is_some() && self.is_idle_ready(id) {
                // It leaves the list, and the next one takes its place.
                self.recycle(table, id);
            } else {
                at += 1;
            }
        }
        self.counters.passes += 1;
        self.counters.last_pass_streamed_bytes = self.counters.pass_streamed_bytes;
        self.layers.iter_mut().for_each(LayerSums::end_pass);
    }

    /// The router's choice: read next, in this order.
    pub(super) fn route(&mut self, table: &ExtentTable, ids: &[u32]) {
        for &id in ids {
            self.experts.used(table, id, self.pass);
            self.counters.expert_uses += 1;
            let entry = &mut self.entries[id as usize];
            entry.routed_in = self.pass;
            match entry.place {
                Place::Pinned | Place::Ready => self.counters.expert_hits += 1,
                Place::Disk => self.routed.push_back(id),
                Place::Reading | Place::Failed => {}
            }
        }
    }

    fn base(&self, table: &ExtentTable) -> u64 {
        self.pass * u64::from(table.len())
    }

    /// How many extents of the walk come before this one; an expert that nobody waits for comes last.
    fn distance(&self, table: &ExtentTable, id: u32) -> u32 {
        if table.extent(id).expert.is_some() {
            return if self.entries[id as usize].routed_in == self.pass { 0 } else { u32::MAX };
        }
        if id >= self.next { id - self.next } else { id + table.len() - self.next }
    }

    // --- what the engine asks for ---

    pub(super) fn place(&self, id: u32) -> Place {
        self.entries[id as usize].place
    }

    /// The memory of an extent, if it is there now.
    pub(super) fn resident(&self, id: u32) -> Option<&Slot> {
        let entry = &self.entries[id as usize];
        if matches!(entry.place, Place::Ready | Place::Pinned) { entry.slot.as_deref() } else { None }
    }

    /// Puts an extent that is not here at the head of what is read. True if readers should look.
    pub(super) fn demand(&mut self, table: &ExtentTable, id: u32) -> bool {
        if self.demanded == Some(id) {
            return false;
        }
        self.demanded = Some(id);
        if table.extent(id).expert.is_some() {
            self.entries[id as usize].routed_in = self.pass;
            self.routed.retain(|&other| other != id);
            self.routed.push_front(id);
        } else {
            self.next = id;
            self.cursor = self.cursor.min(self.base(table) + u64::from(id));
        }
        true
    }

    /// The failure that waits for this extent; the extent can be read again.
    pub(super) fn take_failure(&mut self, table: &ExtentTable, id: u32) -> Option<StoreError> {
        if self.entries[id as usize].place == Place::Failed {
            self.set_on_disk(table, id);
        }
        let at = self.failures.iter().position(|(failed, _)| *failed == id)?;
        Some(self.failures.swap_remove(at).1)
    }

    /// Extents of the ring that one lease may hold, so that readers have slots while the kernels are at work.
    pub(super) fn lease_limit(&self) -> usize {
        (self.placement.ring_slots as usize / 4).max(1)
    }

    /// Takes a lease on an extent that is in memory. True if it came from the ring.
    pub(super) fn lease(&mut self, table: &ExtentTable, id: u32) -> Option<(Arc<Slot>, bool)> {
        let entry = &mut self.entries[id as usize];
        if !matches!(entry.place, Place::Ready | Place::Pinned) {
            return None;
        }
        let slot = entry.slot.clone()?;
        entry.leases += 1;
        let from_ring = entry.place == Place::Ready;
        let read_us = std::mem::take(&mut entry.read_us);
        let extent = table.extent(id);
        if extent.expert.is_none() {
            self.next = id;
        }
        if self.demanded == Some(id) {
            self.demanded = None;
        }
        if from_ring && self.entries[id as usize].leases == 1 {
            let (_, bytes) = table.read_span(id);
            self.counters.pass_streamed_bytes += bytes;
            self.counters.streamed_bytes += bytes;
            self.layers[usize::from(extent.layer)].read(read_us);
        }
        Some((slot, from_ring))
    }

    /// Gives a lease back. True if a reader may have something to do.
    pub(super) fn give_back(&mut self, table: &ExtentTable, id: u32) -> bool {
        let entry = &mut self.entries[id as usize];
        entry.leases = entry.leases.saturating_sub(1);
        let (place, leases) = (entry.place, entry.leases);
        if table.extent(id).expert.is_none() && id >= self.next {
            self.next = id + 1;
        }
        if leases > 0 {
            return false;
        }
        match (place, self.keeps(table, id)) {
            (Place::Ready, true) => self.pin(table, id),
            (Place::Ready, false) => self.recycle(table, id),
            (Place::Pinned, false) => self.unpin(table, id),
            _ => return false,
        }
        self.on_disk > 0 || !self.routed.is_empty()
    }

    // --- pins ---

    /// Whether an extent is to stay, now that it has been used.
    fn keeps(&mut self, table: &ExtentTable, id: u32) -> bool {
        if table.extent(id).expert.is_none() {
            return table.pin_order().rank(id) < self.placement.pins;
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

    fn pin(&mut self, table: &ExtentTable, id: u32) {
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

    fn unpin(&mut self, table: &ExtentTable, id: u32) {
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
        if pinned {
            layer.pinned_bytes += file_bytes;
        } else {
            layer.pinned_bytes -= file_bytes;
        }
        match (extent.expert.is_some(), pinned) {
            (true, true) => self.experts.insert(table, id),
            (true, false) => self.experts.remove(table, id),
            (false, true) => self.counters.pinned_bytes += memory,
            (false, false) => self.counters.pinned_bytes -= memory,
        }
    }

    // --- slots ---

    fn is_idle_ready(&self, id: u32) -> bool {
        let entry = &self.entries[id as usize];
        entry.place == Place::Ready && entry.leases == 0
    }

    fn set_on_disk(&mut self, table: &ExtentTable, id: u32) {
        let entry = &mut self.entries[id as usize];
        entry.place = Place::Disk;
        entry.read_us = 0;
        if table.extent(id).expert.is_none() {
            self.on_disk += 1;
        }
    }

    /// Takes an extent out of the ring; its slot is free, or goes if the ring has enough.
    fn recycle(&mut self, table: &ExtentTable, id: u32) {
        let slot = self.evict(table, id);
        let room = !self.placement.whole && self.free.len() + self.transit.len() < self.ring_slots();
        match slot {
            Some(slot) if room && !slot.is_in_arena() => self.free.push(slot),
            slot => self.drop_slot(slot),
        }
    }

    /// Takes an extent out of the ring and hands its slot over.
    fn evict(&mut self, table: &ExtentTable, id: u32) -> Option<Arc<Slot>> {
        self.transit.retain(|&other| other != id);
        self.set_on_disk(table, id);
        if table.extent(id).expert.is_none() {
            let at = self.base(table) + u64::from(self.next) + u64::from(self.distance(table, id));
            self.cursor = self.cursor.min(at);
        }
        self.entries[id as usize].slot.take()
    }

    fn drop_slot(&mut self, slot: Option<Arc<Slot>>) {
        if let Some(slot) = slot {
            self.slot_bytes -= slot.resident_bytes();
            self.discarded.push(slot);
        }
    }

    /// Slots to drop after the lock is released.
    pub(super) fn take_discarded(&mut self) -> Vec<Arc<Slot>> {
        std::mem::take(&mut self.discarded)
    }

    /// Slots that extents on their way may take; one, whatever the placement says, for what the engine waits for.
    fn ring_slots(&self) -> usize {
        self.placement.ring_slots.max(u32::from(self.demanded.is_some())) as usize
    }

    // --- what readers do ---

    pub(super) fn next_job(&mut self, table: &ExtentTable) -> Option<Job> {
        if let Some((job, group)) = self.rows.as_ref().and_then(|job| job.next_group().map(|g| (Arc::clone(job), g))) {
            return Some(Job::Rows { job, group });
        }
        let id = self.next_extent(table)?;
        let slot = self.slot_for(table, id)?;
        let entry = &mut self.entries[id as usize];
        entry.place = Place::Reading;
        if table.extent(id).expert.is_none() {
            self.on_disk -= 1;
        } else {
            self.routed.retain(|&other| other != id);
        }
        self.transit.push(id);
        Some(Job::Extent { id, slot })
    }

    /// The nearest extent that is on disk and wanted.
    fn next_extent(&mut self, table: &ExtentTable) -> Option<u32> {
        if self.ailing {
            return self.demanded.filter(|&id| self.place(id) == Place::Disk);
        }
        while let Some(&id) = self.routed.front() {
            if self.entries[id as usize].place == Place::Disk {
                return Some(id);
            }
            self.routed.pop_front();
        }
        if self.on_disk == 0 {
            return None;
        }
        // Until the router has spoken, what comes after it must leave room for the experts.
        let dense = |&&id: &&u32| table.extent(id).expert.is_none();
        let limit = self.ring_slots().div_ceil(2);
        if table.experts_per_layer() > 0
            && self.demanded.is_none()
            && self.transit.iter().filter(dense).count() >= limit
        {
            return None;
        }
        let length = u64::from(table.len());
        let base = self.base(table);
        let here = base + u64::from(self.next);
        self.cursor = self.cursor.max(here);
        while self.cursor < here + length {
            let id = (self.cursor % length) as u32;
            let beyond = self.cursor < base + length && id >= self.pass_end;
            if self.entries[id as usize].place == Place::Disk && !beyond && table.extent(id).expert.is_none() {
                return Some(id);
            }
            self.cursor += 1;
        }
        None
    }

    /// A slot for reading `id` (`Some(None)`: to be made), if one may be had.
    #[expect(clippy::option_option, reason = "no slot now, and a slot still to be made, are different answers")]
    fn slot_for(&mut self, table: &ExtentTable, id: u32) -> Option<Option<Arc<Slot>>> {
        let slot = if self.transit.len() < self.ring_slots() {
            self.free.pop()
        } else {
            match self.farthest(table, id) {
                Some(victim) => self.evict(table, victim),
                // All slots are under the kernels, and the engine waits for one more.
                None if self.demanded == Some(id)
                    && self.transit.iter().all(|&t| self.entries[t as usize].leases > 0) =>
                {
                    None
                }
                None => return None,
            }
        };
        let wanted = table.pin_bytes(id);
        if let Some(mut slot) = slot {
            if slot.is_anonymous()
                && slot.capacity() as u64 >= wanted
                && let Some(inner) = Arc::get_mut(&mut slot)
            {
                let before = inner.resident_bytes();
                inner.reserve(wanted as usize);
                self.hold(inner.resident_bytes() - before);
                return Some(Some(slot));
            }
            self.drop_slot(Some(slot));
        }
        self.hold(wanted);
        let from_arena = self.arena.as_ref().and_then(|arena| arena.take(id as usize));
        Some(from_arena.map(|mut slot| {
            slot.reserve(wanted as usize);
            Arc::new(slot)
        }))
    }

    fn hold(&mut self, bytes: u64) {
        self.slot_bytes += bytes;
        self.counters.peak_slot_bytes = self.counters.peak_slot_bytes.max(self.slot_bytes);
    }

    /// The ready extent that is needed last, if that is after `id`.
    fn farthest(&self, table: &ExtentTable, id: u32) -> Option<u32> {
        let demanded = self.demanded == Some(id);
        let victim = self
            .transit
            .iter()
            .copied()
            .filter(|&other| self.is_idle_ready(other))
            .max_by_key(|&other| self.distance(table, other))?;
        (demanded || self.distance(table, victim) > self.distance(table, id)).then_some(victim)
    }

    /// A read ended. True if other readers should look: the disk works again.
    pub(super) fn finish(&mut self, table: &ExtentTable, id: u32, read: ReadExtent, read_us: u32) -> bool {
        let ailed = std::mem::replace(&mut self.ailing, read.is_err());
        match read {
            Ok(slot) => {
                let entry = &mut self.entries[id as usize];
                entry.place = Place::Ready;
                entry.read_us = read_us;
                entry.slot = Some(slot);
                self.counters.read_bytes += table.read_span(id).1;
                let stale = table.extent(id).expert.is_some() && self.entries[id as usize].routed_in != self.pass;
                if stale {
                    self.recycle(table, id);
                }
                self.shrink_ring(table);
            }
            Err((error, slot)) => {
                self.transit.retain(|&other| other != id);
                match slot {
                    Some(slot) => self.drop_slot(Some(slot)),
                    None => self.slot_bytes -= table.pin_bytes(id),
                }
                self.entries[id as usize].place = Place::Failed;
                self.failures.retain(|(other, _)| *other != id);
                self.failures.push((id, error));
            }
        }
        ailed && !self.ailing
    }

    // --- the placement ---

    pub(super) fn apply(&mut self, table: &ExtentTable, placement: Placement) {
        let before = std::mem::replace(&mut self.placement, placement);
        let order = table.pin_order().order();
        let range = placement.pins.min(before.pins) as usize..(before.pins as usize).min(order.len());
        for &id in &order[range] {
            let entry = &self.entries[id as usize];
            if entry.place == Place::Pinned && entry.leases == 0 {
                self.unpin(table, id);
            }
        }
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

    /// Drops slots over the ring's target; those under way follow when their read ends.
    fn shrink_ring(&mut self, table: &ExtentTable) {
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

    pub(super) fn snapshot(&self) -> Counters {
        let expert_bytes = self.experts.bytes();
        Counters {
            expert_bytes,
            ring_bytes: self.slot_bytes.saturating_sub(self.counters.pinned_bytes + expert_bytes),
            experts_resident: self.experts.experts_resident(),
            disk_busy_us: self.busy.total_us(),
            ..self.counters
        }
    }

    /// Whether any extent of the range is being read or waits in the ring.
    pub(super) fn loading(&self, range: std::ops::Range<u32>) -> bool {
        self.transit.iter().any(|id| range.contains(id))
    }
}
