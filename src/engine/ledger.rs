//! The budget in force: what was asked for, what it means in bytes now, and the plan made from it.

use std::time::{Duration, Instant};

use super::protocol::{Budget, Failure, FailureKind, LedgerLine, Shortfall};
use crate::kernels::ops::PAGE_POSITIONS;
use crate::model::Model;
use crate::size::format_size;
use crate::weights::memory::{self, Pressure, PressureWatch};
use crate::weights::plan::{self, ContextRequest, KvCost, Plan, PlanInput, ScratchCost};
use crate::weights::{ExtentTable, WeightStore};
use crate::words::counted;

/// Least time between two looks at the machine's memory pressure.
const PRESSURE_PERIOD: Duration = Duration::from_secs(1);
/// Room for what the base grows by between two measurements: code touched for the first time, text, RoPE tables.
const HEADROOM_BYTES: u64 = 1 << 20;

/// What the model's own buffers cost, fixed once it is open.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    pub scratch: ScratchCost,
    pub logits_bytes: u64,
    pub kv: KvCost,
}

impl Costs {
    pub fn of(model: &Model) -> Self {
        let fixed = model.scratch_bytes(0, 0) as u64;
        Self {
            scratch: ScratchCost { fixed_bytes: fixed, position_bytes: model.scratch_bytes(1, 0) as u64 - fixed },
            logits_bytes: 4 * model.hyperparameters().vocabulary as u64,
            kv: KvCost { page_positions: PAGE_POSITIONS as u32, page_bytes: model.cache().group_bytes() as u64 },
        }
    }
}

/// The budget and the plan in force.
pub struct Ledger {
    asked: Budget,
    /// How often another budget came into force.
    changes: u32,
    context: ContextRequest,
    /// Positions of the answer under way, prompt and all, where it is known how long it may become.
    needed_context: u32,
    prefill_batch: Option<u32>,
    costs: Costs,
    base_bytes: u64,
    logit_rows: u64,
    plan: Option<Plan>,
    /// What `auto` was resolved to; shrinks under pressure, grows only when asked.
    automatic_bytes: Option<u64>,
    peak_weight_bytes: u64,
    watch: PressureWatch,
    looked: Option<Instant>,
}

impl Ledger {
    pub fn new(asked: Budget, context: ContextRequest, prefill_batch: Option<u32>, costs: Costs) -> Self {
        Self {
            asked,
            changes: 0,
            context,
            needed_context: 0,
            prefill_batch,
            costs,
            base_bytes: 0,
            logit_rows: 1,
            plan: None,
            automatic_bytes: None,
            peak_weight_bytes: 0,
            watch: PressureWatch::default(),
            looked: None,
        }
    }

    pub fn asked(&self) -> Budget {
        self.asked
    }

    /// Takes another budget for the plans to come.
    pub fn ask(&mut self, budget: Budget) {
        self.asked = budget;
        self.changes += 1;
        self.automatic_bytes = None;
    }

    /// How often another budget came into force, or an automatic one gave way.
    pub fn changes(&self) -> u32 {
        self.changes
    }

    pub fn plan_in_force(&self) -> Option<&Plan> {
        self.plan.as_ref()
    }

    pub fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// Positions that the context may hold.
    pub fn context(&self) -> u32 {
        self.plan.as_ref().map_or(0, |plan| plan.context)
    }

    /// Positions that the context may ever hold, whatever the budget.
    pub fn most_context(&self) -> u32 {
        match self.context {
            ContextRequest::Explicit(context) => context,
            ContextRequest::Automatic { most, .. } => most,
        }
    }

    /// Makes room in the plans to come for the logits of so many positions at once; 1 at first.
    pub fn hold_logits(&mut self, rows: usize) {
        self.logit_rows = rows.max(1) as u64;
    }

    /// Most that pins and ring were given together.
    pub fn peak_weight_bytes(&self) -> u64 {
        self.peak_weight_bytes
    }

    /// Lets an automatic budget give way when the machine is short of memory. Whether it has: a new plan is due.
    pub fn gives_way(&mut self) -> bool {
        let now = Instant::now();
        if self.asked != Budget::Auto || self.automatic_bytes.is_none() {
            return false;
        }
        if self.looked.is_some_and(|last| now - last < PRESSURE_PERIOD) {
            return false;
        }
        self.looked = Some(now);
        self.gives_way_to(memory::pressure(), now)
    }

    fn gives_way_to(&mut self, pressure: Pressure, now: Instant) -> bool {
        let Some(bytes) = self.automatic_bytes else { return false };
        // What an unlimited machine could spare is no measure of what this model takes.
        let held = bytes.min(self.plan.as_ref().map_or(bytes, |plan| plan.full_bytes));
        // Less than the least would only end the answer.
        let least = self.plan.as_ref().map_or(0, |plan| plan.least_bytes);
        let less = self.watch.observe(now, pressure, held).map(|less| less.max(least));
        self.automatic_bytes = Some(less.unwrap_or(bytes));
        let gives_way = less.is_some_and(|less| less < held);
        self.changes += u32::from(gives_way);
        gives_way
    }

    /// Bytes of the KV cache once it holds `positions`.
    pub fn kv_bytes(&self, positions: u32) -> u64 {
        self.costs.kv.bytes(positions)
    }

    /// Whether the plan in force has room for `positions` in the KV cache.
    pub fn has_room(&self, positions: u32) -> bool {
        self.plan.as_ref().is_some_and(|plan| self.costs.kv.bytes(positions) <= plan.kv_bytes)
    }

    /// Makes [`Budget::Least`] have room for so many positions from the start; without this it grows to them.
    pub fn need_context(&mut self, positions: u32) {
        self.needed_context = positions;
    }

    /// Measures what the process holds beside the parts that are priced by themselves; while a conversation goes on it
    /// only grows.
    pub fn measure_base(&mut self, model: &Model) {
        self.measure(model.store(), model.cache().bytes() as u64, model.buffer_bytes() as u64);
    }

    /// The same after something large may have gone: what was held before no longer counts.
    pub fn measure_base_anew(&mut self, model: &Model) {
        memory::give_back_freed();
        self.base_bytes = 0;
        self.measure_base(model);
    }

    /// The same in mid-pass, from what the pass knows of the parts. Whether more is resident than the budget allows: a
    /// new plan is due.
    pub fn measure(&mut self, store: &WeightStore, kv_bytes: u64, buffer_bytes: u64) -> bool {
        let counters = store.counters();
        let slots = counters.pinned_bytes + counters.expert_bytes + counters.ring_bytes;
        let rss = memory::process().rss_bytes;
        let measured = rss.saturating_sub(slots + kv_bytes + buffer_bytes);
        self.base_bytes = self.base_bytes.max(measured + HEADROOM_BYTES);
        self.plan.as_ref().is_some_and(|plan| rss > plan.budget_bytes)
    }

    /// A plan for `used` positions of context of which the last `prompt` are to be read in batches.
    ///
    /// # Errors
    /// The budget is under the least that runs, with the itemised list.
    pub fn plan(&mut self, table: &ExtentTable, used: u32, prompt: u32) -> Result<Plan, Failure> {
        self.plan_for(table, used, prompt, None)
    }

    /// The same in the middle of a pass of `batch` positions: its buffers are in use.
    ///
    /// # Errors
    /// The budget is under the least that runs, or has no room for such a pass.
    pub fn plan_in_pass(&mut self, table: &ExtentTable, used: u32, batch: u32) -> Result<Plan, Failure> {
        self.plan_for(table, used, batch, Some(batch))
    }

    fn plan_for(&mut self, table: &ExtentTable, used: u32, prompt: u32, pass: Option<u32>) -> Result<Plan, Failure> {
        let budget = match self.asked {
            Budget::Least => plan::Budget::Least,
            Budget::Bytes(bytes) => plan::Budget::Bytes(bytes),
            Budget::Share(share) => plan::Budget::Share(share),
            Budget::Auto => {
                let bytes = *self.automatic_bytes.get_or_insert_with(memory::automatic_budget_bytes);
                plan::Budget::Bytes(bytes)
            }
        };
        let context = match (self.asked, self.context) {
            (Budget::Least, ContextRequest::Automatic { least, most }) => {
                ContextRequest::Automatic { least: least.max(self.needed_context), most }
            }
            (_, asked) => asked,
        };
        let input = PlanInput {
            table,
            budget,
            base_bytes: self.base_bytes,
            resident_bytes: 0,
            scratch: self.costs.scratch,
            logits_bytes: self.costs.logits_bytes * self.logit_rows,
            kv: self.costs.kv,
            context,
            used_positions: used,
            prompt_positions: prompt,
            prefill_batch: self.prefill_batch,
            pass,
        };
        let planned = plan::plan(&input).or_else(|shortfall| {
            // A budget that was enough stays so: what the program has grown by may take the headroom.
            let in_force = self.plan.as_ref().is_some_and(|plan| plan.budget_bytes == shortfall.asked_bytes);
            let base_bytes = self.base_bytes.saturating_sub(HEADROOM_BYTES);
            if in_force {
                plan::plan(&PlanInput { base_bytes, ..input }).map_err(|_| shortfall)
            } else {
                Err(shortfall)
            }
        });
        planned.map_err(|shortfall| refused(&shortfall))
    }

    /// Puts the plan in force.
    pub fn adopt(&mut self, plan: Plan, store: &mut WeightStore) {
        store.apply(&plan.placement);
        self.peak_weight_bytes = self.peak_weight_bytes.max(plan.placement.bytes());
        self.plan = Some(plan);
    }
}

fn refused(shortfall: &plan::Shortfall) -> Failure {
    let lines = shortfall.lines.iter().map(|line| LedgerLine { what: line.what, bytes: line.bytes }).collect();
    let in_use = if shortfall.context > 1 {
        format!(" for {} of context", counted(shortfall.context, "token"))
    } else {
        String::new()
    };
    Failure {
        kind: FailureKind::Budget,
        message: format!(
            "a budget of {} is under the {} that this model needs{in_use}",
            format_size(shortfall.asked_bytes),
            format_size(shortfall.least_bytes)
        ),
        shortfall: Some(Shortfall { asked_bytes: shortfall.asked_bytes, least_bytes: shortfall.least_bytes, lines }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::weights::{LeastCost, Placement};

    const MIB: u64 = 1 << 20;

    fn automatic(bytes: u64, least_bytes: u64) -> Ledger {
        let costs = Costs {
            scratch: ScratchCost::default(),
            logits_bytes: 0,
            kv: KvCost { page_positions: PAGE_POSITIONS as u32, page_bytes: 0 },
        };
        let mut ledger = Ledger::new(Budget::Auto, ContextRequest::Explicit(128), None, costs);
        ledger.automatic_bytes = Some(bytes);
        ledger.plan = Some(Plan {
            budget_bytes: bytes,
            least_bytes,
            least_context: 128,
            least_cost: LeastCost::default(),
            full_bytes: 500 * MIB,
            context: 128,
            batch: 1,
            placement: Placement::default(),
            scratch_bytes: 0,
            kv_bytes: 0,
            ledger: Vec::new(),
        });
        ledger
    }

    #[test]
    fn an_automatic_budget_gives_way_down_to_the_least_and_no_further() {
        // More than the model takes: what it takes is what it gives way from.
        let mut ledger = automatic(4000 * MIB, 100 * MIB);
        let start = Instant::now();
        let tight = Pressure { some_percent: 60.0, ..Pressure::default() };
        let mut steps = Vec::new();
        for minute in 0..30 {
            if ledger.gives_way_to(tight, start + Duration::from_secs(60 * minute)) {
                steps.push(ledger.automatic_bytes.unwrap());
            }
        }
        assert_eq!(steps[0], 500 * MIB * 7 / 8);
        assert!(steps.is_sorted_by(|a, b| a > b), "{steps:?}");
        assert_eq!(*steps.last().unwrap(), 100 * MIB, "the last step is the least, and there is none after it");
        assert_eq!(ledger.automatic_bytes, Some(100 * MIB));
    }

    #[test]
    fn an_automatic_budget_at_its_least_stays_there_under_any_pressure() {
        let mut ledger = automatic(100 * MIB, 100 * MIB);
        let worst = Pressure { some_percent: 100.0, full_percent: 100.0, swap_bytes: 1 << 40 };
        assert!(!ledger.gives_way_to(worst, Instant::now()));
        assert_eq!(ledger.automatic_bytes, Some(100 * MIB));
    }
}
