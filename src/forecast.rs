//! How a model will run on this machine under any budget, found in about three seconds: the plan for the budget, the
//! device's calibrated speed, and a few passes, or the beginning of one, to see what the arithmetic takes.

mod trial;

use std::path::PathBuf;
use std::time::Duration;

use crate::engine::Loaded;
use crate::engine::protocol::{Budget, Failure, FailureKind, LoadRequest, ModelInfo};
use crate::gguf::Gguf;
use crate::weights::calibrate::{self, Calibration, DeviceSpeeds, Forecast, Speeds};
use crate::weights::{Plan, StoreOptions, memory};

/// Tokens of the prompt that the time to the first token is told for.
pub const PROMPT_TOKENS: u32 = 128;
/// How long the disk is read: other programs' moments must not be taken for its speed.
const DISK_TIME: Duration = Duration::from_secs(1);
/// Memory to measure bandwidth with, as far as the budget has room: the more, the less of it caches hold.
const MEMORY_BYTES: u64 = 128 << 20;
/// Of less than this, caches would be measured.
const LEAST_MEMORY_BYTES: u64 = 64 << 20;

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
        let mut speeds = trial::run(&mut loaded, PROMPT_TOKENS, DeviceSpeeds { disk_bytes_s, ..device })?;
        // What the kernels get through has come out of memory: a busy moment may have hidden it. Unknown stays unknown.
        if speeds.device.memory_bytes_s > 0.0 {
            speeds.device.memory_bytes_s = speeds.device.memory_bytes_s.max(speeds.decode_bytes_s);
        }
        loaded.reset();
        Ok(Self { loaded, speeds })
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
