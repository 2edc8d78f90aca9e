//! Means over the part of an answer that was made under one budget: what the bound on its speed is told from. Those of
//! the whole answer would speak of the budget before for as long again.

use std::time::Instant;

/// How far an answer is.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub at: Instant,
    /// Tokens run.
    pub passes: u32,
    pub streamed_bytes: u64,
    /// Time spent waiting for weights.
    pub waited_us: u64,
}

/// What a token took and streamed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Means {
    pub passes: u32,
    pub pass_s: f64,
    /// Of it, what was not waiting for the disk.
    pub compute_s: f64,
    pub streamed_bytes: f64,
}

/// Since when the budget in force has been so.
#[derive(Clone, Copy, Debug)]
pub struct Settled {
    changes: u32,
    from: Moment,
}

impl Settled {
    /// An answer that begins after so many changes of the budget.
    pub fn new(changes: u32, from: Moment) -> Self {
        Self { changes, from }
    }

    /// The means until `now`; `None` before the first token under the budget in force: one in which it changed is of
    /// neither.
    pub fn means(&mut self, changes: u32, now: Moment) -> Option<Means> {
        if changes != self.changes {
            *self = Self::new(changes, now);
        }
        let passes = now.passes - self.from.passes;
        if passes == 0 {
            return None;
        }
        let each = |all: f64| all / f64::from(passes);
        let pass_s = each((now.at - self.from.at).as_secs_f64());
        let waited_s = each((now.waited_us - self.from.waited_us) as f64 * 1e-6);
        let streamed_bytes = each((now.streamed_bytes - self.from.streamed_bytes) as f64);
        Some(Means { passes, pass_s, compute_s: pass_s - waited_s, streamed_bytes })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn after_a_cut_the_next_token_says_what_is_streamed_now_however_long_nothing_was() {
        let start = Instant::now();
        let moment = |ms, passes, streamed_bytes, waited_us| Moment {
            at: start + Duration::from_millis(ms),
            passes,
            streamed_bytes,
            waited_us,
        };
        let mut settled = Settled::new(0, moment(0, 0, 0, 0));
        assert_eq!(settled.means(0, moment(0, 0, 0, 0)), None);
        let whole = settled.means(0, moment(2000, 100, 0, 0)).unwrap();
        assert_eq!((whole.passes, whole.pass_s, whole.streamed_bytes), (100, 0.02, 0.0));
        // The budget changes in token 101.
        assert_eq!(settled.means(1, moment(2060, 101, 40, 30_000)), None);
        let cut = settled.means(1, moment(2260, 103, 240, 190_000)).unwrap();
        assert_eq!((cut.passes, cut.pass_s, cut.streamed_bytes), (2, 0.1, 100.0));
        assert!((cut.compute_s - 0.02).abs() < 1e-9);
    }
}
