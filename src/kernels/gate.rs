//! The door through which workers come into a dispatch, in one atomic word.

use std::sync::atomic::{AtomicU64, Ordering};

/// Number of the dispatch (32 bits), whether it is open (1), workers that came in (15), workers that are in (16).
#[derive(Default)]
pub(super) struct Gate(AtomicU64);

const IN: u64 = 1;
const CAME: u64 = 1 << 16;
const OPEN: u64 = 1 << 31;
const EPOCH: u64 = 1 << 32;

/// A moment of the gate.
#[derive(Clone, Copy)]
pub(super) struct State(u64);

impl State {
    pub(super) fn epoch(self) -> u32 {
        (self.0 / EPOCH) as u32
    }

    fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// Workers that came in so far.
    pub(super) fn came(self) -> usize {
        (self.0 % OPEN / CAME) as usize
    }

    /// Workers that have not left yet.
    pub(super) fn inside(self) -> usize {
        (self.0 % CAME / IN) as usize
    }
}

impl Gate {
    /// Most workers that the word can count.
    pub(super) const MOST: usize = 1 << 14;

    /// What workers see here, and what they do before they leave, is ordered with the caller's doings.
    pub(super) fn look(&self) -> State {
        State(self.0.load(Ordering::Acquire))
    }

    /// As [`look`](Self::look), in one order with [`open`](Self::open) on all threads.
    pub(super) fn look_in_order(&self) -> State {
        State(self.0.load(Ordering::SeqCst))
    }

    /// Begins the next dispatch. The gate is closed and nobody is in.
    pub(super) fn open(&self) {
        let epoch = State(self.0.load(Ordering::Relaxed)).epoch().wrapping_add(1);
        self.0.store(u64::from(epoch) * EPOCH + OPEN, Ordering::SeqCst);
    }

    /// Nobody comes in any more.
    pub(super) fn close(&self) {
        self.0.fetch_and(!OPEN, Ordering::AcqRel);
    }

    /// Comes in, or does not because the gate is closed; the epoch either way.
    pub(super) fn enter(&self) -> (u32, bool) {
        let mut state = self.look();
        while state.is_open() {
            let next = state.0 + IN + CAME;
            match self.0.compare_exchange_weak(state.0, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return (state.epoch(), true),
                Err(now) => state = State(now),
            }
        }
        (state.epoch(), false)
    }

    pub(super) fn leave(&self) {
        self.0.fetch_sub(IN, Ordering::Release);
    }
}
