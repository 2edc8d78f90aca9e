//! What is read next, into which slot, and what comes of it.

use std::sync::Arc;

use super::{Place, State};
use crate::weights::arena::Slot;
use crate::weights::extents::ExtentTable;
use crate::weights::readers::ReadExtent;
use crate::weights::rows::RowsJob;

/// What a reader is to do next.
pub(in crate::weights) enum Job {
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

impl State {
    pub(in crate::weights) fn next_job(&mut self, table: &ExtentTable) -> Option<Job> {
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
    pub(in crate::weights) fn finish(&mut self, table: &ExtentTable, id: u32, read: ReadExtent, read_us: u32) -> bool {
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
}
