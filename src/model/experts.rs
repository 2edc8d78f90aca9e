//! The feed-forward network of a mixture layer: only the experts that the router chose are read and computed.
//!
//! Experts add to the sum in ascending order, so that a position's sum does not depend on the batch. Those of a single
//! position are multiplied together, in one dispatch where they are in memory; in a batch each expert goes by itself over
//! all positions that chose it.

use std::time::Instant;

use super::ModelError;
use super::architecture::Gating;
use super::block_weights::ExpertWeights;
use super::forward::{Pass, Place};
use super::hyperparameters::Experts;
use super::scratch::{ExpertScratch, Scratch};
use super::times::Op;
use crate::kernels::ops::Ops;
use crate::kernels::{Activations, MatrixOut, Positions};

/// Norm, router, chosen experts, residual: the second half of a mixture block.
pub(super) fn feed_forward(
    pass: &mut Pass<'_>,
    layer: usize,
    weights: &ExpertWeights,
    scratch: &mut Scratch,
) -> Result<(), ModelError> {
    let (hp, layout, n) = (pass.hp, pass.layout, pass.positions);
    let Scratch { residual, branch, work, activations, experts, .. } = scratch;
    let (Some(spec), Some(expert_scratch)) = (hp.experts, experts) else { return Ok(()) };
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
    let ExpertWeights { router, router_bias, choice_bias, shared, .. } = weights;

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
    let mut routed = Routed { spec, weights, input, chosen, shares, sum, work, gathered, order, activations: own };
    // Experts are announced here and not before: the ring could be full of those that wait for the shared one, which
    // waits for the ring.
    if n == 1 {
        routed.together(pass, layer)?
    } else {
        routed.one_by_one(pass, layer, members)?
    }
    let post_norm = layout.blocks[layer].ffn.post_norm.as_ref();
    pass.join(sum, residual, None, post_norm);
    Ok(())
}

/// What the routed experts of a layer work on.
struct Routed<'a> {
    spec: Experts,
    weights: &'a ExpertWeights,
    /// (positions, width)
    input: &'a [f32],
    /// (positions, used), ascending
    chosen: &'a [u32],
    /// (positions, used)
    shares: &'a [f32],
    /// (positions, width)
    sum: &'a mut [f32],
    work: &'a mut [f32],
    gathered: &'a mut [f32],
    order: &'a mut Vec<u32>,
    activations: &'a mut Activations,
}

impl Routed<'_> {
    /// All experts of a single position: their gates and ups, then their downs.
    fn together(&mut self, pass: &mut Pass<'_>, layer: usize) -> Result<(), ModelError> {
        let (width, ffn, used) = (pass.hp.width, self.spec.ffn, self.spec.used);
        let ExpertWeights { gate_up, gate_bias, up_bias, down, down_bias, .. } = self.weights;
        let (chosen, table) = (self.chosen, pass.store.table());
        let slot = |expert: u32| chosen.iter().position(|&c| c == expert).unwrap_or_default();
        self.order.clear();
        self.order.extend(chosen.iter().flat_map(|&expert| table.expert_extents(gate_up.id, expert as u16)));
        let downs = self.order.len();
        self.order.extend(chosen.iter().flat_map(|&expert| table.expert_extents(down.id, expert as u16)));
        pass.store.route(self.order);
        let (gate_ups, downs) = self.order.split_at(downs);

        let hidden = &mut self.work[..2 * used * ffn];
        self.activations.prepare(pass.pool, self.input, 1, width, &gate_up.types);
        let mut outs = [MatrixOut { data: &mut *hidden, row_stride: 2 * used * ffn }];
        pass.products(gate_ups.iter().copied(), layer, Op::Ffn, self.activations, &mut outs, |matrix| {
            let (expert, is_up) = ((matrix - gate_up.first_matrix) / 2, (matrix - gate_up.first_matrix) % 2);
            Place { out: 0, first_row: (is_up as usize * used + slot(expert)) * ffn, positions: None }
        })?;
        let (gates, ups) = hidden.split_at_mut(used * ffn);
        for (bias, rows) in [(gate_bias, &mut *gates), (up_bias, &mut *ups)] {
            for (&expert, row) in chosen.iter().zip(rows.chunks_exact_mut(ffn)) {
                expert_row(bias, expert as usize, ffn).inspect(|bias| pass.ops.add_bias(row, bias));
            }
        }
        pass.activate(gates, ups, None, None);

        let outputs = &mut self.gathered[..used * width];
        self.activations.prepare(pass.pool, gates, used, ffn, &down.types);
        let mut outs = [MatrixOut { data: &mut *outputs, row_stride: width }];
        pass.products(downs.iter().copied(), layer, Op::Ffn, self.activations, &mut outs, |matrix| {
            let first = slot(matrix - down.first_matrix);
            Place { out: 0, first_row: 0, positions: Some(Positions { first, step: 1, count: 1 }) }
        })?;
        for ((&expert, &share), row) in chosen.iter().zip(self.shares).zip(outputs.chunks_exact_mut(width)) {
            add_output(self.sum, row, share, expert_row(down_bias, expert as usize, width));
        }
        Ok(())
    }

    /// Each expert over all positions that chose it.
    fn one_by_one(&mut self, pass: &mut Pass<'_>, layer: usize, members: &mut Vec<u32>) -> Result<(), ModelError> {
        let (n, width, ffn, used) = (pass.positions, pass.hp.width, self.spec.ffn, self.spec.used);
        let ExpertWeights { gate_up, gate_bias, up_bias, down, down_bias, .. } = self.weights;
        announce(pass, gate_up.id, down.id, self.spec.count, self.chosen, self.order);
        for expert in 0..self.spec.count {
            let slot = |position: usize| {
                self.chosen[position * used..][..used].iter().position(|&chosen| chosen == expert as u32)
            };
            members.clear();
            members.extend((0..n).filter(|&position| slot(position).is_some()).map(|position| position as u32));
            if members.is_empty() {
                continue;
            }
            let m = members.len();
            let gathered = &mut self.gathered[..m * width];
            for (&position, row) in members.iter().zip(gathered.chunks_exact_mut(width)) {
                row.copy_from_slice(&self.input[position as usize * width..][..width]);
            }
            let (gate, up) = self.work.split_at_mut(m * ffn);
            let up = &mut up[..m * ffn];
            self.activations.prepare(pass.pool, gathered, m, width, &gate_up.types);
            let extents = pass.store.table().expert_extents(gate_up.id, expert as u16);
            let first_matrix = gate_up.first_matrix + 2 * expert as u32;
            let mut outs =
                [MatrixOut { data: &mut *gate, row_stride: ffn }, MatrixOut { data: &mut *up, row_stride: ffn }];
            pass.extents(extents, first_matrix, layer, Op::Ffn, self.activations, &mut outs)?;
            pass.activate(gate, up, expert_row(gate_bias, expert, ffn), expert_row(up_bias, expert, ffn));
            self.activations.prepare(pass.pool, gate, m, ffn, &down.types);
            let extents = pass.store.table().expert_extents(down.id, expert as u16);
            let mut outs = [MatrixOut { data: &mut *gathered, row_stride: width }];
            pass.extents(extents, down.first_matrix + expert as u32, layer, Op::Ffn, self.activations, &mut outs)?;
            let bias = expert_row(down_bias, expert, width);
            for (&position, row) in members.iter().zip(gathered.chunks_exact_mut(width)) {
                let position = position as usize;
                let share = slot(position).map_or(0.0, |slot| self.shares[position * used + slot]);
                add_output(&mut self.sum[position * width..][..width], row, share, bias);
            }
        }
        Ok(())
    }
}

/// Adds an expert's output (width) to a position's sum.
fn add_output(sum: &mut [f32], output: &mut [f32], share: f32, bias: Option<&[f32]>) {
    if let Some(bias) = bias {
        output.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
    }
    sum.iter_mut().zip(output).for_each(|(s, x)| *s += share * *x);
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
