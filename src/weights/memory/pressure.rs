//! Signs that the machine is short of memory, and what an automatic budget does about them.

use std::fs;
use std::time::{Duration, Instant};

/// Stall times of the last ten seconds, in per cent, and what of this process was swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pressure {
    /// Some task waited for memory.
    pub some_percent: f32,
    /// All did.
    pub full_percent: f32,
    pub swap_bytes: u64,
}

/// The machine's pressure; zeros where the kernel keeps no record (before 4.20, or switched off).
pub fn pressure() -> Pressure {
    let text = fs::read_to_string("/proc/pressure/memory").unwrap_or_default();
    Pressure { swap_bytes: super::process().swap_bytes, ..parse(&text) }
}

fn parse(text: &str) -> Pressure {
    let average = |kind: &str| -> f32 {
        let line = text.lines().find(|line| line.split(' ').next() == Some(kind)).unwrap_or("");
        let value = line.split(' ').find_map(|field| field.strip_prefix("avg10="));
        value.and_then(|value| value.parse().ok()).unwrap_or(0.0)
    };
    Pressure { some_percent: average("some"), full_percent: average("full"), swap_bytes: 0 }
}

/// Above this share of stalled time an automatic budget gives way.
const SOME_PERCENT: f32 = 10.0;
/// Swapped out this much more than before: the kernel takes from us already.
const SWAP_BYTES: u64 = 1 << 20;
/// Averages of ten seconds need time to tell whether giving way has helped.
const HOLD: Duration = Duration::from_secs(5);

/// Shrinks an automatic budget, an eighth at a time, while the machine is under pressure. Never grows it: a budget that
/// came back by itself would be taken away again.
#[derive(Debug, Default)]
pub struct PressureWatch {
    swap_bytes: u64,
    last: Option<Instant>,
}

impl PressureWatch {
    /// The budget to fall back to, if it should.
    pub fn observe(&mut self, now: Instant, pressure: Pressure, budget_bytes: u64) -> Option<u64> {
        let swapped = pressure.swap_bytes > self.swap_bytes + SWAP_BYTES;
        let tight = pressure.some_percent > SOME_PERCENT || swapped;
        let held = self.last.is_some_and(|last| now.saturating_duration_since(last) < HOLD);
        if !tight || held {
            return None;
        }
        self.swap_bytes = pressure.swap_bytes;
        self.last = Some(now);
        Some(budget_bytes - budget_bytes / 8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_of_ten_seconds_are_read() {
        let text = "some avg10=12.50 avg60=3.00 avg300=0.10 total=99\nfull avg10=4.25 avg60=1.00 avg300=0.00 total=9\n";
        assert_eq!(parse(text), Pressure { some_percent: 12.5, full_percent: 4.25, swap_bytes: 0 });
        assert_eq!(parse(""), Pressure::default());
    }

    #[test]
    fn a_budget_shrinks_step_by_step_under_pressure_and_not_without() {
        let mut watch = PressureWatch::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let calm = Pressure::default();
        let tight = Pressure { some_percent: 30.0, ..calm };
        assert_eq!(watch.observe(at(0), calm, 800), None);
        assert_eq!(watch.observe(at(1), tight, 800), Some(700));
        assert_eq!(watch.observe(at(2), tight, 700), None, "one step at a time");
        assert_eq!(watch.observe(at(7), tight, 800), Some(700));
        assert_eq!(watch.observe(at(60), calm, 700), None);
        let swapped = Pressure { swap_bytes: 5 << 20, ..calm };
        assert_eq!(watch.observe(at(61), swapped, 800), Some(700));
        assert_eq!(watch.observe(at(90), swapped, 700), None, "swapped before is not swapped again");
    }
}
