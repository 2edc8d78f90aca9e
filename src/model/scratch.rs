//! The buffers of a pass, sized once for the largest batch of positions.

use super::hyperparameters::{Experts, Hyperparameters};
use crate::gguf::TensorType;
use crate::kernels::ops::{AttentionScratch, KvLayout};
use crate::kernels::{Activations, Kernels};

/// What the sizes of the buffers follow from, beside the header.
#[derive(Clone, Debug)]
pub struct ScratchShape {
    pub kernels: Kernels,
    /// The types of the matrices, each once: activations take other forms for others.
    pub types: Vec<TensorType>,
    pub threads: usize,
    pub kv: KvLayout,
    /// Positions that the context may come to hold.
    pub context: usize,
    /// Bytes of an embedding row in the file.
    pub row_bytes: usize,
}

/// Embedding rows read and decoded at a time.
pub const EMBEDDING_ROWS: usize = 64;

/// Buffers for up to `positions` positions. Queries, keys, values and attention output share their memory with
/// the feed-forward intermediates: the two are never alive together.
pub struct Scratch {
    pub positions: usize,
    /// (positions, width)
    pub residual: Vec<f32>,
    /// (positions, width): what a norm gives, then what a projection gives.
    pub branch: Vec<f32>,
    /// (positions, width): what attention adds, where the feed-forward network is beside it.
    pub beside: Vec<f32>,
    /// Attention's and the feed-forward network's intermediates.
    pub work: Vec<f32>,
    /// Embedding rows as they are in the file.
    pub rows: Vec<u8>,
    /// (logit rows, vocabulary)
    pub logits: Vec<f32>,
    pub activations: Activations,
    pub attention: AttentionScratch,
    pub experts: Option<ExpertScratch>,
}

/// What a mixture layer needs on top.
pub struct ExpertScratch {
    /// (positions, experts)
    pub router: Vec<f32>,
    /// (positions, used): the experts of each position, ascending.
    pub chosen: Vec<u32>,
    /// (positions, used): their weights.
    pub weights: Vec<f32>,
    /// (positions): how much of the shared expert each adds.
    pub shared: Vec<f32>,
    /// (positions, width): the sum over experts.
    pub sum: Vec<f32>,
    /// Positions of one expert, gathered: (positions, width); or the experts of one position: (used, width).
    pub gathered: Vec<f32>,
    /// Which positions those are.
    pub members: Vec<u32>,
    /// Extents of the chosen experts, in the order of use.
    pub order: Vec<u32>,
    pub activations: Activations,
}

/// Longest row that any matrix multiplies.
fn longest_row(hp: &Hyperparameters) -> usize {
    // Latent vectors are multiplied head by head: each head's is a row, and all of them together count here.
    let by_head = hp.latent.map_or(0, |latent| hp.heads * latent.key_dim.max(latent.value_dim));
    hp.width.max(hp.attention_width()).max(hp.widest_ffn).max(by_head)
}

/// Elements of `work` a position needs.
fn work_width(hp: &Hyperparameters) -> usize {
    let latent = hp.latent.map_or(0, |latent| {
        let (key, value, plain) = (latent.key_dim, latent.value_dim, latent.key_dim - hp.rope_dim);
        hp.heads * (key.max(value) + plain + value) + latent.rank + hp.rope_dim + latent.query_rank.max(latent.rank)
    });
    let attention = hp.q_width() + hp.k_width() + hp.v_width() + hp.attention_width() + latent;
    let convolution = if hp.convolution > 0 { 3 * hp.width } else { 0 };
    attention.max(convolution).max(2 * hp.widest_ffn)
}

/// Elements of `work`: a single position has all its experts' intermediates in it at once.
fn work_len(hp: &Hyperparameters, positions: usize) -> usize {
    let together = hp.experts.filter(|_| positions > 0).map_or(0, |experts| 2 * experts.used * experts.ffn);
    (positions * work_width(hp)).max(together)
}

/// Rows that experts work on: positions of one, or the experts of one position.
fn expert_rows(positions: usize, experts: &Experts) -> usize {
    if positions == 0 { 0 } else { positions.max(experts.used) }
}

/// Elements of `beside` a position needs.
fn beside_width(hp: &Hyperparameters) -> usize {
    if hp.side_by_side { hp.width } else { 0 }
}

impl Scratch {
    pub fn new(hp: &Hyperparameters, shape: &ScratchShape, positions: usize, logit_rows: usize) -> Self {
        Self {
            positions,
            residual: vec![0.0; positions * hp.width],
            branch: vec![0.0; positions * hp.width],
            beside: vec![0.0; positions * beside_width(hp)],
            work: vec![0.0; work_len(hp, positions)],
            rows: vec![0; positions.min(EMBEDDING_ROWS) * shape.row_bytes],
            logits: vec![0.0; logit_rows * hp.vocabulary],
            activations: Activations::for_types(shape.kernels, longest_row(hp), positions, &shape.types),
            attention: AttentionScratch::new(shape.threads, hp.heads, &shape.kv, shape.context),
            experts: hp.experts.map(|experts| ExpertScratch {
                router: vec![0.0; positions * experts.count],
                chosen: vec![0; positions * experts.used],
                weights: vec![0.0; positions * experts.used],
                shared: vec![0.0; positions],
                sum: vec![0.0; positions * hp.width],
                gathered: vec![0.0; expert_rows(positions, &experts) * hp.width],
                members: Vec::with_capacity(positions),
                order: Vec::new(),
                activations: Activations::for_types(
                    shape.kernels,
                    hp.width.max(experts.ffn),
                    expert_rows(positions, &experts),
                    &shape.types,
                ),
            }),
        }
    }

    /// Bytes that [`Scratch::new`] takes, for the ledger.
    pub fn bytes_for(hp: &Hyperparameters, shape: &ScratchShape, positions: usize, logit_rows: usize) -> usize {
        let activations = Activations::bytes_for_types(shape.kernels, longest_row(hp), positions, &shape.types);
        let rows = positions.min(EMBEDDING_ROWS) * shape.row_bytes;
        let dense = rows
            + 4 * (positions * (2 * hp.width + beside_width(hp)) + work_len(hp, positions))
            + 4 * logit_rows * hp.vocabulary
            + activations;
        let experts = hp.experts.map_or(0, |experts| {
            let rows = expert_rows(positions, &experts);
            let floats = positions * (experts.count + 2 * experts.used + hp.width + 2) + rows * hp.width;
            4 * floats + Activations::bytes_for_types(shape.kernels, hp.width.max(experts.ffn), rows, &shape.types)
        });
        let attention = AttentionScratch::bytes_for(shape.threads, hp.heads, &shape.kv, shape.context);
        dense + attention + experts
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::gguf::Gguf;
    use crate::kernels::Arithmetic;
    use crate::kernels::ops::KvElement;
    use crate::model::{Model, ModelOptions};
    use crate::weights::StoreOptions;

    #[test]
    fn a_position_has_room_for_the_forms_that_the_models_own_types_take_and_no_other() {
        // 3 layers of width 64, a network of 96, all Q8_0.
        let gguf = Gguf::open("tests/data/models/llama.gguf".as_ref()).unwrap();
        for (arithmetic, activations) in [(Arithmetic::Int8, 3 * (2 * 32 + 12)), (Arithmetic::Exact, 4 * 96)] {
            let kernels = Kernels::new(arithmetic);
            let options =
                ModelOptions { kernels, threads: 1, kv: KvElement::F16, context: 256, store: StoreOptions::default() };
            let model = Model::open(&gguf, options).unwrap();
            let buffers = 4 * (2 * 64 + 2 * 96);
            // From 64 positions on, no more rows of the embedding are read at once.
            assert_eq!(model.scratch_bytes(164, 1) - model.scratch_bytes(64, 1), 100 * (buffers + activations));
        }
    }
}
