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
    /// Mean and variance, with bias where the file has one (Ba et al., 2016).
    Layer,
}

/// Normalisation of queries and keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QkNorm {
    None,
    /// Each head by itself before RoPE, one weight of `head_dim` shared by all heads.
    PerHead,
    /// The same in files that have such weights.
    PerHeadIfGiven,
    /// As [`PerHead`](Self::PerHead), after RoPE.
    PerHeadAfterRope,
    /// The whole row of all heads at once, before RoPE.
    Whole,
}

/// How attention and the feed-forward network follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Branches {
    /// The network sees what attention has added.
    InTurn,
    /// Both see the block's normed input, and are added together.
    SideBySide,
    /// Side by side in files without a norm of the network's own.
    SideBySideWithoutFfnNorm,
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
    /// `down(max(up, 0)^2)`, no gate.
    ReluSquared,
    /// gpt-oss: clamped, with `alpha = 1.702` and `up + 1`.
    SwiGluOai,
}

impl Ffn {
    /// Whether a gate multiplies what goes up.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::SwiGlu | Self::GeGlu | Self::SwiGluOai)
    }
}

/// How the router's logits become scores of the experts (`expert_gating_func`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gating {
    /// Softmax over all experts.
    Softmax,
    /// Each by itself.
    Sigmoid,
    /// The chosen logits alone through a softmax.
    SoftmaxOfChosen,
}

/// What is done with the scores of the chosen experts to make weights of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// They are scaled to sum to 1.
    SumToOne,
    /// They are taken as they are.
    AsScored,
    /// As `expert_weights_norm` says.
    File,
}

/// Factors of the embedding, of what a block adds, of attention and of the logits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scales {
    None,
    /// The embedding by the square root of the width.
    Gemma,
    /// All four from the file; the logits are divided by theirs.
    Granite,
    /// As Granite, with defaults from the shape, for files older than the keys.
    MiniCpm,
    /// The logits are multiplied by `logit_scale`.
    Cohere,
}

/// Which layers attend only to a window of the last positions, where the file gives one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// None does, whatever the file says.
    Never,
    /// In each run of `period` layers all but the last do; the file may name another period, or each layer.
    AllButLastOf { period: u32 },
    /// Every one does.
    Always,
}

/// How the windowed layers turn queries and keys.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WindowRope {
    /// As all others do, but for the base that the file may name for them.
    Same,
    /// Without scaling, on this base (`None` is that of all others) if the file names none.
    Unscaled(Option<f32>),
}

/// Which layers turn queries and keys by their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RopeLayers {
    All,
    /// All but every n-th.
    NotEvery(u32),
    /// In models with windows the windowed ones.
    Windowed,
    /// All or none, as `rope.scaling.finetuned` says.
    File,
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
    pub branches: Branches,
    pub ffn: Ffn,
    pub gating: Gating,
    pub shares: Shares,
    pub scales: Scales,
    pub window: Window,
    /// The window where the file gives none.
    pub window_default: Option<usize>,
    pub window_rope: WindowRope,
    pub rope_layers: RopeLayers,
    /// Soft caps of attention scores and of logits where the file gives none.
    pub default_caps: Option<(f32, f32)>,
    /// Layer count at which queries are scaled by `width / heads` instead of the head's own size.
    pub wide_query_scale_at: Option<u32>,
    /// Whether attention has a sink logit a head.
    pub sinks: bool,
    /// Name of the norm before the feed-forward network.
    pub ffn_norm: &'static str,
    /// Name of the norm before the head.
    pub output_norm: &'static str,
    /// Whether layers without key/value heads are short convolutions.
    pub short_convolutions: bool,
    /// Whether keys and values of a position come from one latent vector.
    pub latent: bool,
}

const LLAMA: Architecture = Architecture {
    name: "llama",
    families: "Llama 1 to 3, SmolLM, Mistral, TinyLlama, Mixtral",
    pairing: Pairing::Adjacent,
    norm: Norm::Rms,
    pre_norm: true,
    post_norm: false,
    qk_norm: QkNorm::None,
    branches: Branches::InTurn,
    ffn: Ffn::SwiGlu,
    gating: Gating::Softmax,
    shares: Shares::SumToOne,
    scales: Scales::None,
    window: Window::Never,
    window_default: None,
    window_rope: WindowRope::Same,
    rope_layers: RopeLayers::All,
    default_caps: None,
    wide_query_scale_at: None,
    sinks: false,
    ffn_norm: "ffn_norm",
    output_norm: "output_norm",
    short_convolutions: false,
    latent: false,
};

/// As llama, with the two halves of a head turned together.
const QWEN2: Architecture =
    Architecture { name: "qwen2", families: "Qwen 2, Qwen 2.5", pairing: Pairing::Halves, ..LLAMA };

const QWEN3: Architecture = Architecture { name: "qwen3", families: "Qwen 3", qk_norm: QkNorm::PerHead, ..QWEN2 };

const GEMMA: Architecture = Architecture {
    name: "gemma",
    families: "Gemma 1",
    pairing: Pairing::Halves,
    ffn: Ffn::GeGlu,
    scales: Scales::Gemma,
    ..LLAMA
};

const GEMMA2: Architecture = Architecture {
    name: "gemma2",
    families: "Gemma 2",
    post_norm: true,
    window: Window::AllButLastOf { period: 2 },
    window_default: Some(4096),
    default_caps: Some((50.0, 30.0)),
    wide_query_scale_at: Some(46),
    ..GEMMA
};

const GRANITE: Architecture = Architecture {
    name: "granite",
    families: "Granite 3, Granite 4 without state space layers",
    scales: Scales::Granite,
    rope_layers: RopeLayers::File,
    ..LLAMA
};

/// Norms after the branches, none before them.
const OLMO2: Architecture = Architecture {
    name: "olmo2",
    families: "OLMo 2, OLMo 3",
    pre_norm: false,
    post_norm: true,
    qk_norm: QkNorm::Whole,
    window: Window::AllButLastOf { period: 4 },
    window_rope: WindowRope::Unscaled(None),
    ..QWEN2
};

/// LayerNorm and a network without gate.
const STARCODER2: Architecture =
    Architecture { name: "starcoder2", families: "StarCoder 2", norm: Norm::Layer, ffn: Ffn::Gelu, ..QWEN2 };

const COMMAND_R: Architecture = Architecture {
    name: "command-r",
    families: "Command R",
    norm: Norm::Layer,
    branches: Branches::SideBySide,
    scales: Scales::Cohere,
    ..LLAMA
};

const LFM2: Architecture = Architecture {
    name: "lfm2",
    families: "LFM2, LFM2.5",
    window: Window::Always,
    output_norm: "token_embd_norm",
    short_convolutions: true,
    ..QWEN3
};

const DEEPSEEK2: Architecture = Architecture {
    name: "deepseek2",
    families: "DeepSeek V2, V3 and R1, Kimi K2, GLM 4.7 Flash",
    shares: Shares::File,
    latent: true,
    ..LLAMA
};

const HUNYUAN: Architecture =
    Architecture { name: "hunyuan-dense", families: "Hunyuan 0.5B to 7B", qk_norm: QkNorm::PerHeadAfterRope, ..QWEN2 };

/// Every family this program runs.
pub const ARCHITECTURES: &[Architecture] = &[
    LLAMA,
    Architecture { name: "mistral3", families: "Ministral 3", ..LLAMA },
    QWEN2,
    Architecture { name: "qwen2vl", families: "Qwen 2 VL, Qwen 2.5 VL: text", ..QWEN2 },
    Architecture { name: "qwen2moe", families: "Qwen 1.5 and 2 with experts", shares: Shares::AsScored, ..QWEN2 },
    QWEN3,
    Architecture { name: "qwen3moe", families: "Qwen 3 with experts", ..QWEN3 },
    Architecture { name: "qwen3vl", families: "Qwen 3 VL: text", ..QWEN3 },
    Architecture { name: "qwen3vlmoe", families: "Qwen 3 VL with experts: text", ..QWEN3 },
    GEMMA,
    GEMMA2,
    Architecture {
        name: "gemma3",
        families: "Gemma 3",
        qk_norm: QkNorm::PerHead,
        window: Window::AllButLastOf { period: 6 },
        window_default: None,
        window_rope: WindowRope::Unscaled(Some(10_000.0)),
        default_caps: None,
        wide_query_scale_at: Some(62),
        ..GEMMA2
    },
    Architecture { name: "phi2", families: "Phi 1.5, Phi 2", branches: Branches::SideBySide, ..STARCODER2 },
    Architecture { name: "phi3", families: "Phi 3, Phi 3.5, Phi 4", ..QWEN2 },
    Architecture { name: "smollm3", families: "SmolLM3", rope_layers: RopeLayers::NotEvery(4), ..LLAMA },
    GRANITE,
    Architecture { name: "granitemoe", families: "Granite 3 with experts", rope_layers: RopeLayers::All, ..GRANITE },
    Architecture { name: "minicpm", families: "MiniCPM, MiniCPM4", scales: Scales::MiniCpm, ..LLAMA },
    OLMO2,
    Architecture { name: "olmoe", families: "OLMoE", qk_norm: QkNorm::Whole, shares: Shares::AsScored, ..QWEN2 },
    Architecture {
        name: "exaone4",
        families: "EXAONE 4",
        qk_norm: QkNorm::PerHead,
        window_rope: WindowRope::Same,
        rope_layers: RopeLayers::Windowed,
        ..OLMO2
    },
    Architecture { name: "exaone", families: "EXAONE 3, EXAONE 3.5", ..QWEN2 },
    STARCODER2,
    Architecture { name: "nemotron", families: "Nemotron, Minitron", ffn: Ffn::ReluSquared, ..STARCODER2 },
    Architecture { name: "arcee", families: "Arcee AFM", ffn: Ffn::ReluSquared, ..LLAMA },
    Architecture {
        name: "stablelm",
        families: "StableLM",
        norm: Norm::Layer,
        branches: Branches::SideBySideWithoutFfnNorm,
        ..QWEN2
    },
    COMMAND_R,
    Architecture {
        name: "cohere2",
        families: "Command R7B, Aya",
        window: Window::AllButLastOf { period: 4 },
        rope_layers: RopeLayers::Windowed,
        ..COMMAND_R
    },
    Architecture { name: "chatglm", families: "ChatGLM 3, GLM 4 9B of 2024", ..LLAMA },
    Architecture { name: "glm4", families: "GLM 4", post_norm: true, ..LLAMA },
    Architecture { name: "internlm2", families: "InternLM 2", ..LLAMA },
    Architecture { name: "ernie4_5", families: "ERNIE 4.5", ..LLAMA },
    Architecture { name: "ernie4_5-moe", families: "ERNIE 4.5 with experts", ..LLAMA },
    HUNYUAN,
    Architecture { name: "hunyuan-moe", families: "Hunyuan A13B", ..HUNYUAN },
    Architecture { name: "seed_oss", families: "Seed-OSS", ffn_norm: "post_attention_norm", ..QWEN2 },
    Architecture { name: "bailingmoe", families: "Ling lite, Ling plus", shares: Shares::File, ..LLAMA },
    Architecture { name: "deepseek", families: "DeepSeek 16B with experts", shares: Shares::AsScored, ..LLAMA },
    DEEPSEEK2,
    Architecture { name: "mistral4", families: "Mistral 4", ..DEEPSEEK2 },
    Architecture {
        name: "glm4moe",
        families: "GLM 4.5 and 4.6, Solar Open",
        qk_norm: QkNorm::PerHeadIfGiven,
        gating: Gating::Sigmoid,
        shares: Shares::File,
        ffn_norm: "post_attention_norm",
        ..QWEN2
    },
    Architecture { name: "minimax-m2", families: "MiniMax M2", qk_norm: QkNorm::Whole, ..QWEN2 },
    Architecture { name: "dots1", families: "dots.llm1", shares: Shares::File, ..QWEN3 },
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
    LFM2,
    Architecture { name: "lfm2moe", families: "LFM2 with experts", ..LFM2 },
];

/// The family with this `general.architecture`.
pub fn find(name: &str) -> Option<&'static Architecture> {
    ARCHITECTURES.iter().find(|a| a.name == name)
}
