//! A limit on the rate of reading, shared by all readers: it plays a slower disk.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Credit that an idle disk may save up. A real one saves none; this much hides the jitter of sleeping.
const BURST: Duration = Duration::from_millis(10);

/// Larger than any device's block.
const CHUNK_MULTIPLE: usize = 64 << 10;

#[derive(Debug)]
struct State {
    bytes_s: Option<u64>,
    /// When the bytes admitted so far will have been read.
    free_at: Instant,
    stopped: bool,
}

/// Admits bytes at a rate.
#[derive(Debug)]
pub struct Throttle {
    state: Mutex<State>,
    changed: Condvar,
}

impl Throttle {
    pub fn new(bytes_s: Option<u64>) -> Self {
        let state = State { bytes_s, free_at: Instant::now(), stopped: false };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes to ask for at once: a hundredth of a second's worth, so that a slow disk is played smoothly. Multiples of
    /// [`CHUNK_MULTIPLE`], since direct reads must begin at whole blocks.
    pub fn chunk_bytes(&self) -> usize {
        match self.lock().bytes_s {
            None => usize::MAX,
            Some(rate) => ((rate / 100) as usize).clamp(CHUNK_MULTIPLE, 1 << 20) / CHUNK_MULTIPLE * CHUNK_MULTIPLE,
        }
    }

    /// Returns once `bytes` may count as read, or at once after [`Self::stop`].
    pub fn admit(&self, bytes: usize) {
        let mut state = self.lock();
        let Some(rate) = state.bytes_s else { return };
        let now = Instant::now();
        let start = state.free_at.max(now.checked_sub(BURST).unwrap_or(now));
        let end = start + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        state.free_at = end;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() || state.stopped || state.bytes_s != Some(rate) {
                return;
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub fn set_rate(&self, bytes_s: Option<u64>) {
        let mut state = self.lock();
        state.bytes_s = bytes_s;
        state.free_at = Instant::now();
        self.changed.notify_all();
    }

    /// Lets everyone through from now on.
    pub fn stop(&self) {
        self.lock().stopped = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_in_chunks_begins_at_whole_blocks_at_any_rate() {
        for rate in [1, 100 << 10, 20 << 20, 33_333_333, 1 << 30] {
            let chunk = Throttle::new(Some(rate)).chunk_bytes();
            assert!(chunk > 0 && chunk.is_multiple_of(CHUNK_MULTIPLE), "{rate}: {chunk}");
        }
    }
}
