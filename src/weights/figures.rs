//! What the store tells of itself: totals, and what each layer reads, waits and computes.

use std::time::Instant;

/// What one layer's weights are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LayerState {
    #[default]
    Cold,
    /// Being read or waiting in the ring.
    Loading,
    /// Under the kernels now.
    Computing,
}

/// Figures of one layer; the head is the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LayerFigures {
    pub state: LayerState,
    pub bytes: u64,
    pub pinned_bytes: u64,
    /// The last pass: reading (over all readers), waiting for it, computing.
    pub read_us: u32,
    pub wait_us: u32,
    pub compute_us: u32,
    /// Means over all passes.
    pub mean_read_us: u32,
    pub mean_wait_us: u32,
    pub mean_compute_us: u32,
}

/// Figures of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counters {
    /// Weight bytes read from the source since the store was opened, alignment slack included.
    pub read_bytes: u64,
    /// Embedding rows read from the source, with their slack.
    pub row_read_bytes: u64,
    pub passes: u64,
    /// Positions of the pass under way, or the last.
    pub pass_positions: u64,
    /// Bytes read for the pass under way, and for the last one. Bytes count for the pass that uses them.
    pub pass_streamed_bytes: u64,
    pub last_pass_streamed_bytes: u64,
    /// Sum over all passes.
    pub streamed_bytes: u64,
    /// Time during which at least one read was under way.
    pub disk_busy_us: u64,
    /// Time the engine waited for weights.
    pub wait_us: u64,
    pub compute_us: u64,
    pub pinned_bytes: u64,
    pub expert_bytes: u64,
    /// Slots in the ring or under way.
    pub ring_bytes: u64,
    /// Peak of all slots together.
    pub peak_slot_bytes: u64,
    /// Routed extents of experts, and those among them that were in memory.
    pub expert_uses: u64,
    pub expert_hits: u64,
    /// Experts of all layers, and those wholly in memory.
    pub experts: u32,
    pub experts_resident: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Times {
    read_us: u64,
    wait_us: u64,
    compute_us: u64,
}

/// Sums of one layer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LayerSums {
    pub(super) bytes: u64,
    pub(super) pinned_bytes: u64,
    now: Times,
    last: Times,
    total: Times,
    passes: u64,
}

impl LayerSums {
    pub(super) fn read(&mut self, us: u32) {
        self.now.read_us += u64::from(us);
    }

    pub(super) fn wait(&mut self, us: u64) {
        self.now.wait_us += us;
    }

    pub(super) fn compute(&mut self, us: u32) {
        self.now.compute_us += u64::from(us);
    }

    /// A pass is over; one that was broken off before this layer does not count for it.
    pub(super) fn end_pass(&mut self) {
        let now = std::mem::take(&mut self.now);
        if now.compute_us == 0 && now.wait_us == 0 && now.read_us == 0 {
            return;
        }
        self.last = now;
        self.total.read_us += now.read_us;
        self.total.wait_us += now.wait_us;
        self.total.compute_us += now.compute_us;
        self.passes += 1;
    }

    pub(super) fn figures(&self, state: LayerState) -> LayerFigures {
        let us = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let mean = |value: u64| us(value / self.passes.max(1));
        LayerFigures {
            state,
            bytes: self.bytes,
            pinned_bytes: self.pinned_bytes,
            read_us: us(self.last.read_us),
            wait_us: us(self.last.wait_us),
            compute_us: us(self.last.compute_us),
            mean_read_us: mean(self.total.read_us),
            mean_wait_us: mean(self.total.wait_us),
            mean_compute_us: mean(self.total.compute_us),
        }
    }
}

/// Time during which at least one of several overlapping things goes on.
#[derive(Debug, Default)]
pub(super) struct BusyClock {
    under_way: u32,
    since: Option<Instant>,
    total_us: u64,
}

impl BusyClock {
    pub(super) fn begin(&mut self) {
        self.under_way += 1;
        if self.under_way == 1 {
            self.since = Some(Instant::now());
        }
    }

    pub(super) fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        if self.under_way == 0
            && let Some(since) = self.since.take()
        {
            self.total_us += since.elapsed().as_micros() as u64;
        }
    }

    pub(super) fn total_us(&self) -> u64 {
        self.total_us + self.since.map_or(0, |since| since.elapsed().as_micros() as u64)
    }
}
