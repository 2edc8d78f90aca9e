//! One pass over the weights: a batch of positions goes through every layer, each extent of weights meets all
//! of them once.
//!
//! Shapes are row-major, positions first: a buffer of (positions, width) holds one position after the other.
//! Every operation gives a position the same bits whatever else is in the batch, so a prompt in one pass and
//! the same prompt one position at a time end in the same cache and the same logits.

use std::ops::{ControlFlow, Range};
use std::time::Instant;

use arrayvec::ArrayVec;

use super::ModelError;
use super::architecture::{Ffn, Norm, QkNorm};
use super::block_weights::{AttentionWeights, FfnStages, MixerStages, NormWeights, Stage};
use super::experts;
use super::hyperparameters::Hyperparameters;
use super::kv_cache::KvCache;
use super::latent;
use super::layout::Layout;
use super::rope::Rope;
use super::scratch::{EMBEDDING_ROWS, Scratch};
use super::times::{Op, OpTimes};
use crate::kernels::ops::{AttentionScratch, AttentionSpec, Ops};
use crate::kernels::{Activations, Cancel, Kernels, MatrixOut, Pool, Positions, Task, matmul};
use crate::quant;
use crate::sampler;
use crate::weights::WeightStore;

/// Most tasks in one dispatch of [`matmul`].
const TASKS: usize = 64;
/// While the last of so many parts of the head is multiplied, the embedding's row of the likeliest token up to there is
/// read: it is most often the next one, and the disk takes about as long.
const EXPECTED_IN: u32 = 8;

/// Constants of gpt-oss's activation function.
const OAI_ALPHA: f32 = 1.702;
const OAI_LIMIT: f32 = 7.0;

/// What goes on around a pass: called before each run of extents, so that a budget can change in mid-pass.
pub trait Hooks {
    /// `layer` is about to be computed; the number of layers stands for the head. `Break` abandons the pass, as
    /// if it had not begun ([`ModelError::Interrupted`]).
    fn at_extents(&mut self, store: &mut WeightStore, layer: usize) -> ControlFlow<()>;
}

/// Hooks that do nothing.
pub struct NoHooks;

impl Hooks for NoHooks {
    fn at_extents(&mut self, _store: &mut WeightStore, _layer: usize) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Which positions of a pass get logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// None: the prompt goes on.
    Nothing,
    Last,
    All,
}

/// Where the results of a matrix go, and which positions it meets.
pub(super) struct Place {
    pub out: usize,
    pub first_row: usize,
    pub positions: Option<Positions>,
}

/// Everything a pass works with, borrowed from the model for its length.
pub(super) struct Pass<'a> {
    pub hp: &'a Hyperparameters,
    pub layout: &'a Layout,
    pub store: &'a mut WeightStore,
    pub cache: &'a mut KvCache,
    pub rope: &'a Rope,
    pub kernels: Kernels,
    pub pool: &'a Pool,
    pub ops: Ops<'a>,
    pub hooks: &'a mut dyn Hooks,
    pub cancel: &'a Cancel,
    pub times: &'a mut OpTimes,
    /// Position of the first token of the batch.
    pub first: usize,
    /// Positions in the batch.
    pub positions: usize,
}

impl<'a> Pass<'a> {
    /// Runs the whole pass; logits, if wanted, are in `scratch.logits` afterwards.
    pub fn run(&mut self, tokens: &[u32], want: Want, scratch: &mut Scratch) -> Result<(), ModelError> {
        self.embed(tokens, scratch)?;
        for layer in 0..self.hp.layers {
            self.mix(layer, scratch)?;
            self.feed_forward(layer, scratch)?;
            if self.hp.side_by_side {
                let len = self.positions * self.hp.width;
                self.ops.add_scaled(&mut scratch.residual[..len], &scratch.beside[..len], self.hp.residual_scale);
            }
        }
        self.head(want, scratch)
    }

    fn embed(&mut self, tokens: &[u32], scratch: &mut Scratch) -> Result<(), ModelError> {
        let (rows, width) = (&self.layout.embedding, self.hp.width);
        // The work buffer is free until the first layer: raw rows are read into a part of it.
        let raw = scratch.rows.as_mut_slice();
        let at_once = (raw.len() / rows.at.row_bytes).min(EMBEDDING_ROWS);
        for (batch, out) in tokens.chunks(at_once).zip(scratch.residual.chunks_mut(at_once * width)) {
            let raw = &mut raw[..batch.len() * rows.at.row_bytes];
            // Threads that wait for work would keep the reader from a processor.
            let waits = || self.pool.park();
            self.store.read_rows(rows.at, batch, raw, self.cancel, waits)?;
            for (row, out) in raw.chunks_exact(rows.at.row_bytes).zip(out.chunks_exact_mut(width)) {
                quant::decode_row(rows.ty, row, out);
            }
        }
        if self.hp.embedding_scale != 1.0 {
            self.ops.scale(&mut scratch.residual[..self.positions * width], self.hp.embedding_scale);
        }
        Ok(())
    }

    /// The first half of a block: attention or a convolution, which positions exchange something in.
    fn mix(&mut self, layer: usize, scratch: &mut Scratch) -> Result<(), ModelError> {
        let layout = self.layout;
        let weights = &layout.blocks[layer].mixer;
        match &weights.kind {
            MixerStages::Attention(attention) => self.attention(layer, weights.norm.as_ref(), attention, scratch)?,
            MixerStages::Latent(weights_of) => {
                latent::attention(self, layer, weights.norm.as_ref(), weights_of, scratch)?;
            }
            MixerStages::Convolution { inward, taps, output } => {
                self.convolution(layer, weights.norm.as_ref(), inward, taps, output, scratch)?;
            }
        }
        let len = self.positions * self.hp.width;
        let (branch, residual) = (&mut scratch.branch[..len], &mut scratch.residual[..len]);
        if self.hp.side_by_side {
            // The feed-forward network is to see the residual as it is.
            if let Some(bias) = &weights.output_bias {
                self.ops.add_bias(branch, bias);
            }
            scratch.beside[..len].copy_from_slice(branch);
        } else {
            self.join(branch, residual, weights.output_bias.as_deref(), weights.post_norm.as_ref());
        }
        Ok(())
    }

    /// The gated short convolution of LFM2: `b, c, x` from one projection, `c * conv(b * x)` through another. The result
    /// is in `branch`.
    fn convolution(
        &mut self,
        layer: usize,
        norm: Option<&NormWeights>,
        inward: &Stage,
        taps: &[f32],
        output: &Stage,
        scratch: &mut Scratch,
    ) -> Result<(), ModelError> {
        let (width, n) = (self.hp.width, self.positions);
        let Scratch { residual, branch, work, activations, .. } = scratch;
        let (residual, branch) = (&residual[..n * width], &mut branch[..n * width]);
        let (b, rest) = work.split_at_mut(n * width);
        let (c, rest) = rest.split_at_mut(n * width);
        let x = &mut rest[..n * width];

        let input = self.norm(norm, residual, branch);
        self.prepare(activations, input, width, inward);
        let mut outs = [&mut *b, &mut *c, &mut *x].map(|data| MatrixOut { data, row_stride: width });
        self.matrices(inward, layer, Op::Qkv, activations, &mut outs)?;

        let started = Instant::now();
        self.ops.mul(b, x);
        self.ops.short_convolution(c, b, self.cache.before(layer), taps, width);
        self.cache.store_convolved(layer, self.first, b);
        self.times.add(Op::Other, started);

        self.prepare(activations, c, width, output);
        self.matrices(output, layer, Op::Output, activations, &mut [MatrixOut { data: branch, row_stride: width }])
    }

    /// Attention; what its projection gives is in `branch`.
    fn attention(
        &mut self,
        layer: usize,
        norm: Option<&NormWeights>,
        weights: &AttentionWeights,
        scratch: &mut Scratch,
    ) -> Result<(), ModelError> {
        let (hp, n) = (self.hp, self.positions);
        let (qw, kw, vw, aw) = (hp.q_width(), hp.k_width(), hp.v_width(), hp.attention_width());
        let Scratch { residual, branch, work, activations, attention, .. } = scratch;
        let residual = &residual[..n * hp.width];
        let branch = &mut branch[..n * hp.width];
        let (q, rest) = work.split_at_mut(n * qw);
        let (k, rest) = rest.split_at_mut(n * kw);
        let (v, rest) = rest.split_at_mut(n * vw);
        let attended = &mut rest[..n * aw];

        let input = self.norm(norm, residual, branch);
        self.prepare(activations, input, hp.width, &weights.qkv);
        self.matrices(
            &weights.qkv,
            layer,
            Op::Qkv,
            activations,
            &mut [
                MatrixOut { data: q, row_stride: qw },
                MatrixOut { data: k, row_stride: kw },
                MatrixOut { data: v, row_stride: vw },
            ],
        )?;

        let started = Instant::now();
        for (data, bias) in [(&mut *q, &weights.q_bias), (&mut *k, &weights.k_bias), (&mut *v, &weights.v_bias)] {
            if let Some(bias) = bias {
                self.ops.add_bias(data, bias);
            }
        }
        let norms_last = hp.arch.qk_norm == QkNorm::PerHeadAfterRope;
        if !norms_last {
            self.qk_norm(weights, q, k);
        }
        if let Some(table) = self.rope.of_layer(hp, layer) {
            self.ops.rope(table, q, hp.heads, hp.key_dim, self.first);
            self.ops.rope(table, k, hp.kv_heads, hp.key_dim, self.first);
        }
        if norms_last {
            self.qk_norm(weights, q, k);
        }
        self.temper(q);
        self.times.add(Op::Other, started);
        self.attend(layer, q, k, v, weights.sinks.as_deref(), attention, attended)?;

        self.prepare(activations, attended, aw, &weights.output);
        self.matrices(
            &weights.output,
            layer,
            Op::Output,
            activations,
            &mut [MatrixOut { data: branch, row_stride: hp.width }],
        )
    }

    /// Stores keys and values, and attends to all that there are.
    #[allow(clippy::too_many_arguments, reason = "three buffers go in, one comes out")]
    pub fn attend(
        &mut self,
        layer: usize,
        q: &[f32],
        k: &[f32],
        v: &[f32],
        sinks: Option<&[f32]>,
        scratch: &mut AttentionScratch,
        out: &mut [f32],
    ) -> Result<(), ModelError> {
        let (hp, started) = (self.hp, Instant::now());
        self.cache.store(self.ops, layer, self.first, k, v);
        self.times.add(Op::Other, started);

        let started = Instant::now();
        let spec = AttentionSpec {
            layout: *self.cache.layout(),
            heads: hp.heads,
            scale: hp.attention_scale,
            softcap: hp.attention_softcap,
            window: hp.window_of(layer),
            sinks,
        };
        let cache = &*self.cache;
        let page = |group| cache.page(group, layer);
        self.ops.attention(&spec, q, self.first, &page, scratch, out, self.cancel)?;
        self.times.add(Op::Attention, started);
        Ok(())
    }

    /// Scales the queries of positions far into the context.
    pub fn temper(&self, q: &mut [f32]) {
        let Some(temperature) = self.hp.temperature else { return };
        for (i, row) in q.chunks_exact_mut(self.hp.q_width()).enumerate() {
            let steps = (self.first + i) / temperature.step as usize;
            if steps > 0 {
                let factor = 1.0 + f64::from(temperature.scale) * libm::log(1.0 + steps as f64);
                self.ops.scale(row, factor as f32);
            }
        }
    }

    fn qk_norm(&self, weights: &AttentionWeights, q: &mut [f32], k: &mut [f32]) {
        let hp = self.hp;
        let (q_row, k_row) = match hp.arch.qk_norm {
            QkNorm::None => return,
            QkNorm::PerHead | QkNorm::PerHeadIfGiven | QkNorm::PerHeadAfterRope => (hp.key_dim, hp.key_dim),
            QkNorm::Whole => (hp.q_width(), hp.k_width()),
        };
        if let (Some(q_norm), Some(k_norm)) = (&weights.q_norm, &weights.k_norm) {
            self.ops.rms_norm_in_place(q, q_row, Some(q_norm), hp.norm_eps);
            self.ops.rms_norm_in_place(k, k_row, Some(k_norm), hp.norm_eps);
        }
    }

    fn feed_forward(&mut self, layer: usize, scratch: &mut Scratch) -> Result<(), ModelError> {
        let (hp, n) = (self.hp, self.positions);
        let layout = self.layout;
        let weights = &layout.blocks[layer].ffn;
        let (gate_up, gate_bias, up_bias, down, down_bias) = match &weights.kind {
            FfnStages::Dense { gate_up, gate_bias, up_bias, down, down_bias } => {
                (gate_up, gate_bias, up_bias, down, down_bias)
            }
            FfnStages::Experts(experts) => return experts::feed_forward(self, layer, experts, scratch),
        };
        let Scratch { residual, branch, work, activations, .. } = scratch;
        let residual = &mut residual[..n * hp.width];
        let branch = &mut branch[..n * hp.width];
        let (gate, up) = work.split_at_mut(n * hp.ffn);
        let up = &mut up[..n * hp.ffn];

        let input = self.norm(self.ffn_norm(layer), residual, branch);
        self.prepare(activations, input, hp.width, gate_up);
        let gated = hp.arch.ffn.is_gated();
        let mut outs =
            [MatrixOut { data: &mut *gate, row_stride: hp.ffn }, MatrixOut { data: &mut *up, row_stride: hp.ffn }];
        let outs = if gated { &mut outs[..] } else { &mut outs[1..] };
        self.matrices(gate_up, layer, Op::Ffn, activations, outs)?;

        let started = Instant::now();
        self.activate(gate, up, gate_bias.as_deref(), up_bias.as_deref());
        self.times.add(Op::Other, started);
        let hidden: &[f32] = if gated { gate } else { up };
        self.prepare(activations, hidden, hp.ffn, down);
        self.matrices(down, layer, Op::Ffn, activations, &mut [MatrixOut { data: branch, row_stride: hp.width }])?;
        self.join(branch, residual, down_bias.as_deref(), weights.post_norm.as_ref());
        Ok(())
    }

    /// The activation function: its result is in `gate`, or in `up` where there is no gate.
    pub fn activate(&self, gate: &mut [f32], up: &mut [f32], gate_bias: Option<&[f32]>, up_bias: Option<&[f32]>) {
        if let Some(bias) = gate_bias {
            self.ops.add_bias(gate, bias);
        }
        if let Some(bias) = up_bias {
            self.ops.add_bias(up, bias);
        }
        match self.hp.arch.ffn {
            Ffn::SwiGlu => self.ops.silu_mul(gate, up),
            Ffn::GeGlu => self.ops.gelu_mul(gate, up),
            Ffn::Gelu => self.ops.gelu(up),
            Ffn::ReluSquared => self.ops.relu_squared(up),
            Ffn::SwiGluOai => self.ops.swiglu_clamped_mul(gate, up, OAI_ALPHA, OAI_LIMIT),
        }
    }

    fn head(&mut self, want: Want, scratch: &mut Scratch) -> Result<(), ModelError> {
        let (hp, n, layout) = (self.hp, self.positions, self.layout);
        let skipped = match want {
            Want::Nothing => return Ok(()),
            Want::Last => n - 1,
            Want::All => 0,
        };
        let rows = n - skipped;
        let Scratch { residual, branch, logits, activations, .. } = scratch;
        let residual = &residual[skipped * hp.width..n * hp.width];
        let branch = &mut branch[..rows * hp.width];
        let logits = &mut logits[..rows * hp.vocabulary];
        let input = self.norm(Some(&layout.output_norm), residual, branch);
        activations.prepare(self.pool, input, rows, hp.width, &layout.head.types);
        let mut extents = self.store.table().stage_extents(layout.head.id);
        let multiply = |pass: &mut Self, extents, logits: &mut [f32]| {
            let out = MatrixOut { data: logits, row_stride: hp.vocabulary };
            pass.extents(extents, layout.head.first_matrix, hp.layers, Op::Head, activations, &mut [out])
        };
        if rows == 1 && !layout.embedding.is_tied && extents.len() >= EXPECTED_IN as usize {
            let rest = extents.end - extents.len() as u32 / EXPECTED_IN;
            multiply(self, extents.start..rest, logits)?;
            let known = self.store.table().pieces(rest).first().map_or(0, |piece| piece.first_row as usize);
            self.store.expect_row(layout.embedding.at, sampler::likeliest(&logits[..known]));
            extents.start = rest;
        }
        multiply(self, extents, logits)?;
        if let Some(bias) = &layout.head_bias {
            self.ops.add_bias(logits, bias);
        }
        if hp.logit_scale != 1.0 {
            self.ops.scale(logits, hp.logit_scale);
        }
        if let Some(cap) = hp.logit_softcap {
            self.ops.softcap(logits, cap);
        }
        Ok(())
    }

    /// The norm before a feed-forward network: that of the block where both branches see the same.
    pub fn ffn_norm(&self, layer: usize) -> Option<&'a NormWeights> {
        let block = &self.layout.blocks[layer];
        if self.hp.side_by_side { block.mixer.norm.as_ref() } else { block.ffn.norm.as_ref() }
    }

    /// The branch's input: `x` through the norm into `out`, or `x` itself where there is none.
    pub fn norm<'b>(&mut self, norm: Option<&NormWeights>, x: &'b [f32], out: &'b mut [f32]) -> &'b [f32] {
        let Some(norm) = norm else { return x };
        let started = Instant::now();
        match self.hp.arch.norm {
            Norm::Rms => self.ops.rms_norm(out, x, self.hp.width, Some(&norm.weight), self.hp.norm_eps),
            Norm::Layer => {
                self.ops.layer_norm(out, x, self.hp.width, Some(&norm.weight), norm.bias.as_deref(), self.hp.norm_eps);
            }
        }
        self.times.add(Op::Other, started);
        out
    }

    /// Adds a branch to the residual stream, after its bias, norm and scale.
    pub fn join(
        &mut self,
        branch: &mut [f32],
        residual: &mut [f32],
        bias: Option<&[f32]>,
        post_norm: Option<&NormWeights>,
    ) {
        let started = Instant::now();
        if let Some(bias) = bias {
            self.ops.add_bias(branch, bias);
        }
        if let Some(norm) = post_norm {
            self.ops.rms_norm_in_place(branch, self.hp.width, Some(&norm.weight), self.hp.norm_eps);
        }
        self.ops.add_scaled(residual, branch, self.hp.residual_scale);
        self.times.add(Op::Other, started);
    }

    /// Puts `x` (positions, k) into the form that the stage's weight types multiply with.
    pub fn prepare(&mut self, activations: &mut Activations, x: &[f32], k: usize, stage: &Stage) {
        let started = Instant::now();
        activations.prepare(self.pool, x, self.positions, k, &stage.types);
        self.times.add(Op::Other, started);
    }

    /// Multiplies a stage's matrices with the activations, run by run as its extents are in memory.
    pub fn matrices(
        &mut self,
        stage: &Stage,
        layer: usize,
        op: Op,
        activations: &Activations,
        outs: &mut [MatrixOut<'_>],
    ) -> Result<(), ModelError> {
        let extents = self.store.table().stage_extents(stage.id);
        self.extents(extents, stage.first_matrix, layer, op, activations, outs)
    }

    /// Multiplies a stage's matrices, one a head, each with the rows (positions, heads) of its head. A head's outputs
    /// go to `first_row` and what follows in its own row of `out`.
    pub fn by_head(
        &mut self,
        stage: &Stage,
        layer: usize,
        op: Op,
        activations: &Activations,
        out: MatrixOut<'_>,
        first_row: usize,
    ) -> Result<(), ModelError> {
        let extents = self.store.table().stage_extents(stage.id);
        let (step, count) = (self.hp.heads, self.positions);
        self.products(extents, layer, op, activations, &mut [out], |matrix| {
            let first = (matrix - stage.first_matrix) as usize;
            Place { out: 0, first_row, positions: Some(Positions { first, step, count }) }
        })
    }

    /// Multiplies the matrices of these extents; `first_matrix` is the one whose output is `outs[0]`.
    pub fn extents(
        &mut self,
        extents: Range<u32>,
        first_matrix: u32,
        layer: usize,
        op: Op,
        activations: &Activations,
        outs: &mut [MatrixOut<'_>],
    ) -> Result<(), ModelError> {
        self.products(extents, layer, op, activations, outs, |matrix| Place {
            out: (matrix - first_matrix) as usize,
            first_row: 0,
            positions: None,
        })
    }

    /// Multiplies the matrices of these extents, each with the positions and to the outputs that `place` says.
    pub fn products(
        &mut self,
        extents: impl ExactSizeIterator<Item = u32> + Clone,
        layer: usize,
        op: Op,
        activations: &Activations,
        outs: &mut [MatrixOut<'_>],
        place: impl Fn(u32) -> Place,
    ) -> Result<(), ModelError> {
        let mut done = 0;
        while done < extents.len() {
            if self.hooks.at_extents(self.store, layer).is_break() {
                return Err(ModelError::Interrupted);
            }
            let waiting = Instant::now();
            let lease = self.store.acquire(extents.clone().skip(done), self.cancel)?;
            let started = Instant::now();
            self.times.add_duration(Op::Wait, started - waiting);
            done += lease.len();
            let mut tasks: ArrayVec<Task<'_>, TASKS> = ArrayVec::new();
            for (extent, bytes) in lease.iter() {
                let table = self.store.table();
                for piece in table.pieces(extent) {
                    let (matrix, place) = (table.matrix(piece.matrix), place(piece.matrix));
                    tasks.push(Task {
                        out: place.out,
                        first_row: place.first_row + piece.first_row as usize,
                        rows: piece.rows as usize,
                        ty: matrix.ty,
                        weights: &bytes[piece.offset as usize..][..piece.bytes as usize],
                        interleaved: self.store.interleave_of(matrix.ty).is_some(),
                        positions: place.positions,
                    });
                    if tasks.is_full() {
                        matmul(self.kernels, self.pool, activations, outs, &tasks, self.cancel)?;
                        tasks.clear();
                    }
                }
            }
            matmul(self.kernels, self.pool, activations, outs, &tasks, self.cancel)?;
            drop(tasks);
            self.times.add(op, started);
            self.store.release(lease, started.elapsed().as_micros() as u32);
        }
        Ok(())
    }
}
