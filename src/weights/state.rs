//! The state of every extent, and which is read next. All of it lives under one lock; no I/O happens here.
//!
//! An extent is on disk, being read, ready in the ring, or pinned. Readers take the unpinned extents in the order of the
//! pass, as far ahead as the ring has slots, and wrap into the next pass. Should something nearer come to be missing (a
//! cut budget, a broken-off pass), the farthest extent that is ready gives up its slot for it, so whatever the engine
//! waits for can always be read.
//!
//! Here is what the engine's side does: passes, demands, leases. [`placing`] says what stays, [`reading`] what comes next.

mod placing;
mod reading;

use std::collections::VecDeque;
use std::sync::Arc;

use super::arena::{HugeArena, Slot};
use super::experts::ExpertCache;
use super::extents::ExtentTable;
use super::figures::{BusyClock, Counters, LayerSums};
use super::plan::Placement;
use super::rows::RowsJob;
use super::store::StoreError;
pub(super) use reading::Job;

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

#[derive(Debug)]
pub(super) struct State {
    pub(super) entries: Vec<Entry>,
    /// Extents being read or ready, oldest first.
    transit: Vec<u32>,
    free: Vec<Arc<Slot>>,
    /// Slots to be dropped once the lock is released: unmapping takes time.
    discarded: Vec<Arc<Slot>>,
    placement: Placement,
    /// Memory of pins over the target.
    over_bytes: u64,
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
    /// Slots are maps of the file.
    mapped: bool,
    pub(super) stop: bool,
}

impl State {
    pub(super) fn new(table: &ExtentTable, mapped: bool) -> Self {
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
            over_bytes: 0,
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
            mapped,
            stop: false,
        }
    }

    // --- the pass ---

    pub(super) fn begin_pass(&mut self, positions: usize, end: u32) {
        self.pass_end = end;
        self.counters.pass_positions = positions as u64;
        self.counters.pass_streamed_bytes = 0;
    }

    /// Ends the pass. True if a reader may have something to do.
    pub(super) fn end_pass(&mut self, table: &ExtentTable) -> bool {
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
        self.on_disk > 0
    }

    /// The router's choice: read next, in this order. True if a reader may have something to do.
    pub(super) fn route(&mut self, table: &ExtentTable, ids: &[u32]) -> bool {
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
        !self.routed.is_empty()
    }

    /// Rows to be read before all else, in the place of others that nobody waits for any more.
    pub(super) fn take_rows(&mut self, job: &Arc<RowsJob>) {
        self.counters.row_read_bytes += job.groups.iter().map(|group| group.span_bytes).sum::<u64>();
        self.rows = Some(Arc::clone(job));
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

    // --- places ---

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
