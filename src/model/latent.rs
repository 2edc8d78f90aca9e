//! Attention over latent vectors (DeepSeek-V2, arXiv 2405.04434, section 2.1): keys and values of all heads come from one
//! short vector a position, and from a few elements that are turned by it.
//!
//! Files have the matrix that makes keys and values of the vector in one of two forms. In one piece, keys and values are
//! what the cache holds. Split by head, the cache holds the vectors themselves: the keys' half is multiplied into the
//! queries, the values' half into what was attended to, and attention has a single key/value head.
//!
//! The turned elements stand first here, where rotary tables turn them; in the file they stand last.

use super::ModelError;
use super::block_weights::{Expansion, LatentWeights, NormWeights};
use super::forward::Pass;
use super::scratch::Scratch;
use super::times::Op;
use crate::kernels::MatrixOut;

/// Attention; what its projection gives is in `branch`.
pub(super) fn attention(
    pass: &mut Pass<'_>,
    layer: usize,
    norm: Option<&NormWeights>,
    weights: &LatentWeights,
    scratch: &mut Scratch,
) -> Result<(), ModelError> {
    let (hp, n) = (pass.hp, pass.positions);
    let Some(spec) = hp.latent else { return Ok(()) };
    let (heads, rope, plain) = (hp.heads, hp.rope_dim, spec.key_dim - hp.rope_dim);
    let (key_dim, value_dim, rank) = (spec.key_dim, spec.value_dim, spec.rank);
    let Scratch { residual, branch, work, activations, attention, .. } = scratch;
    let (residual, branch) = (&residual[..n * hp.width], &mut branch[..n * hp.width]);
    let (q, rest) = work.split_at_mut(n * hp.q_width());
    let (k, rest) = rest.split_at_mut(n * hp.k_width());
    let (v, rest) = rest.split_at_mut(n * hp.v_width());
    let (attended, rest) = rest.split_at_mut(n * hp.attention_width());
    // Queries as they are projected, then outputs of heads.
    let (raw, rest) = rest.split_at_mut(n * heads * key_dim.max(value_dim));
    let (compressed, rest) = rest.split_at_mut(n * (rank + rope));
    let (expanded, rest) = rest.split_at_mut(n * heads * (plain + value_dim));
    let low = &mut rest[..n * spec.query_rank.max(rank)];

    let input = pass.norm(norm, residual, branch);
    pass.prepare(activations, input, hp.width, &weights.inward);
    let queries = match weights.query {
        Some(_) => MatrixOut { data: &mut *low, row_stride: spec.query_rank },
        None => MatrixOut { data: &mut *raw, row_stride: heads * key_dim },
    };
    let mut outs = [queries, MatrixOut { data: &mut *compressed, row_stride: rank + rope }];
    pass.matrices(&weights.inward, layer, Op::Qkv, activations, &mut outs)?;
    if let Some((norm, stage)) = &weights.query {
        let low = &mut low[..n * spec.query_rank];
        pass.ops.rms_norm_in_place(low, spec.query_rank, Some(norm), hp.norm_eps);
        pass.prepare(activations, low, spec.query_rank, stage);
        let mut outs = [MatrixOut { data: &mut *raw, row_stride: heads * key_dim }];
        pass.matrices(stage, layer, Op::Qkv, activations, &mut outs)?;
    }
    let raw_heads = || raw[..n * heads * key_dim].chunks_exact(key_dim);
    for (head, raw) in q.chunks_exact_mut(hp.key_dim).zip(raw_heads()) {
        head[..rope].copy_from_slice(&raw[plain..]);
    }
    let latents = &mut low[..n * rank];
    for (latent, row) in latents.chunks_exact_mut(rank).zip(compressed.chunks_exact(rank + rope)) {
        latent.copy_from_slice(&row[..rank]);
    }
    pass.ops.rms_norm_in_place(latents, rank, Some(&weights.norm), hp.norm_eps);
    for (keys, row) in k.chunks_exact_mut(hp.k_width()).zip(compressed.chunks_exact(rank + rope)) {
        keys.chunks_exact_mut(hp.key_dim).for_each(|key| key[..rope].copy_from_slice(&row[rank..]));
    }

    match &weights.expansion {
        Expansion::Whole(stage) => {
            pass.prepare(activations, latents, rank, stage);
            let mut outs = [MatrixOut { data: &mut *expanded, row_stride: heads * (plain + value_dim) }];
            pass.matrices(stage, layer, Op::Qkv, activations, &mut outs)?;
            let pairs = k.chunks_exact_mut(hp.key_dim).zip(v.chunks_exact_mut(hp.value_dim));
            for ((key, value), row) in pairs.zip(expanded.chunks_exact(plain + value_dim)) {
                key[rope..].copy_from_slice(&row[..plain]);
                value.copy_from_slice(&row[plain..]);
            }
            for (head, raw) in q.chunks_exact_mut(hp.key_dim).zip(raw_heads()) {
                head[rope..].copy_from_slice(&raw[..plain]);
            }
        }
        Expansion::ByHead { keys, .. } => {
            v.copy_from_slice(latents);
            for (key, latent) in k.chunks_exact_mut(hp.key_dim).zip(latents.chunks_exact(rank)) {
                key[rope..].copy_from_slice(latent);
            }
            let queries = &mut expanded[..n * heads * plain];
            for (query, raw) in queries.chunks_exact_mut(plain).zip(raw_heads()) {
                query.copy_from_slice(&raw[..plain]);
            }
            activations.prepare(pass.pool, queries, n * heads, plain, &keys.types);
            let out = MatrixOut { data: &mut *q, row_stride: hp.key_dim };
            pass.by_head(keys, layer, Op::Qkv, activations, out, rope)?;
        }
    }
    if let Some(table) = pass.rope.of_layer(hp, layer) {
        pass.ops.rope(table, q, heads, hp.key_dim, pass.first);
        pass.ops.rope(table, k, hp.kv_heads, hp.key_dim, pass.first);
    }
    pass.temper(q);
    pass.attend(layer, q, k, v, None, attention, attended)?;

    let outputs: &[f32] = match &weights.expansion {
        Expansion::Whole(_) => attended,
        Expansion::ByHead { values, .. } => {
            activations.prepare(pass.pool, attended, n * heads, rank, &values.types);
            let outputs = &mut raw[..n * heads * value_dim];
            let out = MatrixOut { data: &mut *outputs, row_stride: value_dim };
            pass.by_head(values, layer, Op::Output, activations, out, 0)?;
            outputs
        }
    };
    pass.prepare(activations, outputs, heads * value_dim, &weights.output);
    let mut outs = [MatrixOut { data: branch, row_stride: hp.width }];
    pass.matrices(&weights.output, layer, Op::Output, activations, &mut outs)
}
