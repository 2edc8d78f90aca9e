#![allow(clippy::unwrap_used)]

use super::super::extents::{ExtentParams, ExtentTable, MatrixSpec};
use super::*;
use crate::gguf::TensorType;

fn table(matrices: u32, pins: PinPolicy) -> ExtentTable {
    let specs: Vec<MatrixSpec> = (0..matrices)
        .map(|n| MatrixSpec {
            name: String::new(),
            ty: TensorType::Q8_0,
            k: 64,
            rows: 16,
            part: 0,
            offset: u64::from(n) * 4096,
            layer: 0,
            stage: n,
            expert: (n % 7 == 3).then_some(0),
        })
        .collect();
    ExtentTable::build(&specs, ExtentParams { pins, ..ExtentParams::default() }).unwrap()
}

#[test]
fn the_first_of_the_order_are_spread_evenly_however_many() {
    for count in [1, 2, 3, 10, 100, 257, 1000] {
        let order = bit_reversal(count);
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..count).collect::<Vec<_>>(), "each exactly once");
        for pins in 1..=count {
            // Discrepancy: how far any stretch of the pass is from its share of the pins, in pins.
            let mut chosen = order[..pins as usize].to_vec();
            chosen.sort_unstable();
            for (rank, &place) in chosen.iter().enumerate() {
                let share = f64::from(place) * f64::from(pins) / f64::from(count);
                assert!((share - rank as f64).abs() <= 6.0, "{count} {pins}: {share} against {rank}");
            }
        }
    }
    assert!(bit_reversal(0).is_empty());
}

#[test]
fn no_stretch_without_a_pin_is_much_longer_than_the_mean() {
    for (count, pins) in [(240, 24), (240, 100), (4400, 500), (4400, 3000)] {
        let mut chosen = bit_reversal(count)[..pins].to_vec();
        chosen.sort_unstable();
        let longest = chosen.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
        assert!(f64::from(longest) <= 2.5 * f64::from(count) / pins as f64 + 1.0, "{count} {pins}: {longest}");
    }
}

#[test]
fn ranks_and_sums_follow_the_order_and_leave_experts_out() {
    for policy in [PinPolicy::Spread, PinPolicy::Prefix] {
        let table = table(50, policy);
        let order = table.pin_order();
        assert_eq!(order.order().len(), 43);
        let mut sum = 0;
        for (rank, &id) in order.order().iter().enumerate() {
            assert_eq!(order.rank(id), rank as u32);
            assert_eq!(order.bytes_of(rank as u32), sum);
            assert_eq!(order.count_within(sum), rank as u32);
            sum += table.pin_bytes(id);
        }
        assert_eq!((order.always_bytes(), order.count_within(u64::MAX)), (sum, 43));
        assert_eq!(order.rank(3), u32::MAX);
        assert_eq!(order.expert_bytes(), 7 * table.pin_bytes(3));
    }
    let prefix = table(50, PinPolicy::Prefix);
    assert!(prefix.pin_order().order().is_sorted());
}
