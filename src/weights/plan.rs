//! The planner: from a budget to where every byte goes. Pure: no clock, no file, no allocation by size of the model.
//!
//! The budget is the whole process. From it come, in this order: what the program itself holds (measured), activations
//! for the positions of one pass, logits, the KV pages in use, the ring; pins take the rest. Nothing is reserved for
//! context that is not in use yet, but the context is only as large as would still fit if every pin were given up.

use super::extents::ExtentTable;

/// Extents in the ring; fewer only where the budget is too small for them.
pub const RING_SLOTS: u32 = 8;
/// The fewest with which reading and computing still overlap.
pub const LEAST_RING_SLOTS: u32 = 4;
/// Positions a prefill pass is at least sized for, where the context holds that many.
pub const LEAST_BATCH: u32 = 128;

/// How much memory the whole process may hold. `auto` is resolved to bytes before planning.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Budget {
    /// The least that runs.
    Least,
    Bytes(u64),
    /// A share of what full residency takes, 0 to 1.
    Share(f64),
}

/// How much context there is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextRequest {
    /// Guaranteed or refused.
    Explicit(u32),
    /// As much as fits, `most` at most. `Budget::Least` has room for `least` from the start and grows with what is in use
    /// beyond it; other budgets may leave room for less, down to what is in use.
    Automatic { least: u32, most: u32 },
}

/// Memory of the activations of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ScratchCost {
    pub fixed_bytes: u64,
    pub position_bytes: u64,
}

impl ScratchCost {
    pub fn bytes(self, positions: u32) -> u64 {
        self.fixed_bytes + self.position_bytes * u64::from(positions)
    }
}

/// Memory of the KV cache: whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KvCost {
    pub page_positions: u32,
    /// One page in all layers.
    pub page_bytes: u64,
}

impl KvCost {
    pub fn bytes(self, positions: u32) -> u64 {
        u64::from(positions.div_ceil(self.page_positions.max(1))) * self.page_bytes
    }
}

/// What the least that runs is made of, by the context that is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeastCost {
    /// What is there whatever the context: the program, small weights, buffers of one pass, logits, the ring.
    pub bare_bytes: u64,
    /// Activations of one more position in a pass.
    pub position_bytes: u64,
    /// Positions that a pass must be possible for, where the context has them.
    pub batch: u32,
    pub kv: KvCost,
}

impl LeastCost {
    fn of(input: &PlanInput) -> Self {
        let PlanInput { table, base_bytes, resident_bytes, scratch, logits_bytes, kv, prefill_batch, .. } = *input;
        Self {
            bare_bytes: base_bytes + resident_bytes + scratch.fixed_bytes + logits_bytes + least_weights(table),
            position_bytes: scratch.position_bytes,
            batch: prefill_batch.unwrap_or(LEAST_BATCH).clamp(1, LEAST_BATCH),
            kv,
        }
    }

    /// Positions of a pass that must be possible at the end of a context.
    fn batch_of(self, context: u32) -> u32 {
        self.batch.min(context.max(1))
    }

    /// The least that runs with this much context in use.
    pub fn bytes(self, context: u32) -> u64 {
        self.bare_bytes + self.position_bytes * u64::from(self.batch_of(context)) + self.kv.bytes(context)
    }

    /// The largest context of `used..=most` positions that runs in `bytes`; `None` where not even `used` does.
    pub fn context_within(self, bytes: u64, used: u32, most: u32) -> Option<u32> {
        let used = used.max(1);
        (self.bytes(used) <= bytes).then(|| largest(used, most, |context| self.bytes(context) <= bytes))
    }
}

/// What a plan is made from. All bytes are resident bytes.
#[derive(Clone, Copy, Debug)]
pub struct PlanInput<'a> {
    pub table: &'a ExtentTable,
    pub budget: Budget,
    /// Everything the process holds that is not listed here, as measured.
    pub base_bytes: u64,
    /// Weights that are never streamed: norms, biases, rope tables. 0 where the measured base holds them already.
    pub resident_bytes: u64,
    pub scratch: ScratchCost,
    pub logits_bytes: u64,
    pub kv: KvCost,
    pub context: ContextRequest,
    /// Positions that the KV cache holds, or will hold before the next plan.
    pub used_positions: u32,
    /// Positions that wait to be read in; 1 while an answer is made.
    pub prompt_positions: u32,
    /// Positions of one prefill pass if the user has fixed them.
    pub prefill_batch: Option<u32>,
    /// Positions of the pass under way, whose activations are in use; `None` between passes.
    pub pass: Option<u32>,
}

/// What the store is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Placement {
    /// The first so many of the pin order.
    pub pins: u32,
    pub pinned_bytes: u64,
    /// Memory for the most used experts.
    pub expert_bytes: u64,
    pub ring_slots: u32,
    pub ring_bytes: u64,
    /// Memory of others that they come to use bit by bit: until then there may be pins over the target in it.
    pub lent_bytes: u64,
    /// Everything is kept: no ring is needed once it is loaded.
    pub whole: bool,
    /// Slots come from arenas of 2 MiB with huge pages, counted whole.
    pub huge: bool,
}

impl Placement {
    pub fn bytes(&self) -> u64 {
        self.pinned_bytes + self.expert_bytes + self.ring_bytes
    }
}

/// One line of the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerLine {
    pub what: &'static str,
    pub bytes: u64,
}

/// Where every byte goes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The budget in bytes.
    pub budget_bytes: u64,
    /// What `Budget::Least` would take now, with room for `least_context` positions.
    pub least_bytes: u64,
    pub least_context: u32,
    pub least_cost: LeastCost,
    /// The budget at which nothing is streamed, at full context.
    pub full_bytes: u64,
    pub context: u32,
    /// Positions of one prefill pass.
    pub batch: u32,
    pub placement: Placement,
    pub scratch_bytes: u64,
    pub kv_bytes: u64,
    pub ledger: Vec<LedgerLine>,
}

impl Plan {
    /// The sum of the ledger.
    pub fn used_bytes(&self) -> u64 {
        self.ledger.iter().map(|line| line.bytes).sum()
    }

    /// Whether weights are read anew each pass.
    pub fn streams(&self) -> bool {
        !self.placement.whole
    }
}

/// A budget under the least that runs, with what the least is made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a budget of {} is less than the {} that the least takes", mib(*.asked_bytes), mib(*.least_bytes))]
pub struct Shortfall {
    pub asked_bytes: u64,
    pub least_bytes: u64,
    /// What the context must hold: all of it where it was asked for, else what is in use.
    pub context: u32,
    pub lines: Vec<LedgerLine>,
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1 << 20) as f64)
}

/// Lays out `input.budget`.
pub fn plan(input: &PlanInput) -> Result<Plan, Shortfall> {
    let in_use = input.used_positions.max(1);
    // `floor` must fit whatever the budget says: an explicit context whole, of an automatic one what is in use.
    let (floor_context, least_context, most_context) = match input.context {
        ContextRequest::Explicit(context) => (context, context, context),
        ContextRequest::Automatic { least, most } => (in_use, least.min(most).max(in_use), most.max(in_use)),
    };
    let needs = Needs(input);
    let least_cost = LeastCost::of(input);
    let least_bytes = least_cost.bytes(least_context);
    let full_bytes = needs.fixed(least_cost, most_context) + whole(input.table).bytes();
    let budget_bytes = match input.budget {
        Budget::Least => least_bytes,
        Budget::Bytes(bytes) => bytes,
        Budget::Share(share) => (full_bytes as f64 * share.clamp(0.0, 1.0)) as u64,
    };
    let Some(fitting) = least_cost.context_within(budget_bytes, floor_context, most_context) else {
        return Err(Shortfall {
            asked_bytes: budget_bytes,
            least_bytes: least_cost.bytes(floor_context),
            context: floor_context,
            lines: needs.least_lines(input.kv.bytes(floor_context), least_cost.batch_of(floor_context)),
        });
    };
    // The least grows with its context.
    let context = if input.budget == Budget::Least { most_context } else { fitting };

    let kv_bytes = input.kv.bytes(input.used_positions);
    let ring_least = ring_bytes(input.table, LEAST_RING_SLOTS);
    let prompt = input.prompt_positions.max(1);
    let wanted = input.prefill_batch.unwrap_or(prompt).clamp(1, prompt);
    let fits = |batch: u32| needs.held(kv_bytes, batch) + ring_least <= budget_bytes;
    let batch = match input.pass {
        Some(batch) if !fits(batch) => {
            let lines = needs.least_lines(kv_bytes, batch);
            let least_bytes = lines.iter().map(|line| line.bytes).sum();
            return Err(Shortfall { asked_bytes: budget_bytes, least_bytes, context: in_use, lines });
        }
        Some(batch) => batch,
        None => largest(1, wanted, fits),
    };

    let held = needs.held(kv_bytes, batch);
    let for_weights = match input.budget {
        // The least is a ring and no more, whatever the context that is not in use yet would leave for a while.
        Budget::Least => least_weights(input.table),
        _ => budget_bytes.saturating_sub(held),
    };
    let placement = place(input.table, for_weights);
    let scratch_bytes = input.scratch.bytes(batch);
    let mut ledger = needs.held_lines(kv_bytes, batch);
    ledger.push(LedgerLine { what: "ring", bytes: placement.ring_bytes });
    ledger.push(LedgerLine { what: "pinned weights", bytes: placement.pinned_bytes });
    ledger.push(LedgerLine { what: "experts", bytes: placement.expert_bytes });
    ledger.retain(|line| line.bytes > 0);
    Ok(Plan {
        budget_bytes,
        least_bytes,
        least_context,
        least_cost,
        full_bytes,
        context,
        batch,
        placement,
        scratch_bytes,
        kv_bytes,
        ledger,
    })
}

/// What the input says that memory is needed for.
struct Needs<'a>(&'a PlanInput<'a>);

impl Needs<'_> {
    /// All but weights, with these KV bytes and positions a pass.
    fn held(&self, kv_bytes: u64, batch: u32) -> u64 {
        let PlanInput { base_bytes, resident_bytes, scratch, logits_bytes, .. } = self.0;
        base_bytes + resident_bytes + scratch.bytes(batch) + logits_bytes + kv_bytes
    }

    fn held_lines(&self, kv_bytes: u64, batch: u32) -> Vec<LedgerLine> {
        vec![
            LedgerLine { what: "program", bytes: self.0.base_bytes },
            LedgerLine { what: "small weights", bytes: self.0.resident_bytes },
            LedgerLine { what: "activations", bytes: self.0.scratch.bytes(batch) },
            LedgerLine { what: "logits", bytes: self.0.logits_bytes },
            LedgerLine { what: "kv cache", bytes: kv_bytes },
        ]
    }

    /// All but weights, with this much context in use.
    fn fixed(&self, least: LeastCost, context: u32) -> u64 {
        self.held(self.0.kv.bytes(context), least.batch_of(context))
    }

    /// What they are with no more than a ring.
    fn least_lines(&self, kv_bytes: u64, batch: u32) -> Vec<LedgerLine> {
        let mut lines = self.held_lines(kv_bytes, batch);
        lines.push(LedgerLine { what: "ring", bytes: least_weights(self.0.table) });
        lines.retain(|line| line.bytes > 0);
        lines
    }
}

fn ring_bytes(table: &ExtentTable, slots: u32) -> u64 {
    u64::from(slots) * table.slot_bytes()
}

/// Weights need a ring, or less where they are smaller than one.
fn least_weights(table: &ExtentTable) -> u64 {
    ring_bytes(table, LEAST_RING_SLOTS).min(all_bytes(table))
}

fn all_bytes(table: &ExtentTable) -> u64 {
    table.pin_order().always_bytes() + table.pin_order().expert_bytes()
}

/// Everything kept.
fn whole(table: &ExtentTable) -> Placement {
    let order = table.pin_order();
    Placement {
        pins: order.order().len() as u32,
        pinned_bytes: order.always_bytes(),
        expert_bytes: order.expert_bytes(),
        ring_slots: RING_SLOTS,
        ring_bytes: 0,
        lent_bytes: 0,
        whole: true,
        huge: false,
    }
}

const HUGE_PAGE: u64 = 2 << 20;

/// Spends `bytes` on weights.
fn place(table: &ExtentTable, bytes: u64) -> Placement {
    let all = all_bytes(table);
    if bytes >= all {
        let huge = all.next_multiple_of(HUGE_PAGE);
        let mut placement = whole(table);
        if all >= HUGE_PAGE && bytes >= huge {
            placement.huge = true;
            placement.pinned_bytes += huge - all;
        }
        return placement;
    }
    let slots = (bytes / table.slot_bytes().max(1)).clamp(1, u64::from(RING_SLOTS)) as u32;
    let ring_bytes = ring_bytes(table, slots);
    let order = table.pin_order();
    let rest = bytes.saturating_sub(ring_bytes);
    let pins = order.count_within(rest);
    let pinned_bytes = order.bytes_of(pins);
    // Every pass reads what every pass needs, and an expert only sometimes: experts come after all the rest.
    let everything_pinned = pins as usize == order.order().len();
    let expert_bytes = if everything_pinned { rest - pinned_bytes } else { 0 };
    Placement { pins, pinned_bytes, expert_bytes, ring_slots: slots, ring_bytes, ..Placement::default() }
}

/// The largest number in `low..=high` that fits, where fewer always fit better; `low` if none does.
fn largest(low: u32, high: u32, fits: impl Fn(u32) -> bool) -> u32 {
    let (mut good, mut bad) = (low, high.max(low).saturating_add(1));
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fits(middle) { good = middle } else { bad = middle }
    }
    good
}

#[cfg(test)]
mod tests;
