#![allow(clippy::unwrap_used)]

use proptest::prelude::*;

use super::super::extents::tests::model;
use super::super::extents::{ExtentParams, MatrixSpec};
use super::*;
use crate::gguf::TensorType;

const MIB: u64 = 1 << 20;

fn smollm() -> ExtentTable {
    let specs = model(30, 576, 1536, 49152, TensorType::Q4_1);
    ExtentTable::build(&specs, ExtentParams { alignment: 512, ..ExtentParams::default() }).unwrap()
}

fn input(table: &ExtentTable) -> PlanInput<'_> {
    PlanInput {
        table,
        budget: Budget::Least,
        base_bytes: 18 * MIB,
        resident_bytes: MIB / 4,
        scratch: ScratchCost { fixed_bytes: 100_000, position_bytes: 24_000 },
        logits_bytes: 49152 * 4,
        kv: KvCost { page_positions: 32, page_bytes: 32 * 30 * 2 * 192 * 2 },
        context: ContextRequest::Automatic { least: 512, most: 4096 },
        used_positions: 0,
        prompt_positions: 1,
        prefill_batch: None,
        pass: None,
    }
}

fn at(table: &ExtentTable, mib: u64) -> PlanInput<'_> {
    PlanInput { budget: Budget::Bytes(mib * MIB), ..input(table) }
}

#[test]
fn the_ledger_sums_to_the_budget_but_for_less_than_an_extent() {
    let table = smollm();
    for mib in 40..95 {
        let plan = plan(&at(&table, mib)).unwrap();
        assert_eq!(plan.budget_bytes, mib * MIB);
        assert!(plan.used_bytes() <= plan.budget_bytes, "{mib}");
        assert!(plan.streams());
        assert!(plan.used_bytes() + table.slot_bytes() > plan.budget_bytes, "{mib}: {}", plan.used_bytes());
        assert!(plan.used_bytes() as f64 >= 0.95 * plan.budget_bytes as f64);
        assert_eq!(plan.placement.ring_slots, RING_SLOTS);
        assert_eq!(plan.placement.pinned_bytes, table.pin_order().bytes_of(plan.placement.pins));
    }
}

#[test]
fn everything_is_kept_where_it_fits_and_the_ring_goes() {
    let table = smollm();
    let full = plan(&at(&table, 60)).unwrap().full_bytes;
    let of = |bytes| plan(&PlanInput { budget: Budget::Bytes(bytes), ..input(&table) }).unwrap();
    assert!(of(full).placement.whole);
    let huge = of(full + 4 * MIB).placement;
    assert!(huge.huge && huge.pinned_bytes.is_multiple_of(2 * MIB) && huge.ring_bytes == 0);
    assert_eq!(of(full * 2).placement, huge);
    let share = |share| plan(&PlanInput { budget: Budget::Share(share), ..input(&table) });
    assert_eq!(share(1.0).unwrap().budget_bytes, full);
    assert!(share(1.0).unwrap().placement.whole);
    assert_eq!(share(0.5).unwrap().budget_bytes, full / 2);
}

#[test]
fn the_least_budget_runs_with_the_context_it_was_asked_for_and_a_byte_less_is_refused_with_the_list() {
    let table = smollm();
    for context in [ContextRequest::Explicit(256), ContextRequest::Automatic { least: 512, most: 4096 }] {
        let least = plan(&PlanInput { context, ..input(&table) }).unwrap();
        let wanted = if context == ContextRequest::Explicit(256) { 256 } else { 512 };
        assert_eq!(least.budget_bytes, least.least_bytes);
        let used = PlanInput { context, used_positions: wanted, prompt_positions: 128, ..input(&table) };
        let full = plan(&PlanInput { budget: Budget::Bytes(least.budget_bytes), ..used }).unwrap();
        assert_eq!(full.used_bytes(), least.budget_bytes, "at full context every byte has its use");
        assert_eq!((full.batch, full.placement.ring_slots, full.placement.pins), (128, LEAST_RING_SLOTS, 0));

        let short = PlanInput { budget: Budget::Bytes(least.budget_bytes - 1), ..used };
        let shortfall = plan(&short).unwrap_err();
        assert_eq!(shortfall.least_bytes, least.budget_bytes);
        assert_eq!(shortfall.lines.iter().map(|line| line.bytes).sum::<u64>(), shortfall.least_bytes);
        assert!(shortfall.to_string().contains("is less than"));
    }
}

#[test]
fn the_least_budget_grows_with_the_context_and_never_ends_it() {
    let table = smollm();
    let of = |used_positions| plan(&PlanInput { used_positions, ..input(&table) }).unwrap();
    assert_eq!((of(0).context, of(512).context, of(4000).context), (4096, 4096, 4096));
    assert_eq!(of(0).budget_bytes, of(512).budget_bytes);
    let page_bytes = input(&table).kv.page_bytes;
    assert_eq!(of(513).budget_bytes, of(512).budget_bytes + page_bytes);
    assert_eq!(of(4000).budget_bytes, of(512).budget_bytes + (125 - 16) * page_bytes);
    assert_eq!(of(4000).placement, of(0).placement);
    // Whatever was asked for, the least is told of the same context.
    let other = plan(&at(&table, 80)).unwrap();
    assert_eq!(other.least_bytes, of(0).budget_bytes);
}

#[test]
fn what_a_context_costs_at_the_least_says_how_much_of_it_a_budget_holds() {
    let table = smollm();
    for mib in [24, 27, 30, 60, 200] {
        let held = plan(&at(&table, mib)).map(|plan| plan.context).ok();
        let cost = plan(&input(&table)).unwrap().least_cost;
        assert_eq!(cost.context_within(mib * MIB, 0, 4096), held, "{mib}");
    }
    let cost = plan(&input(&table)).unwrap().least_cost;
    assert_eq!(cost.context_within(27 * MIB, 700, 4096), None, "not below what is in use");
    assert_eq!(cost.bytes(512), plan(&input(&table)).unwrap().least_bytes);
}

#[test]
fn an_explicit_context_is_guaranteed_or_refused() {
    let table = smollm();
    let of = |context, mib| plan(&PlanInput { context: ContextRequest::Explicit(context), ..at(&table, mib) });
    assert_eq!(of(2048, 80).unwrap().context, 2048);
    assert!(of(2048, 60).is_err());
    assert!(of(256, 45).is_ok());
}

#[test]
fn an_automatic_context_is_the_largest_that_fits_without_any_pin() {
    let table = smollm();
    let mut last = 0;
    for mib in [30, 40, 60, 80, 120, 200] {
        let plan = plan(&at(&table, mib)).unwrap();
        assert!(plan.context >= last && plan.context <= 4096);
        last = plan.context;
        let explicit =
            |context| super::plan(&PlanInput { context: ContextRequest::Explicit(context), ..at(&table, mib) }).is_ok();
        assert!(explicit(plan.context));
        assert!(plan.context == 4096 || !explicit(plan.context + 1));
    }
    assert_eq!(last, 4096);
    let small = plan(&at(&table, 27)).unwrap();
    assert!(small.context < 512, "a small budget shortens the context: {}", small.context);
    let used = plan(&PlanInput { used_positions: 700, ..at(&table, 27) });
    assert!(used.is_err(), "but not below what is in use");
}

#[test]
fn kv_pages_come_from_pins_and_go_back() {
    let table = smollm();
    let of = |used_positions| plan(&PlanInput { used_positions, ..at(&table, 80) }).unwrap();
    let (empty, full, again) = (of(0), of(1000), of(0));
    assert_eq!(empty.context, full.context, "nothing but pins gives way");
    assert_eq!(full.kv_bytes, input(&table).kv.page_bytes * 32);
    let moved = empty.placement.pinned_bytes - full.placement.pinned_bytes;
    assert!(moved.abs_diff(full.kv_bytes) < table.slot_bytes());
    assert_eq!(empty, again);
}

#[test]
fn a_prompt_is_one_pass_where_the_pins_can_yield_the_room() {
    let table = smollm();
    let of = |prompt_positions, mib| {
        let used = PlanInput { used_positions: prompt_positions, prompt_positions, ..at(&table, mib) };
        plan(&used).unwrap()
    };
    assert_eq!(of(122, 30).batch, 122);
    assert_eq!(of(1000, 80).batch, 1000);
    let tight = of(1000, 60);
    assert!((128..1000).contains(&tight.batch), "{}", tight.batch);
    assert!(tight.used_bytes() <= tight.budget_bytes);
    let one = plan(&PlanInput { prefill_batch: Some(1), used_positions: 122, prompt_positions: 122, ..at(&table, 60) });
    assert_eq!(one.unwrap().batch, 1);
}

#[test]
fn a_pass_under_way_keeps_its_positions_or_is_refused_and_changes_nothing_of_the_least() {
    let table = smollm();
    let of = |pass, mib| {
        plan(&PlanInput { used_positions: 400, prompt_positions: pass, pass: Some(pass), ..at(&table, mib) })
    };
    let between = plan(&PlanInput { used_positions: 400, ..at(&table, 60) }).unwrap();
    for pass in [1, 300] {
        let during = of(pass, 60).unwrap();
        assert_eq!((during.batch, during.least_bytes, during.context), (pass, between.least_bytes, between.context));
    }
    // What the activations of 300 positions take, 400 of context and a ring would not fit.
    let shortfall = of(300, 34).unwrap_err();
    assert_eq!(shortfall.lines.iter().map(|line| line.bytes).sum::<u64>(), shortfall.least_bytes);
    assert!(shortfall.least_bytes > 34 * MIB && of(128, 34).is_ok());
    // A token is refused what the batches after it could not have.
    let least = between.least_cost.bytes(400);
    let exactly =
        |bytes| PlanInput { used_positions: 400, pass: Some(1), budget: Budget::Bytes(bytes), ..input(&table) };
    assert!(plan(&exactly(least)).is_ok() && plan(&exactly(least - 1)).is_err());
}

#[test]
fn resident_weights_of_the_least_budget_are_flat_in_the_number_of_layers() {
    let of = |layers| {
        let specs = model(layers, 256, 1024, 1000, TensorType::Q4_0);
        let table = ExtentTable::build(&specs, ExtentParams::default()).unwrap();
        plan(&input(&table)).unwrap().placement.bytes()
    };
    assert_eq!(of(4), of(64));
    assert_eq!(of(16), of(64));
}

#[test]
fn pins_are_nested_and_a_small_change_moves_few() {
    let table = smollm();
    let smallest = (0..table.len()).map(|id| table.pin_bytes(id)).min().unwrap();
    let mut last = plan(&at(&table, 39)).unwrap().placement.pins;
    for mib in 40..95 {
        let pins = plan(&at(&table, mib)).unwrap().placement.pins;
        assert!(pins > last && u64::from(pins - last) <= MIB / smallest + 1);
        last = pins;
    }
}

#[test]
fn experts_get_what_is_left_once_the_rest_is_pinned() {
    let mut specs = model(2, 256, 512, 300, TensorType::Q8_0);
    let base = specs.iter().map(|spec| spec.offset).max().unwrap() + (1 << 20);
    let stage = specs.last().unwrap().stage + 1;
    for expert in 0..16u16 {
        let offset = base + u64::from(expert) * 512 * 272;
        let spec = specs[0].clone();
        specs.push(MatrixSpec { rows: 512, k: 256, offset, layer: 2, stage, expert: Some(expert), ..spec });
    }
    let table = ExtentTable::build(&specs, ExtentParams::default()).unwrap();
    let (always, experts) = (table.pin_order().always_bytes(), table.pin_order().expert_bytes());
    let ring = u64::from(RING_SLOTS) * table.slot_bytes();
    let of = |bytes| place(&table, bytes);
    assert_eq!(of(always / 2 + ring).expert_bytes, 0);
    let some = of(always + experts / 2 + ring);
    assert_eq!((some.pinned_bytes, some.expert_bytes), (always, experts / 2));
    assert!(of(always + experts).whole);
}

proptest! {
    #[test]
    fn no_plan_ever_exceeds_its_budget(
        mib in 1u64..200, base in 1u64..60, used in 0u32..5000, prompt in 1u32..5000,
        explicit in prop::option::of(1u32..5000), batch in prop::option::of(1u32..600), position in 100u64..200_000,
    ) {
        let table = smollm();
        let context = match explicit {
            Some(context) => ContextRequest::Explicit(context),
            None => ContextRequest::Automatic { least: 512, most: 4096 },
        };
        let limit = explicit.unwrap_or(4096);
        let used_positions = used.min(limit);
        let input = PlanInput {
            base_bytes: base * MIB,
            scratch: ScratchCost { fixed_bytes: 1000, position_bytes: position },
            context,
            used_positions,
            prompt_positions: prompt.min(used_positions.max(1)),
            prefill_batch: batch,
            ..at(&table, mib)
        };
        match plan(&input) {
            Ok(plan) => {
                prop_assert!(plan.used_bytes() <= plan.budget_bytes);
                prop_assert!(plan.budget_bytes >= plan.least_cost.bytes(plan.context));
                prop_assert!(plan.context >= used_positions.max(1).min(limit) && plan.context <= limit);
                prop_assert!(plan.batch >= 1 && plan.batch <= input.prompt_positions);
                prop_assert!(plan.placement.ring_slots >= LEAST_RING_SLOTS);
            }
            Err(shortfall) => prop_assert!(shortfall.least_bytes > shortfall.asked_bytes),
        }
    }
}
