//! What a block is made of: its stages of matrices, which stream, and its vectors, which stay in memory.

use crate::gguf::TensorType;

/// Weight of a norm and its bias, if it has one.
#[derive(Clone, Debug)]
pub struct NormWeights {
    pub weight: Vec<f32>,
    pub bias: Option<Vec<f32>>,
}

/// Matrices that share their input: a run of the specs, one output each.
#[derive(Clone, Debug)]
pub struct Stage {
    pub id: u32,
    pub first_matrix: u32,
    /// The types its matrices have, each once.
    pub types: Vec<TensorType>,
}

/// What mixes the positions in one block.
#[derive(Clone, Debug)]
pub struct MixerWeights {
    pub norm: Option<NormWeights>,
    pub kind: MixerStages,
    pub output_bias: Option<Vec<f32>>,
    pub post_norm: Option<NormWeights>,
}

/// Attention, or what some layers have instead of it.
#[derive(Clone, Debug)]
pub enum MixerStages {
    Attention(AttentionWeights),
    Latent(LatentWeights),
    Convolution {
        /// Outputs: the factor before the convolution, the one after it, and what is convolved.
        inward: Stage,
        /// (taps, width)
        taps: Vec<f32>,
        /// Output: the projection.
        output: Stage,
    },
}

/// Attention of one block.
#[derive(Clone, Debug)]
pub struct AttentionWeights {
    /// Outputs: q, k, v.
    pub qkv: Stage,
    pub q_bias: Option<Vec<f32>>,
    pub k_bias: Option<Vec<f32>>,
    pub v_bias: Option<Vec<f32>>,
    pub q_norm: Option<Vec<f32>>,
    pub k_norm: Option<Vec<f32>>,
    /// One logit a head that takes part in the softmax and carries no value.
    pub sinks: Option<Vec<f32>>,
    /// Output: the projection.
    pub output: Stage,
}

/// Attention over latent vectors.
#[derive(Clone, Debug)]
pub struct LatentWeights {
    /// Outputs: queries, or short vectors of which queries are made; latent vectors with what is turned after them.
    pub inward: Stage,
    /// Norm of the short vectors, and what makes queries of them.
    pub query: Option<(Vec<f32>, Stage)>,
    /// Norm of the latent vectors.
    pub norm: Vec<f32>,
    pub expansion: Expansion,
    /// Output: the projection.
    pub output: Stage,
}

/// What makes keys and values of latent vectors.
#[derive(Clone, Debug)]
pub enum Expansion {
    /// Outputs for each head: its key but for what is turned, then its value.
    Whole(Stage),
    /// One matrix a head: the key's transposed, and the value's.
    ByHead { keys: Stage, values: Stage },
}

/// Feed-forward network of one block.
#[derive(Clone, Debug)]
pub struct FfnWeights {
    pub norm: Option<NormWeights>,
    pub kind: FfnStages,
    pub post_norm: Option<NormWeights>,
}

/// Where the matrices of a feed-forward network are.
#[derive(Clone, Debug)]
pub enum FfnStages {
    Dense {
        /// Outputs: gate and up, or up alone where there is no gate.
        gate_up: Stage,
        gate_bias: Option<Vec<f32>>,
        up_bias: Option<Vec<f32>>,
        down: Stage,
        down_bias: Option<Vec<f32>>,
    },
    Experts(ExpertWeights),
}

/// Experts that a router chooses from.
#[derive(Clone, Debug)]
pub struct ExpertWeights {
    /// Outputs: one logit an expert, and one for the shared expert where that has a gate.
    pub router: Stage,
    pub router_bias: Option<Vec<f32>>,
    /// Added to the scores where experts are chosen, not where they are weighed.
    pub choice_bias: Option<Vec<f32>>,
    pub shared: Option<SharedExpert>,
    /// Outputs of expert `e`: matrices `first + 2 e` (gate) and `first + 2 e + 1` (up).
    pub gate_up: Stage,
    /// Rows of `(experts, ffn)`.
    pub gate_bias: Option<Vec<f32>>,
    pub up_bias: Option<Vec<f32>>,
    /// Output of expert `e`: matrix `first + e`.
    pub down: Stage,
    /// Rows of `(experts, width)`.
    pub down_bias: Option<Vec<f32>>,
}

/// A network beside the experts that every token goes through.
#[derive(Clone, Debug)]
pub struct SharedExpert {
    /// Outputs: gate and up.
    pub gate_up: Stage,
    pub down: Stage,
    /// Whether the router's last output says how much of it is added.
    pub has_gate: bool,
}

/// One block.
#[derive(Clone, Debug)]
pub struct BlockWeights {
    pub mixer: MixerWeights,
    pub ffn: FfnWeights,
}
