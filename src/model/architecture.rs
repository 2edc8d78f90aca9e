//! The model families, as data: what each does differently from the plain llama block.
//!
//! A family that differs by a flag is a new row of [`ARCHITECTURES`]. The definitions follow the models'
//! papers and reference implementations, under the names that llama.cpp's converter gives them.

use crate::kernels::ops::Pairing;

/// Normalisation of the residual stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Norm {
    /// Root mean square, no bias (Zhang and Sennrich, 2019).
    Rms,
    /// Mean and variance, with bias (Ba et al., 2016).
    Layer,
}

/// Normalisation of queries and keys before RoPE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    None,
    /// Each head by itself, one weight of `head_dim` shared by all heads.
    PerHead,
    /// The whole row of all heads at once.
    Whole,
}

/// The feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ffn {
    /// `down(silu(gate) * up)`.
    SwiGlu,
    /// `down(gelu(gate) * up)`, tanh form.
    GeGlu,
    /// `down(gelu(up))`, no gate.
    Gelu,
    /// gpt-oss: clamped, with `alpha = 1.702` and `up + 1`.
    SwiGluOai,
}

/// How the router's logits become weights of the chosen experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts, the chosen ones scaled to sum to 1.
    SoftmaxNormalised,
    /// The chosen logits alone through a softmax.
    SoftmaxOfChosen,
}

/// What the embedding is multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingScale {
    /// `embedding_scale` where the file has it, else 1.
    File,
    /// The square root of the width.
    SqrtWidth,
}

/// Which layers attend only to a window of the last positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// None does.
    Never,
    /// In each run of `period` layers all but the last do.
    AllButLastOf { period: u32 },
}

/// One family.
#[derive(Clone, Copy, Debug)]
pub struct Architecture {
    /// `general.architecture`, and the prefix of its metadata keys.
    pub name: &'static str,
    /// What people call models of this family.
    pub families: &'static str,
    pub pairing: Pairing,
    pub norm: Norm,
    /// Whether attention and feed-forward have a norm before them.
    pub pre_norm: bool,
    /// Whether they have a norm after them, before the residual is added.
    pub post_norm: bool,
    pub qk_norm: QkNorm,
    pub ffn: Ffn,
    pub gating: Gating,
    pub embedding_scale: EmbeddingScale,
    pub window: Window,
    /// RoPE base of windowed layers where the file names none; they are not scaled then.
    pub window_rope_base: Option<f32>,
    /// Every n-th layer goes without RoPE.
    pub no_rope_every: Option<u32>,
    /// Layer count at which queries are scaled by `width / heads` instead of the head's own size.
    pub wide_query_scale_at: Option<u32>,
    /// Whether attention has a sink logit a head.
    pub sinks: bool,
    /// Name of the norm before the feed-forward network.
    pub ffn_norm: &'static str,
}

const LLAMA: Architecture = Architecture {
    name: "llama",
    families: "Llama 1 to 3, SmolLM, Mistral, TinyLlama, Mixtral",
    pairing: Pairing::Adjacent,
    norm: Norm::Rms,
    pre_norm: true,
    post_norm: false,
    qk_norm: QkNorm::None,
    ffn: Ffn::SwiGlu,
    gating: Gating::SoftmaxNormalised,
    embedding_scale: EmbeddingScale::File,
    window: Window::Never,
    window_rope_base: None,
    no_rope_every: None,
    wide_query_scale_at: None,
    sinks: false,
    ffn_norm: "ffn_norm",
};

const QWEN2: Architecture =
    Architecture { name: "qwen2", families: "Qwen 2, Qwen 2.5", pairing: Pairing::Halves, ..LLAMA };

const GEMMA2: Architecture = Architecture {
    name: "gemma2",
    families: "Gemma 2",
    pairing: Pairing::Halves,
    post_norm: true,
    ffn: Ffn::GeGlu,
    embedding_scale: EmbeddingScale::SqrtWidth,
    window: Window::AllButLastOf { period: 2 },
    wide_query_scale_at: Some(46),
    ..LLAMA
};

/// Every family this program runs.
pub const ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    QWEN2,
    Architecture { name: "qwen3", families: "Qwen 3", qk_norm: QkNorm::PerHead, ..QWEN2 },
    Architecture { name: "qwen3moe", families: "Qwen 3 with experts", qk_norm: QkNorm::PerHead, ..QWEN2 },
    GEMMA2,
    Architecture {
        name: "gemma3",
        families: "Gemma 3",
        qk_norm: QkNorm::PerHead,
        window: Window::AllButLastOf { period: 6 },
        window_rope_base: Some(10_000.0),
        wide_query_scale_at: Some(62),
        ..GEMMA2
    },
    Architecture { name: "phi3", families: "Phi 3, Phi 3.5, Phi 4", ..QWEN2 },
    Architecture { name: "smollm3", families: "SmolLM3", no_rope_every: Some(4), ..LLAMA },
    Architecture { name: "granite", families: "Granite 3", ..LLAMA },
    Architecture {
        name: "olmo2",
        families: "OLMo 2",
        pre_norm: false,
        post_norm: true,
        qk_norm: QkNorm::Whole,
        ..QWEN2
    },
    Architecture { name: "starcoder2", families: "StarCoder 2", norm: Norm::Layer, ffn: Ffn::Gelu, ..QWEN2 },
    Architecture { name: "glm4", families: "GLM 4", post_norm: true, ..LLAMA },
    Architecture {
        name: "gpt-oss",
        families: "gpt-oss",
        ffn: Ffn::SwiGluOai,
        gating: Gating::SoftmaxOfChosen,
        window: Window::AllButLastOf { period: 2 },
        sinks: true,
        ffn_norm: "post_attention_norm",
        ..QWEN2
    },
];

/// The family with this `general.architecture`.
pub fn find(name: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|a| a.name == name)
}

impl Architecture {
    /// Whether this layer attends to a window only.
    pub fn is_windowed(&self, layer: usize) -> bool {
        match self.window {
            Window::Never => false,
            Window::AllButLastOf { period } => (layer as u32) % period < period - 1,
        }
    }

    /// Whether this layer rotates queries and keys.
    pub fn has_rope(&self, layer: usize) -> bool {
        self.no_rope_every.is_none_or(|n| !(layer as u32 + 1).is_multiple_of(n))
    }
}
