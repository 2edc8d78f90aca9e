//! A prompt and a token tried out: a few passes, or the beginning of one, and where their time went.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crate::engine::Loaded;
use crate::engine::protocol::{Failure, FailureKind};
use crate::kernels::Cancel;
use crate::model::{Hooks, Model, ModelError, Want};
use crate::weights::calibrate::{DeviceSpeeds, Speeds, overlapped};
use crate::weights::{Placement, WeightStore};

/// How long a prompt is tried, and how long a token.
const PROMPT_TIME: Duration = Duration::from_secs(1);
const TOKEN_TIME: Duration = Duration::from_millis(500);
/// Passes of a prompt that are enough to take the median of.
const PROMPT_PASSES: usize = 3;
/// Passes of a token that are enough.
const TOKEN_PASSES: usize = 100;

/// Tries a prompt of `positions`, or of as many of them as one pass takes, and then a token.
///
/// # Errors
/// The model cannot be read, or the budget is under the least that runs.
pub fn run(loaded: &mut Loaded, positions: u32, device: DeviceSpeeds) -> Result<Speeds, Failure> {
    let prompt = tried(loaded, positions, PROMPT_TIME, PROMPT_PASSES)?;
    let positions = loaded.model.batch();
    let token = tried(loaded, 1, TOKEN_TIME, TOKEN_PASSES)?;
    let all_bytes = loaded.model.store().table().all_file_bytes();
    Ok(speeds(prompt, positions, token, device, loaded.info.touched_bytes_per_token, all_bytes))
}

/// Where the time of a whole pass goes, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Spent {
    /// Reading the embedding's rows.
    rows_s: f64,
    /// All the rest, and how much of it was waiting for weights.
    walk_s: f64,
    waited_s: f64,
}

impl Spent {
    fn computed_s(&self) -> f64 {
        self.walk_s - self.waited_s
    }
}

fn speeds(
    prompt: Spent,
    positions: usize,
    token: Spent,
    device: DeviceSpeeds,
    touched_bytes: u64,
    all_bytes: u64,
) -> Speeds {
    let disk_s = if device.disk_bytes_s > 0.0 { all_bytes as f64 / device.disk_bytes_s } else { 0.0 };
    let expected_s = overlapped(disk_s, prompt.computed_s());
    Speeds {
        device,
        decode_bytes_s: rate(touched_bytes as f64, token.rows_s + token.computed_s()),
        prefill_bytes_s: rate(touched_bytes as f64 * positions as f64, prompt.computed_s()),
        row_s: prompt.rows_s / positions.max(1) as f64,
        // A moment in which the disk was faster than it mostly is says nothing of what is lost.
        lag: if expected_s > 0.0 { (prompt.walk_s / expected_s).max(1.0) } else { 1.0 },
    }
}

fn rate(bytes: f64, time_s: f64) -> f64 {
    if time_s > 0.0 { bytes / time_s } else { 0.0 }
}

/// The median of the passes of `positions`, or of as many of them as one pass takes, that are possible in the time; or
/// of as much of one as is. Each begins with nothing pinned where that many positions are a prompt.
fn tried(loaded: &mut Loaded, positions: u32, time: Duration, enough: usize) -> Result<Spent, Failure> {
    let failed = |error: ModelError| Failure { kind: FailureKind::Io, message: error.to_string(), shortfall: None };
    loaded.reset();
    loaded.make_room(positions, positions)?;
    let batch = (loaded.model.batch() as u32).clamp(1, positions);
    let ids: Vec<u32> = (0..batch).map(|i| (i * 7919 + 13) % loaded.info.vocabulary.max(1)).collect();
    let until = Instant::now() + time;
    let mut passes = Vec::new();
    while passes.len() < enough && (passes.is_empty() || Instant::now() < until) {
        if positions > 1 {
            give_up_pins(loaded);
        }
        loaded.model.cache_mut().rewind(0);
        let mut clock = Clock::new(until, loaded.model.store());
        match loaded.model.forward(&ids, Want::Last, &mut clock, &Cancel::never()) {
            Ok(()) => {
                let end = clock.now(loaded.model.store());
                passes.extend(clock.whole(end));
            }
            Err(ModelError::Interrupted) if passes.is_empty() => {
                return Ok(clock.part(|layers| share_of_layers(&loaded.model, layers)).unwrap_or_default());
            }
            Err(ModelError::Interrupted) => break,
            Err(error) => return Err(failed(error)),
        }
    }
    Ok(median(passes))
}

/// The pass with the median time.
fn median(mut passes: Vec<Spent>) -> Spent {
    passes.sort_by(|a, b| (a.rows_s + a.walk_s).total_cmp(&(b.rows_s + b.walk_s)));
    passes.get(passes.len() / 2).copied().unwrap_or_default()
}

/// Lets everything pinned go, for the plan in force to fill it anew.
fn give_up_pins(loaded: &mut Loaded) {
    let Some(plan) = loaded.ledger.plan_in_force() else { return };
    let placement = plan.placement;
    let nothing = Placement { pins: 0, pinned_bytes: 0, expert_bytes: 0, whole: false, huge: false, ..placement };
    let store = loaded.model.store_mut();
    store.apply(&nothing);
    store.apply(&placement);
}

/// Share of a pass's weight bytes that these layers have.
fn share_of_layers(model: &Model, layers: std::ops::Range<usize>) -> f64 {
    let table = model.store().table();
    let bytes = |layer: usize| -> u64 { table.layer_extents(layer).map(|id| u64::from(table.extent(id).bytes)).sum() };
    let all: u64 = (0..table.layers()).map(bytes).sum();
    layers.map(bytes).sum::<u64>() as f64 / all.max(1) as f64
}

/// A moment of a pass.
#[derive(Clone, Copy, Debug)]
struct Moment {
    /// Since its beginning, and how much of that was waiting.
    elapsed: Duration,
    waited: Duration,
}

/// Notes when each layer began, and ends the pass when the time is over.
struct Clock {
    until: Instant,
    began: Instant,
    waited_before_us: u64,
    layers: Vec<(usize, Moment)>,
}

impl Clock {
    fn new(until: Instant, store: &WeightStore) -> Self {
        Self { until, began: Instant::now(), waited_before_us: store.counters().wait_us, layers: Vec::new() }
    }

    fn now(&self, store: &WeightStore) -> Moment {
        let waited = Duration::from_micros(store.counters().wait_us.saturating_sub(self.waited_before_us));
        Moment { elapsed: self.began.elapsed(), waited }
    }

    /// Of a pass that ended so.
    fn whole(&self, end: Moment) -> Option<Spent> {
        let &(_, first) = self.layers.first()?;
        Some(spent(first, first, end, 1.0))
    }

    /// Of a pass that was broken off: what it would have been. The first layer meets cold caches and parked threads.
    fn part(&self, share_of: impl Fn(std::ops::Range<usize>) -> f64) -> Option<Spent> {
        let [(_, rows), (first, from), .., (last, to)] = *self.layers.as_slice() else { return None };
        let share = share_of(first..last);
        (share > 0.0).then(|| spent(rows, from, to, share))
    }
}

/// `rows` is when the embedding's rows were there; the walk took `share` of itself between two moments.
fn spent(rows: Moment, from: Moment, to: Moment, share: f64) -> Spent {
    let between = |from: Duration, to: Duration| to.saturating_sub(from).as_secs_f64() / share;
    Spent {
        rows_s: rows.elapsed.as_secs_f64(),
        walk_s: between(from.elapsed, to.elapsed),
        waited_s: between(from.waited, to.waited),
    }
}

impl Hooks for Clock {
    fn at_extents(&mut self, store: &mut WeightStore, layer: usize) -> ControlFlow<()> {
        // Called at each extent; the first of a layer counts.
        if self.layers.last().is_none_or(|(last, _)| *last != layer) {
            self.layers.push((layer, self.now(store)));
        }
        // Three layers at least: the second one's time is told by the third's beginning.
        let enough = self.layers.len() > 3;
        if enough && Instant::now() >= self.until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(elapsed_ms: u64, waited_ms: u64) -> Moment {
        Moment { elapsed: Duration::from_millis(elapsed_ms), waited: Duration::from_millis(waited_ms) }
    }

    fn clock(layers: Vec<(usize, Moment)>) -> Clock {
        let now = Instant::now();
        Clock { until: now, began: now, waited_before_us: 0, layers }
    }

    #[test]
    fn rows_are_told_from_the_walk_and_waiting_from_computing() {
        // Waiting for the rows is none of the walk's.
        let clock = clock(vec![(0, moment(5, 4)), (1, moment(20, 10)), (2, moment(40, 14)), (3, moment(60, 18))]);
        let whole = clock.whole(moment(105, 34));
        assert_eq!(whole, Some(Spent { rows_s: 0.005, walk_s: 0.1, waited_s: 0.03 }));
        // Layers 1 and 2 took 40 ms and are two eighths.
        let part = clock.part(|layers| layers.len() as f64 / 8.0);
        assert_eq!(part, Some(Spent { rows_s: 0.005, walk_s: 0.16, waited_s: 0.032 }));
    }

    #[test]
    fn the_median_of_the_passes_counts() {
        let passes = [30.0, 10.0, 20.0].map(|walk_s| Spent { walk_s, ..Spent::default() });
        assert_eq!(median(passes.to_vec()).walk_s, 20.0);
        assert_eq!(median(Vec::new()), Spent::default());
    }

    #[test]
    fn a_first_pass_is_told_to_take_what_it_took() {
        let device = DeviceSpeeds { disk_bytes_s: 1000.0, memory_bytes_s: 0.0 };
        let prompt = Spent { rows_s: 0.5, walk_s: 3.0, waited_s: 2.0 };
        let token = Spent { rows_s: 0.25, walk_s: 1.0, waited_s: 0.5 };
        let slow = speeds(prompt, 10, token, device, 1000, 2000);
        assert_eq!((slow.prefill_bytes_s, slow.decode_bytes_s, slow.row_s), (10_000.0, 1000.0 / 0.75, 0.05));
        let told = slow.lag * overlapped(2000.0 / 1000.0, 10.0 * 1000.0 / slow.prefill_bytes_s);
        assert!((told - prompt.walk_s).abs() < 1e-9);
        // The disk had a good moment.
        let lucky = speeds(Spent { walk_s: 1.0, waited_s: 0.5, ..prompt }, 10, token, device, 1000, 2000);
        assert_eq!(lucky.lag, 1.0);
        assert_eq!(speeds(Spent::default(), 0, Spent::default(), DeviceSpeeds::default(), 0, 0).lag, 1.0);
    }
}
