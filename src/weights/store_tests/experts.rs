//! Experts: read when routed, kept when hot.

use super::*;

/// Two dense layers around expert layers of `experts` experts.
fn expert_specs(layers: u16, experts: u16, rows: usize) -> Vec<MatrixSpec> {
    let mut specs = specs(layers, rows);
    let bytes = (rows * 68) as u64;
    let end = specs.iter().map(|s| s.offset + bytes).max().unwrap();
    let mut dense = Vec::new();
    for spec in specs.drain(..) {
        let layer = spec.layer;
        let is_down = spec.name.ends_with("down");
        dense.push(MatrixSpec { stage: spec.stage * 2, ..spec });
        if is_down {
            let stage = dense[dense.len() - 1].stage + 1;
            for expert in 0..experts {
                let index = u64::from(layer) * u64::from(experts) + u64::from(expert);
                let offset = end + index * bytes;
                dense.push(MatrixSpec {
                    name: format!("blk.{layer}.exps"),
                    ty: TensorType::Q8_0,
                    k: ROW,
                    rows,
                    part: 0,
                    offset,
                    layer,
                    stage,
                    expert: Some(expert),
                });
            }
        }
    }
    dense.sort_by_key(|spec| spec.stage);
    dense
}

/// A pass in which `choose(layer)` says which experts are routed.
fn walk_experts(store: &mut WeightStore, fixture: &Fixture, mut choose: impl FnMut(u16) -> Vec<u16>) {
    store.begin_pass(1, PassEnd::Head);
    for stage in 0..store.table().stages() {
        let range = store.table().stage_extents(stage);
        if range.is_empty() {
            continue;
        }
        let layer = store.table().extent(range.start).layer;
        let ids: Vec<u32> = if store.table().extent(range.start).expert.is_some() {
            let chosen = choose(layer);
            let ids: Vec<u32> = chosen.iter().flat_map(|&e| store.table().expert_extents(stage, e)).collect();
            store.route(&ids);
            ids
        } else {
            range.collect()
        };
        let mut done = 0;
        while done < ids.len() {
            let lease = store.acquire(ids[done..].iter().copied(), &Cancel::never()).unwrap();
            assert_same(store, fixture, &lease);
            done += lease.len();
            store.release(lease, 1);
        }
    }
    store.end_pass();
}

#[test]
fn only_routed_experts_are_read_and_hot_ones_stay() {
    let fixture = fixture(expert_specs(4, 16, 200));
    for kind in SOURCES {
        let mut store = WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(kind)).unwrap();
        let order_bytes = store.table().pin_order().always_bytes();
        let every_always = store.table().pin_order().order().len() as u32;
        let expert_bytes = store.table().pin_order().expert_bytes() / 4;
        let target = Placement {
            pins: every_always,
            pinned_bytes: order_bytes,
            expert_bytes,
            ring_slots: 8,
            ring_bytes: 8 * store.table().slot_bytes(),
            ..Placement::default()
        };
        store.apply(&target);
        // Two hot experts of each layer, and two that change.
        let mut random = 5u64;
        let mut choose = |_layer: u16| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let other = 4 + (random >> 40) as u16 % 6;
            vec![0, 1, other, other + 6]
        };
        for _ in 0..30 {
            walk_experts(&mut store, &fixture, &mut choose);
        }
        let before = store.counters();
        for _ in 0..30 {
            walk_experts(&mut store, &fixture, &mut choose);
            let counters = store.counters();
            assert!(counters.expert_bytes <= expert_bytes);
            assert!(counters.ring_bytes <= target.ring_bytes);
        }
        let after = store.counters();
        let uses = after.expert_uses - before.expert_uses;
        let hit_rate = (after.expert_hits - before.expert_hits) as f64 / uses as f64;
        assert!(hit_rate >= 0.5, "the hot half of the uses is always there: {hit_rate}");
        let experts = store.table().extents().iter().filter(|extent| extent.expert.is_some());
        let one = experts.map(|extent| extent.bytes).max().unwrap();
        let missed = uses - (after.expert_hits - before.expert_hits);
        let streamed = (after.streamed_bytes - before.streamed_bytes) as f64 / f64::from(one);
        let slack = 2 * store.table().params().alignment;
        let expected = (missed * (u64::from(one) + slack)) as f64 / f64::from(one);
        assert!(streamed <= expected, "{streamed} extents read for {missed} misses");
        assert!(after.experts_resident >= 8);
        // A prompt through all experts reads each once and forgets none of the hot.
        walk_experts(&mut store, &fixture, |_| (0..16).collect());
        let before = store.counters();
        walk_experts(&mut store, &fixture, |_| vec![0, 1]);
        let after = store.counters();
        assert_eq!(after.expert_hits - before.expert_hits, after.expert_uses - before.expert_uses);
    }
}

#[test]
fn experts_stream_through_the_smallest_ring_in_any_order() {
    let fixture = fixture(expert_specs(3, 8, 200));
    for ring in [1, 2, 4] {
        let mut store =
            WeightStore::open(std::slice::from_ref(&fixture.path), &fixture.specs, options(SourceKind::Direct))
                .unwrap();
        store.apply(&placement(store.table(), 0, ring));
        for n in 0..10u16 {
            walk_experts(&mut store, &fixture, |layer| (0..8).map(|e| (e * 3 + layer + n) % 8).collect());
        }
    }
}
