//! How a model will run on this machine under any budget, found in about two seconds: the plan for the budget, the
//! device's calibrated speed, and a few passes, or the beginning of one, to see what the arithmetic takes.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::engine::Loaded;
use crate::engine::protocol::{Budget, Failure, FailureKind, LoadRequest, ModelInfo};
use crate::gguf::Gguf;
use crate::kernels::Cancel;
use crate::model::{Hooks, Model, ModelError, Want};
use crate::weights::calibrate::{self, Calibration, DeviceSpeeds, Forecast, Speeds};
use crate::weights::{Plan, StoreOptions, WeightStore, memory};

/// Tokens of the prompt that the time to the first token is told for.
pub const PROMPT_TOKENS: u32 = 128;
/// How long the disk is read, and how long the arithmetic of a token and of a prompt are tried each.
const DISK_TIME: Duration = Duration::from_millis(600);
const TRIAL_TIME: Duration = Duration::from_millis(500);
/// Memory to measure bandwidth with, as far as the budget has room: the more, the less of it caches hold.
const MEMORY_BYTES: u64 = 128 << 20;
/// Of less than this, caches would be measured.
const LEAST_MEMORY_BYTES: u64 = 64 << 20;
/// Positions of the prompt's trial.
const TRIAL_POSITIONS: u32 = 32;

/// A model measured on this machine.
pub struct Measured {
    loaded: Loaded,
    pub speeds: Speeds,
}

/// How the model will run under one budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    pub plan: Plan,
    pub forecast: Forecast,
}

impl Measured {
    /// Opens the model and measures, within the budget; the request's `speeds_file` keeps the device's speeds for the next
    /// time.
    ///
    /// # Errors
    /// The model cannot be opened or read, or the budget is under the least that runs.
    pub fn new(request: LoadRequest) -> Result<Self, Failure> {
        let path = request.path.clone();
        let (disk_limit, cache) = (request.disk_limit, request.speeds_file.clone());
        let mut loaded = Loaded::open(request, &mut |_| {})?;
        let unreadable = |error: String| Failure { kind: FailureKind::Io, message: error, shortfall: None };
        let gguf = Gguf::open(&path).map_err(|error| unreadable(error.to_string()))?;
        let paths: Vec<PathBuf> = gguf.parts().iter().map(|part| part.path.clone()).collect();
        let calibration = Calibration {
            paths: &paths,
            table: loaded.model.store().table(),
            source: loaded.model.store().source(),
            readers: StoreOptions::default().readers,
            threads: loaded.model.pool().threads(),
            disk_time: DISK_TIME,
            memory_bytes: room_to_measure(&loaded),
        };
        let device = calibrate::device_speeds_now(&calibration, cache.as_deref())
            .map_err(|error| unreadable(error.to_string()))?;
        let disk_bytes_s = disk_limit.map_or(device.disk_bytes_s, |limit| device.disk_bytes_s.min(limit as f64));
        let prefill_bytes_s = trial(&mut loaded, TRIAL_POSITIONS)?;
        let decode_bytes_s = trial(&mut loaded, 1)?;
        // What the kernels get through has come out of memory: a busy moment may have hidden it. Unknown stays unknown.
        let memory_bytes_s = match device.memory_bytes_s {
            0.0 => 0.0,
            measured => measured.max(decode_bytes_s),
        };
        let device = DeviceSpeeds { disk_bytes_s, memory_bytes_s };
        loaded.reset();
        Ok(Self { loaded, speeds: Speeds { device, decode_bytes_s, prefill_bytes_s } })
    }

    pub fn info(&self) -> &ModelInfo {
        &self.loaded.info
    }

    /// How it will run under a budget.
    ///
    /// # Errors
    /// The budget is under the least that runs.
    pub fn outlook(&mut self, budget: Budget) -> Result<Outlook, Failure> {
        let Loaded { model, ledger, .. } = &mut self.loaded;
        let asked = ledger.asked();
        ledger.ask(budget);
        let table = model.store().table();
        // What waits for a prompt's first token, and what is there while the answer is made.
        let reading = ledger.plan(table, PROMPT_TOKENS, PROMPT_TOKENS);
        let answering = ledger.plan(table, PROMPT_TOKENS, 1);
        ledger.ask(asked);
        let (batch, plan) = (reading?.batch, answering?);
        let experts_used = model.hyperparameters().experts.map_or(0, |experts| experts.used as u16);
        let forecast = calibrate::forecast(table, &plan.placement, &self.speeds, experts_used, PROMPT_TOKENS, batch);
        Ok(Outlook { plan, forecast })
    }
}

/// Memory that the budget has left for measuring memory, none if too little: pins are not there yet, the ring is.
fn room_to_measure(loaded: &Loaded) -> usize {
    let budget_bytes = loaded.ledger.plan_in_force().map_or(0, |plan| plan.budget_bytes);
    let ring_bytes = loaded.ledger.plan_in_force().map_or(0, |plan| plan.placement.ring_bytes);
    room_of(budget_bytes, memory::process().rss_bytes.max(loaded.ledger.base_bytes() + ring_bytes))
}

fn room_of(budget_bytes: u64, held_bytes: u64) -> usize {
    match budget_bytes.saturating_sub(held_bytes).min(MEMORY_BYTES) {
        room if room < LEAST_MEMORY_BYTES => 0,
        room => room as usize,
    }
}

/// Weight bytes times positions a second of the arithmetic, waits for the disk left out, of the fastest pass of
/// `positions` that is possible in the time, or of as much of one as is.
fn trial(loaded: &mut Loaded, positions: u32) -> Result<f64, Failure> {
    let failed = |error: ModelError| Failure { kind: FailureKind::Io, message: error.to_string(), shortfall: None };
    loaded.reset();
    loaded.make_room(0, positions)?;
    let positions = (loaded.model.batch() as u32).clamp(1, positions);
    let ids: Vec<u32> = (0..positions).map(|i| (i * 7919 + 13) % loaded.info.vocabulary.max(1)).collect();
    let touched_bytes = loaded.info.touched_bytes_per_token as f64;
    let until = Instant::now() + TRIAL_TIME;
    let mut best: f64 = 0.0;
    loop {
        loaded.model.cache_mut().rewind(0);
        let waited_us = loaded.model.store().counters().wait_us;
        let mut clock = Clock { until, began: Instant::now(), waited_us, layers: Vec::new() };
        let outcome = loaded.model.forward(&ids, Want::Last, &mut clock, &Cancel::never());
        let whole = match outcome {
            Ok(()) => true,
            Err(ModelError::Interrupted) => false,
            Err(error) => return Err(failed(error)),
        };
        let waited_us = loaded.model.store().counters().wait_us - waited_us;
        let computed = clock.began.elapsed().saturating_sub(Duration::from_micros(waited_us));
        let (share, time) = match (whole, clock.layers.as_slice()) {
            (true, _) => (1.0, computed),
            // The first layer meets cold caches and parked threads.
            (false, [_, (first, from), .., (last, to)]) if last > first => {
                (share_of_layers(&loaded.model, *first..*last), *to - *from)
            }
            (false, _) => (0.0, Duration::ZERO),
        };
        if !time.is_zero() {
            best = best.max(touched_bytes * share * f64::from(positions) / time.as_secs_f64());
        }
        if !whole || Instant::now() >= until {
            return Ok(best);
        }
    }
}

/// Share of a pass's weight bytes that these layers have.
fn share_of_layers(model: &Model, layers: std::ops::Range<usize>) -> f64 {
    let table = model.store().table();
    let bytes = |layer: usize| -> u64 { table.layer_extents(layer).map(|id| u64::from(table.extent(id).bytes)).sum() };
    let all: u64 = (0..table.layers()).map(bytes).sum();
    layers.map(bytes).sum::<u64>() as f64 / all.max(1) as f64
}

/// Notes when each layer began, in time not spent waiting, and ends the pass when the time is over.
struct Clock {
    until: Instant,
    began: Instant,
    waited_us: u64,
    layers: Vec<(usize, Duration)>,
}

impl Hooks for Clock {
    fn at_extents(&mut self, store: &mut WeightStore, layer: usize) -> ControlFlow<()> {
        // Called at each extent; the first of a layer counts.
        if self.layers.last().is_none_or(|(last, _)| *last != layer) {
            let waited = Duration::from_micros(store.counters().wait_us.saturating_sub(self.waited_us));
            self.layers.push((layer, self.began.elapsed().saturating_sub(waited)));
        }
        // Three layers at least: the second one's time is told by the third's beginning.
        let enough = self.layers.len() > 3;
        if enough && Instant::now() >= self.until { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_measured_only_in_what_the_budget_leaves() {
        const MIB: u64 = 1 << 20;
        assert_eq!(room_of(1000 * MIB, 30 * MIB), 128 << 20);
        assert_eq!(room_of(120 * MIB, 30 * MIB), 90 << 20);
        assert_eq!(room_of(93 * MIB, 30 * MIB), 0, "caches would be measured");
        assert_eq!(room_of(20 * MIB, 30 * MIB), 0);
    }
}
