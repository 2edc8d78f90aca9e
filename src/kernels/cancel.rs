//! Stopping work in progress: an atomic epoch that workers compare against the one their work began in.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The work was stopped by [`CancelHandle::cancel`]; what it has written so far is to be thrown away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cancelled")]
pub struct Cancelled;

/// The side that stops work; every clone stops the same.
#[derive(Clone, Debug, Default)]
pub struct CancelHandle {
    epoch: Arc<AtomicU64>,
}

impl CancelHandle {
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops all work whose token was taken before this moment, and none that comes later.
    pub fn cancel(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }

    /// A token for work that begins now.
    pub fn token(&self) -> Cancel {
        Cancel { born: self.epoch.load(Ordering::Relaxed), epoch: Arc::clone(&self.epoch) }
    }
}

/// The side that works: polled between tiles of at most 5 ms, one relaxed load each time.
#[derive(Clone, Debug)]
pub struct Cancel {
    epoch: Arc<AtomicU64>,
    born: u64,
}

impl Cancel {
    /// A token that nothing cancels.
    pub fn never() -> Self {
        CancelHandle::new().token()
    }

    pub fn is_cancelled(&self) -> bool {
        self.epoch.load(Ordering::Relaxed) != self.born
    }

    /// For `?` between tiles.
    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancelling_stops_earlier_tokens_and_spares_later_ones() {
        let handle = CancelHandle::new();
        let before = handle.token();
        assert_eq!(before.check(), Ok(()));
        handle.clone().cancel();
        let after = handle.token();
        assert_eq!(before.check(), Err(Cancelled));
        assert_eq!(before.clone().check(), Err(Cancelled));
        assert_eq!(after.check(), Ok(()));
    }
}
