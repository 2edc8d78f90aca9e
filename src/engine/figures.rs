//! The figures that the screen shows, gathered at a bounded rate and published latest-wins.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::handle::EngineEnd;
use super::ledger::Ledger;
use super::protocol::{ExpertFigures, GenerationId, LayerFigures, LayerState, Limiter, MemoryFigures, Phase, Snapshot};
use crate::model::{Op, OpTimes};
use crate::weights::calibrate::DeviceSpeeds;
use crate::weights::{self, WeightStore, memory};

/// Least time between two snapshots.
const PERIOD: Duration = Duration::from_millis(80);
/// Least time between two looks at the page cache.
const FILE_CACHE_PERIOD: Duration = Duration::from_secs(1);
/// Share of the time to compute from which on reading memory is what it waits for.
const MEMORY_BOUND: f64 = 0.8;
/// Tokens whose times are kept.
const RECENT: usize = 64;
/// Tokens over which the speed of now is taken.
const NOW: usize = 8;

/// Tokens after which the fastest of them says what the arithmetic takes: the only one would be its own bound.
const SETTLED_TOKENS: u32 = 8;

/// What the arithmetic of a token takes at the least: the fastest since the model was loaded, waits for the disk left
/// out. A mean of the answer under way would bound that answer by itself.
#[derive(Debug, Default)]
pub struct FastestToken {
    least: Option<Duration>,
    tokens: u32,
}

impl FastestToken {
    pub fn token(&mut self, took: Duration) {
        self.tokens = self.tokens.saturating_add(1);
        self.least = Some(self.least.map_or(took, |least| least.min(took)));
    }

    /// Seconds; `None` before enough tokens.
    pub fn compute_s(&self) -> Option<f64> {
        self.least.filter(|_| self.tokens >= SETTLED_TOKENS).map(|least| least.as_secs_f64())
    }
}

/// What the arithmetic of a token takes, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Compute {
    /// At the least.
    Least(f64),
    /// In the mean of the answer under way: enough to see that the disk takes longer, no bound of itself.
    Mean(f64),
}

/// The snapshot under construction.
pub struct Figures {
    snapshot: Snapshot,
    published: Instant,
    layers: Vec<weights::LayerFigures>,
    /// What the page cache held of the model, and when.
    file_cache: Option<(Instant, u64)>,
}

impl Default for Figures {
    fn default() -> Self {
        Self { snapshot: Snapshot::default(), published: Instant::now(), layers: Vec::new(), file_cache: None }
    }
}

impl Figures {
    pub fn phase(&self) -> Phase {
        self.snapshot.phase
    }

    pub fn set_phase(&mut self, phase: Phase) {
        self.snapshot.phase = phase;
    }

    pub fn set_context_used(&mut self, used: u32) {
        self.snapshot.context_used = used;
    }

    /// The bound on a token that streams `streamed` bytes:
    /// `T >= max(streamed / disk, touched / memory, compute)`.
    pub fn set_bound(&mut self, speeds: DeviceSpeeds, streamed: f64, touched_bytes: u64, compute: Compute) {
        let (compute_s, is_mean) = match compute {
            Compute::Least(s) => (s, false),
            Compute::Mean(s) => (s, true),
        };
        let time = |bytes: f64, bytes_s: f64| if bytes_s > 0.0 { bytes / bytes_s } else { 0.0 };
        let disk_s = time(streamed, speeds.disk_bytes_s);
        let memory_s = time(touched_bytes as f64, speeds.memory_bytes_s);
        let speed = &mut self.snapshot.speed;
        speed.disk_calibrated_bytes_s = match speeds.disk_bytes_s as u64 {
            0 => 0,
            known => known.max(speed.disk_bytes_s),
        };
        speed.bound_tok_s = (1.0 / disk_s.max(memory_s).max(compute_s).max(1e-9)) as f32;
        speed.limiter = if disk_s > compute_s {
            Limiter::Disk
        } else if memory_s > MEMORY_BOUND * compute_s {
            Limiter::Memory
        } else {
            Limiter::Compute
        };
        if is_mean && speed.limiter != Limiter::Disk {
            (speed.bound_tok_s, speed.limiter) = (0.0, Limiter::Unknown);
        }
    }

    /// The speed that the bound is of.
    pub fn set_settled(&mut self, tok_s: f64) {
        self.snapshot.speed.settled_tok_s = tok_s as f32;
    }

    /// A model went or came: nothing of the old one's figures remains.
    pub fn clear(&mut self, phase: Phase) {
        self.snapshot = Snapshot { phase, ..Snapshot::default() };
        self.file_cache = None;
    }

    pub fn begin_answer(&mut self, id: GenerationId, prompt_tokens: usize, reused: usize) {
        self.snapshot.generation = Some(id);
        self.snapshot.speed.generated_tokens = 0;
        self.snapshot.speed.now_tok_s = 0.0;
        self.snapshot.speed.mean_tok_s = 0.0;
        self.snapshot.speed.settled_tok_s = 0.0;
        self.snapshot.speed.recent_token_ms.clear();
        self.snapshot.phase =
            Phase::Prefill { done_tokens: reused as u32, total_tokens: prompt_tokens as u32, layer: 0, left_s: 0.0 };
    }

    pub fn prefill_done(&mut self, tok_s: f64) {
        self.snapshot.speed.prefill_tok_s = tok_s as f32;
        self.snapshot.phase = Phase::Decode;
    }

    /// The phase while the prompt is read: `share` of a batch of `batch` positions after `done` is through.
    pub fn prefill_progress(&mut self, done: u32, batch: u32, layer: u32, share: f32, left_s: f32) {
        if let Phase::Prefill { total_tokens, .. } = self.snapshot.phase {
            let done_tokens = done + (batch as f32 * share) as u32;
            self.snapshot.phase = Phase::Prefill { done_tokens, total_tokens, layer, left_s };
        }
    }

    pub fn token(&mut self, took: Duration, mean_tok_s: f64) {
        let speed = &mut self.snapshot.speed;
        speed.generated_tokens += 1;
        if speed.recent_token_ms.len() == RECENT {
            speed.recent_token_ms.remove(0);
        }
        speed.recent_token_ms.push(took.as_secs_f32() * 1e3);
        let last = &speed.recent_token_ms[speed.recent_token_ms.len().saturating_sub(NOW)..];
        speed.now_tok_s = 1e3 * last.len() as f32 / last.iter().sum::<f32>().max(1e-6);
        speed.mean_tok_s = mean_tok_s as f32;
    }

    /// Milliseconds that each of `tokens` decoded tokens spent on each kind of work.
    pub fn set_op_times(&mut self, times: &OpTimes, tokens: u32) {
        let per_token = |op| times.get(op).as_secs_f32() * 1e3 / tokens.max(1) as f32;
        self.snapshot.speed.op_ms = Op::ALL.iter().map(|&op| (op.name(), per_token(op))).collect();
    }

    pub fn finish_answer(&mut self) {
        self.snapshot.generation = None;
        self.snapshot.phase = Phase::Idle;
    }

    /// Takes what the store, the ledger and the kernel say now.
    pub fn take(&mut self, store: &WeightStore, ledger: &Ledger, kv_bytes: u64, context_used: u32) {
        let counters = store.counters();
        self.take_layers(store);
        let process = memory::process();
        let now = Instant::now();
        let fresh = self.file_cache.filter(|(at, _)| now - *at < FILE_CACHE_PERIOD);
        let (_, file_cache_bytes) =
            *self.file_cache.insert(fresh.unwrap_or_else(|| (now, store.file_cache_bytes().unwrap_or(0))));
        if let Some(plan) = ledger.plan_in_force() {
            self.snapshot.memory = MemoryFigures {
                budget: ledger.asked(),
                budget_bytes: plan.budget_bytes,
                least_bytes: plan.least_bytes,
                least_context: plan.least_context,
                least_cost: plan.least_cost,
                full_bytes: plan.full_bytes,
                pinned_bytes: counters.pinned_bytes + counters.expert_bytes,
                ring_bytes: counters.ring_bytes,
                peak_weight_bytes: ledger.peak_weight_bytes(),
                kv_bytes,
                scratch_bytes: plan.scratch_bytes,
                base_bytes: ledger.base_bytes(),
                rss_bytes: process.rss_bytes,
                peak_rss_bytes: process.peak_rss_bytes,
                file_cache_bytes,
                available_bytes: memory::available_bytes(),
            };
        }
        let speed = &mut self.snapshot.speed;
        speed.streamed_bytes_per_token = counters.last_pass_streamed_bytes;
        if counters.disk_busy_us > 0 {
            speed.disk_bytes_s = (counters.read_bytes as f64 * 1e6 / counters.disk_busy_us as f64) as u64;
            if speed.disk_calibrated_bytes_s > 0 {
                speed.disk_calibrated_bytes_s = speed.disk_calibrated_bytes_s.max(speed.disk_bytes_s);
            }
        }
        self.snapshot.context = ledger.context();
        self.snapshot.context_used = context_used;
        let experts = u32::from(store.table().experts_per_layer());
        self.snapshot.experts = (experts > 0).then(|| {
            let (uses, hits) = (counters.expert_uses, counters.expert_hits);
            ExpertFigures {
                total: experts * store.table().layers().saturating_sub(1) as u32,
                resident: counters.experts_resident,
                hit_rate: if uses == 0 { 0.0 } else { hits as f32 / uses as f32 },
            }
        });
    }

    fn take_layers(&mut self, store: &WeightStore) {
        store.layer_figures(&mut self.layers);
        self.snapshot.layers.clear();
        self.snapshot.layers.extend(self.layers.iter().map(|layer| LayerFigures {
            state: match layer.state {
                weights::LayerState::Cold => LayerState::Cold,
                weights::LayerState::Loading => LayerState::Loading,
                weights::LayerState::Computing => LayerState::Computing,
            },
            bytes: layer.bytes,
            pinned_bytes: layer.pinned_bytes,
            read_us: layer.read_us,
            wait_us: layer.wait_us,
            compute_us: layer.compute_us,
            mean_read_us: layer.mean_read_us,
            mean_wait_us: layer.mean_wait_us,
            mean_compute_us: layer.mean_compute_us,
        }));
    }

    /// Whether enough time has passed since the last snapshot.
    pub fn is_due(&self) -> bool {
        self.published.elapsed() >= PERIOD
    }

    pub fn publish(&mut self, end: &EngineEnd) {
        self.published = Instant::now();
        end.snapshots.send_replace(Arc::new(self.snapshot.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_the_arithmetic_is_the_fastest_token_and_unknown_before_there_are_enough() {
        let mut fastest = FastestToken::default();
        for ms in [20, 12, 11, 10, 15, 13, 14] {
            fastest.token(Duration::from_millis(ms));
            assert_eq!(fastest.compute_s(), None, "a few tokens would bound themselves");
        }
        fastest.token(Duration::from_millis(16));
        assert_eq!(fastest.compute_s(), Some(0.010));
        let mut figures = Figures::default();
        figures.set_bound(DeviceSpeeds::default(), 0.0, 1, Compute::Least(0.010));
        let speed = &figures.snapshot.speed;
        assert_eq!((speed.bound_tok_s, speed.limiter), (100.0, Limiter::Compute));
    }

    #[test]
    fn the_mean_of_an_answer_is_no_bound_of_it_but_tells_that_the_disk_is() {
        let mut figures = Figures::default();
        let disk = DeviceSpeeds { disk_bytes_s: 1000.0, memory_bytes_s: 0.0 };
        let mut bound = |streamed| {
            figures.set_bound(disk, streamed, 1, Compute::Mean(0.010));
            (figures.snapshot.speed.bound_tok_s, figures.snapshot.speed.limiter)
        };
        assert_eq!(bound(5.0), (0.0, Limiter::Unknown));
        assert_eq!(bound(20.0), (50.0, Limiter::Disk));
    }

    #[test]
    fn a_disk_that_reads_faster_than_it_was_measured_is_that_fast() {
        let mut figures = Figures::default();
        figures.snapshot.speed.disk_bytes_s = 401;
        figures.set_bound(DeviceSpeeds { disk_bytes_s: 241.0, memory_bytes_s: 0.0 }, 1.0, 1, Compute::Least(0.010));
        assert_eq!(figures.snapshot.speed.disk_calibrated_bytes_s, 401);
        figures.set_bound(DeviceSpeeds::default(), 1.0, 1, Compute::Least(0.010));
        assert_eq!(figures.snapshot.speed.disk_calibrated_bytes_s, 0, "what was never measured stays unknown");
    }
}
