//! The feed-forward network of a mixture layer: only the experts that the router chose are read and computed.
//!
//! Experts go in ascending order, each over all positions that chose it, and add to the sum in that order, so
//! that a position's sum does not depend on the batch.

use std::time::Instant;

use super::ModelError;
use super::architecture::Gating;
use super::block_weights::FfnStages;
use super::forward::Pass;
use super::hyperparameters::Experts;
use super::scratch::{ExpertScratch, Scratch};
use super::times::Op;
use crate::kernels::MatrixOut;
use crate::kernels::ops::Ops;

/// Norm, router, chosen experts, residual: the second half of a mixture block.
pub(super) fn feed_forward(pass: &mut Pass<'_>, layer: usize, scratch: &mut Scratch) -> Result<(), ModelError> {
    let (hp, layout, n) = (pass.hp, pass.layout, pass.positions);
    let weights = &layout.blocks[layer].ffn;
    let (
        Some(spec),
        FfnStages::Experts { router, router_bias, choice_bias, shared, gate_up, gate_bias, up_bias, down, down_bias },
    ) = (hp.experts, &weights.kind)
    else {
        return Ok(());
    };
    let Scratch { residual, branch, work, activations, experts, .. } = scratch;
    let Some(expert_scratch) = experts else { return Ok(()) };
    let ExpertScratch {
        router: logits,
        chosen,
        weights: shares,
        shared: shared_share,
        sum,
        gathered,
        members,
        order,
        activations: own,
    } = expert_scratch;
    let residual = &mut residual[..n * hp.width];
    let branch = &mut branch[..n * hp.width];
    let logits = &mut logits[..n * spec.count];
    let chosen = &mut chosen[..n * spec.used];
    let shares = &mut shares[..n * spec.used];
    let sum = &mut sum[..n * hp.width];
    let shared_share = &mut shared_share[..n];

    let input = pass.norm(pass.ffn_norm(layer), residual, branch);
    activations.prepare(pass.pool, input, n, hp.width, &router.types);
    let mut outs = [
        MatrixOut { data: &mut *logits, row_stride: spec.count },
        MatrixOut { data: &mut *shared_share, row_stride: 1 },
    ];
    let has_share = shared.as_ref().is_some_and(|shared| shared.has_gate);
    pass.matrices(router, layer, Op::Ffn, activations, &mut outs[..1 + usize::from(has_share)])?;
    let started = Instant::now();
    if let Some(bias) = router_bias {
        pass.ops.add_bias(logits, bias);
    }
    for position in 0..n {
        let logits = &mut logits[position * spec.count..(position + 1) * spec.count];
        let chosen = &mut chosen[position * spec.used..(position + 1) * spec.used];
        let shares = &mut shares[position * spec.used..(position + 1) * spec.used];
        choose(pass.ops, logits, &spec, choice_bias.as_deref(), chosen, shares);
    }
    pass.times.add(Op::Other, started);

    if let Some(shared) = shared {
        let ffn = spec.shared_ffn;
        let (gate, up) = work.split_at_mut(n * ffn);
        let up = &mut up[..n * ffn];
        activations.prepare(pass.pool, input, n, hp.width, &shared.gate_up.types);
        let mut outs = [MatrixOut { data: &mut *gate, row_stride: ffn }, MatrixOut { data: &mut *up, row_stride: ffn }];
        pass.matrices(&shared.gate_up, layer, Op::Ffn, activations, &mut outs)?;
        pass.activate(gate, up, None, None);
        activations.prepare(pass.pool, gate, n, ffn, &shared.down.types);
        let mut outs = [MatrixOut { data: &mut *sum, row_stride: hp.width }];
        pass.matrices(&shared.down, layer, Op::Ffn, activations, &mut outs)?;
        if has_share {
            pass.ops.sigmoid(shared_share);
            for (row, share) in sum.chunks_exact_mut(hp.width).zip(shared_share.iter()) {
                pass.ops.scale(row, *share);
            }
        }
    } else {
        sum.fill(0.0);
    }
    // Not before: the ring could be full of experts that wait for the shared one, which waits for the ring.
    announce(pass, gate_up.id, down.id, spec.count, chosen, order);

    for expert in 0..spec.count {
        members.clear();
        members.extend(
            (0..n).filter(|p| chosen[p * spec.used..][..spec.used].contains(&(expert as u32))).map(|p| p as u32),
        );
        if members.is_empty() {
            continue;
        }
        let m = members.len();
        let gathered = &mut gathered[..m * hp.width];
        for (&position, row) in members.iter().zip(gathered.chunks_exact_mut(hp.width)) {
            row.copy_from_slice(&input[position as usize * hp.width..][..hp.width]);
        }
        let (gate, up) = work.split_at_mut(m * spec.ffn);
        let up = &mut up[..m * spec.ffn];
        own.prepare(pass.pool, gathered, m, hp.width, &gate_up.types);
        let extents = pass.store.table().expert_extents(gate_up.id, expert as u16);
        pass.extents(
            extents,
            gate_up.first_matrix + 2 * expert as u32,
            layer,
            Op::Ffn,
            own,
            &mut [
                MatrixOut { data: &mut *gate, row_stride: spec.ffn },
                MatrixOut { data: &mut *up, row_stride: spec.ffn },
            ],
        )?;
        pass.activate(gate, up, expert_row(gate_bias, expert, spec.ffn), expert_row(up_bias, expert, spec.ffn));
        own.prepare(pass.pool, gate, m, spec.ffn, &down.types);
        let extents = pass.store.table().expert_extents(down.id, expert as u16);
        pass.extents(
            extents,
            down.first_matrix + expert as u32,
            layer,
            Op::Ffn,
            own,
            &mut [MatrixOut { data: &mut *gathered, row_stride: hp.width }],
        )?;
        let bias = expert_row(down_bias, expert, hp.width);
        for (&position, row) in members.iter().zip(gathered.chunks_exact_mut(hp.width)) {
            let position = position as usize;
            let slot = chosen[position * spec.used..][..spec.used].iter().position(|&c| c == expert as u32);
            let share = slot.map_or(0.0, |slot| shares[position * spec.used + slot]);
            if let Some(bias) = bias {
                row.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
            }
            sum[position * hp.width..][..hp.width].iter_mut().zip(row).for_each(|(s, x)| *s += share * *x);
        }
    }
    pass.join(sum, residual, None, weights.post_norm.as_ref());
    Ok(())
}

/// This expert's row of a bias of all experts.
fn expert_row(bias: &Option<Vec<f32>>, expert: usize, len: usize) -> Option<&[f32]> {
    bias.as_ref().map(|bias| &bias[expert * len..][..len])
}

/// The experts with the largest scores, ascending by number, and their shares. `logits` are worked on.
fn choose(
    ops: Ops<'_>,
    logits: &mut [f32],
    spec: &Experts,
    bias: Option<&[f32]>,
    chosen: &mut [u32],
    shares: &mut [f32],
) {
    // Scaling the chosen of a softmax over all to sum to 1 is the softmax over the chosen, and order is that of the logits.
    let softmax_of_chosen = match spec.gating {
        Gating::SoftmaxOfChosen => true,
        Gating::Softmax => spec.sum_to_one && bias.is_none(),
        Gating::Sigmoid => false,
    };
    match spec.gating {
        Gating::Softmax if !softmax_of_chosen => ops.softmax(logits, spec.count),
        Gating::Sigmoid => ops.sigmoid(logits),
        Gating::Softmax | Gating::SoftmaxOfChosen => {}
    }
    let score = |expert: usize| logits[expert] + bias.map_or(0.0, |bias| bias[expert]);
    let open = open_groups(spec, &score);
    let in_group = spec.count / spec.groups;
    let score = |expert: usize| {
        if open >> (expert / in_group) & 1 == 1 { score(expert) } else { f32::NEG_INFINITY }
    };
    for slot in 0..chosen.len() {
        let mut best = 0;
        for i in 0..spec.count {
            if !chosen[..slot].contains(&(i as u32))
                && (chosen[..slot].contains(&(best as u32)) || score(i) > score(best))
            {
                best = i;
            }
        }
        chosen[slot] = best as u32;
    }
    chosen.sort_unstable();
    for (share, &expert) in shares.iter_mut().zip(chosen.iter()) {
        *share = logits[expert as usize];
    }
    if softmax_of_chosen {
        ops.softmax(shares, spec.used);
    } else if spec.sum_to_one {
        // No sum is taken for less than the least normal number of half precision, as the reference has it.
        let sum = shares.iter().sum::<f32>().max(6.103_515_6e-5);
        shares.iter_mut().for_each(|share| *share /= sum);
    }
    if spec.scale != 1.0 {
        shares.iter_mut().for_each(|share| *share *= spec.scale);
    }
}

/// The groups that experts are chosen from, as bits: those in which the two best scores have the largest sum.
fn open_groups(spec: &Experts, score: &impl Fn(usize) -> f32) -> u64 {
    if spec.groups == 1 {
        return 1;
    }
    let in_group = spec.count / spec.groups;
    let rank =
        |group: usize| {
            let scores = (group * in_group..(group + 1) * in_group).map(score);
            let (best, next) = scores.fold((f32::NEG_INFINITY, f32::NEG_INFINITY), |(best, next), x| {
                if x > best { (x, best) } else { (best, next.max(x)) }
            });
            if in_group > 1 { best + next } else { best }
        };
    let mut open = 0;
    for _ in 0..spec.groups_used {
        let closed = (0..spec.groups).filter(|group| open >> group & 1 == 0);
        let best = closed.reduce(|a, b| if rank(b) > rank(a) { b } else { a });
        open |= best.map_or(0, |group| 1 << group);
    }
    open
}

/// Tells the store which expert extents come next, in the order of use.
fn announce(pass: &mut Pass<'_>, gate_up: u32, down: u32, count: usize, chosen: &[u32], ids: &mut Vec<u32>) {
    let table = pass.store.table();
    ids.clear();
    for expert in 0..count as u32 {
        if chosen.contains(&expert) {
            ids.extend(table.expert_extents(gate_up, expert as u16));
            ids.extend(table.expert_extents(down, expert as u16));
        }
    }
    pass.store.route(ids);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Isa, Pool};

    fn spec(count: usize, used: usize) -> Experts {
        Experts {
            count,
            used,
            ffn: 1,
            shared_ffn: 0,
            gating: Gating::Softmax,
            sum_to_one: true,
            scale: 1.0,
            groups: 1,
            groups_used: 1,
        }
    }

    fn chosen_as<const N: usize>(logits: &[f32], spec: &Experts, bias: Option<&[f32]>) -> ([u32; N], [f32; N]) {
        let (pool, mut chosen, mut shares) = (Pool::new(1), [0; N], [0.0; N]);
        choose(Ops::new(Isa::Scalar, &pool), &mut logits.to_vec(), spec, bias, &mut chosen, &mut shares);
        (chosen, shares)
    }

    fn chosen_of<const N: usize>(logits: &[f32]) -> ([u32; N], [f32; N]) {
        chosen_as(logits, &spec(logits.len(), N), None)
    }

    #[test]
    fn a_bias_moves_the_choice_and_not_the_weights() {
        let logits = [1.0, 0.9, -2.0];
        let spec = Experts { gating: Gating::Sigmoid, sum_to_one: false, scale: 2.0, ..spec(3, 1) };
        let (chosen, shares) = chosen_as::<1>(&logits, &spec, Some(&[0.0, 0.1, 0.0]));
        assert_eq!(chosen, [1]);
        assert!((shares[0] - 2.0 / (1.0 + (-0.9f32).exp())).abs() < 1e-6);
    }

    #[test]
    fn the_largest_logits_are_chosen_ascending_and_share_one() {
        let (chosen, shares) = chosen_of::<2>(&[0.5, 3.0, -1.0, 2.0]);
        assert_eq!(chosen, [1, 3]);
        let expected = 1.0 / (1.0 + (-1.0f32).exp());
        assert!((shares[0] - expected).abs() < 1e-6 && (shares[0] + shares[1] - 1.0).abs() < 1e-6);
    }

    /// The numbers of DeepSeek-V3's `noaux_tc`: groups by the sum of their two best.
    #[test]
    fn only_experts_of_the_best_groups_are_chosen_though_one_outside_scores_more() {
        let logits = [3.0, -9.0, 1.0, 1.5, 1.1, 1.2, -9.0, 0.0];
        let grouped = Experts { groups: 4, groups_used: 2, ..spec(8, 3) };
        assert_eq!(chosen_as::<3>(&logits, &grouped, None).0, [3, 4, 5]);
        assert_eq!(chosen_as::<3>(&logits, &spec(8, 3), None).0, [0, 3, 5]);
    }

    #[test]
    fn equal_logits_choose_the_first() {
        assert_eq!(chosen_of::<3>(&[1.0; 6]).0, [0, 1, 2]);
    }

    #[test]
    fn logits_that_are_no_numbers_still_choose_distinct_experts() {
        let (chosen, _) = chosen_of::<3>(&[f32::NAN; 4]);
        assert!(chosen.windows(2).all(|w| w[0] < w[1]), "{chosen:?}");
    }
}
