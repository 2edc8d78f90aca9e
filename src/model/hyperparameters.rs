//! The numbers of a model's header, checked against each other before anything is sized by them.

use super::ModelError;
use super::architecture::{self, Architecture, Branches, Gating, RopeLayers, Scales, Shares, Window, WindowRope};
use super::header::{Header, MOST};
use super::rope_scaling::{RopeScaling, latent_scale, original_context, rope_base, rope_scaling};
use crate::gguf::Gguf;
use crate::kernels::ops::Pairing;

/// Experts of a mixture model.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    pub count: usize,
    pub used: usize,
    /// Width of one expert's intermediate.
    pub ffn: usize,
    /// Width of the intermediate of the network that every token goes through beside them; 0 without one.
    pub shared_ffn: usize,
    pub gating: Gating,
    /// Whether the weights of the chosen sum to 1.
    pub sum_to_one: bool,
    /// Their weights are multiplied by this.
    pub scale: f32,
    /// Equal runs of experts, of which the best [`groups_used`](Self::groups_used) are chosen from; 1 without.
    pub groups: usize,
    pub groups_used: usize,
}

/// Keys and values of a position as one latent vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latent {
    /// Elements of the vector.
    pub rank: usize,
    /// Elements of the vectors that queries are made of; 0 where queries are projected directly.
    pub query_rank: usize,
    /// Elements of one head of K and of V as they would be without; those of [`Hyperparameters`] are of what is cached.
    pub key_dim: usize,
    pub value_dim: usize,
}

/// Scaling of queries by position (`attention.temperature_scale`): by `1 + scale ln(1 + floor(position / step))`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Temperature {
    pub scale: f32,
    pub step: u32,
}

/// What kind of mixing of positions a layer does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerKind {
    /// A short convolution instead of attention.
    pub is_convolution: bool,
    /// Attention sees a window only.
    pub is_windowed: bool,
    /// Queries and keys are turned by their position.
    pub has_rope: bool,
}

/// What a forward pass needs to know of the header.
#[derive(Clone, Debug)]
pub struct Hyperparameters {
    pub arch: &'static Architecture,
    pub layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    pub heads: usize,
    pub kv_heads: usize,
    /// Elements of one head of Q and K.
    pub key_dim: usize,
    /// Elements of one head of V.
    pub value_dim: usize,
    /// Width of the feed-forward intermediate of layers without experts.
    pub ffn: usize,
    /// The widest feed-forward intermediate of any layer.
    pub widest_ffn: usize,
    pub experts: Option<Experts>,
    /// By layer.
    pub kinds: Vec<LayerKind>,
    pub latent: Option<Latent>,
    /// Positions that a short convolution sees, itself included.
    pub convolution: usize,
    /// Attention and feed-forward network both see the block's input.
    pub side_by_side: bool,
    pub pairing: Pairing,
    pub vocabulary: usize,
    pub context_trained: u32,
    pub norm_eps: f32,
    pub rope_base: f32,
    /// Base of windowed layers.
    pub rope_base_window: f32,
    /// Elements of a head that are rotated.
    pub rope_dim: usize,
    pub rope_scaling: RopeScaling,
    /// Window of the windowed layers, in positions.
    pub window: Option<usize>,
    pub attention_scale: f32,
    pub temperature: Option<Temperature>,
    pub attention_softcap: Option<f32>,
    pub logit_softcap: Option<f32>,
    pub embedding_scale: f32,
    pub residual_scale: f32,
    /// Logits are multiplied by this.
    pub logit_scale: f32,
}

impl Hyperparameters {
    /// Reads and checks the header.
    ///
    /// # Errors
    /// An unknown architecture (with the list of known ones), a missing key, or values that contradict.
    pub fn from_gguf(gguf: &Gguf) -> Result<Self, ModelError> {
        let name = gguf.architecture()?;
        let arch = architecture::find(name).ok_or_else(|| ModelError::unknown_architecture(name))?;
        let metadata = gguf.metadata();
        let header = Header { metadata, prefix: arch.name };

        let blocks = header.required("block_count")?;
        if blocks > gguf.tensors().len() {
            return Err(ModelError::Header(format!(
                "{} is {blocks}, more than the file has tensors",
                header.key("block_count")
            )));
        }
        // Blocks at the end that guess tokens ahead are no part of a pass.
        let layers =
            blocks.saturating_sub(header.metadata.u64(&header.key("nextn_predict_layers")).unwrap_or(0) as usize);
        if layers == 0 {
            return Err(ModelError::Header("no block is left to run".to_owned()));
        }
        let width = header.required("embedding_length")?;
        let heads = header
            .uniform(gguf, "attention.head_count")?
            .ok_or_else(|| ModelError::Header(format!("{} is missing", header.key("attention.head_count"))))?;
        let kv_heads = header.uniform(gguf, "attention.head_count_kv")?.unwrap_or(heads);
        if heads % kv_heads != 0 {
            return Err(ModelError::Header(format!("{heads} heads do not divide among {kv_heads} key/value heads")));
        }
        let even = (width % heads == 0).then(|| width / heads);
        let key_dim = header
            .count("attention.key_length")?
            .or(even)
            .ok_or_else(|| ModelError::Header(format!("a width of {width} does not divide among {heads} heads")))?;
        let value_dim = header.count("attention.value_length")?.or(even).unwrap_or(key_dim);
        let context_trained = header.required("context_length")? as u32;

        let experts = experts(gguf, &header, arch)?;
        let has_dense = (0..layers).any(|layer| !has_experts(gguf, layer)) || experts.is_none();
        let ffn = match (header.uniform(gguf, "feed_forward_length")?, experts) {
            (Some(ffn), _) => ffn,
            (None, Some(experts)) if !has_dense => experts.ffn,
            _ => return Err(ModelError::Header(format!("{} is missing", header.key("feed_forward_length")))),
        };
        let widest_ffn = experts.map_or(0, |e| e.ffn.max(e.shared_ffn)).max(if has_dense { ffn } else { 0 });

        let rope_dim = header.count("rope.dimension_count")?.unwrap_or(key_dim);
        if rope_dim > key_dim || rope_dim % 2 != 0 {
            return Err(ModelError::Header(format!(
                "{} is {rope_dim}, not an even number up to the head's {key_dim}",
                header.key("rope.dimension_count")
            )));
        }
        let rope_base = rope_base(&header, key_dim)?;
        let rope_scaling = rope_scaling(gguf, &header, arch, context_trained)?;
        let latent = match arch.latent {
            true => Some(latent(gguf, &header, (heads, kv_heads), (key_dim, value_dim), rope_dim)?),
            false => None,
        };
        let norm_eps = match header.f32("attention.layer_norm_rms_epsilon")? {
            Some(eps) => eps,
            None => header.f32("attention.layer_norm_epsilon")?.unwrap_or(1e-5),
        };
        let head_scale = match latent {
            Some(latent) => latent.key_dim,
            None if arch.wide_query_scale_at == Some(layers as u32) => width / heads,
            None => key_dim,
        };
        let latent_scale = if arch.latent { latent_scale(&header, &rope_scaling)? } else { 1.0 };
        let scales = scales(&header, arch, width, layers)?;
        let window = match arch.window {
            Window::Never => None,
            _ => header.nonzero_count("attention.sliding_window")?.or(arch.window_default),
        };
        let (attention_cap, logit_cap) = arch.default_caps.unzip();
        let window_rope_base = match arch.window_rope {
            WindowRope::Unscaled(base) => base,
            WindowRope::Same => None,
        };
        let convolution = if arch.short_convolutions { header.required("shortconv.l_cache")? } else { 0 };
        if arch.short_convolutions && !(2..=64).contains(&convolution) {
            return Err(ModelError::Header(format!("{} is {convolution}", header.key("shortconv.l_cache"))));
        }

        Ok(Self {
            arch,
            layers,
            width,
            heads,
            kv_heads,
            key_dim,
            value_dim,
            ffn,
            widest_ffn,
            experts,
            kinds: kinds(gguf, &header, arch, layers, window)?,
            latent,
            convolution,
            side_by_side: match arch.branches {
                Branches::InTurn => false,
                Branches::SideBySide => true,
                Branches::SideBySideWithoutFfnNorm => gguf.tensor("blk.0.ffn_norm.weight").is_none(),
            },
            // Axes of pictures are for halves of heads only; text has the same position on all of them.
            pairing: match gguf.u64s(&header.key("rope.dimension_sections"))?.as_deref() {
                Some([time, height, ..]) if *time > 0 && *height > 0 => Pairing::Halves,
                _ => arch.pairing,
            },
            vocabulary: vocabulary(gguf)?,
            context_trained,
            norm_eps,
            rope_base,
            rope_base_window: header.f32("rope.freq_base_swa")?.or(window_rope_base).unwrap_or(rope_base),
            rope_dim,
            rope_scaling,
            window,
            attention_scale: scales.attention.unwrap_or_else(|| (latent_scale / (head_scale as f64).sqrt()) as f32),
            temperature: header
                .nonzero("attention.temperature_scale")?
                .map(|scale| Temperature { scale, step: original_context(&header, context_trained).max(1) }),
            attention_softcap: header.nonzero("attn_logit_softcapping")?.or(attention_cap),
            logit_softcap: header.nonzero("final_logit_softcapping")?.or(logit_cap),
            embedding_scale: scales.embedding,
            residual_scale: scales.residual,
            logit_scale: scales.logits,
        })
    }

    /// Elements of one position's queries.
    pub fn q_width(&self) -> usize {
        self.heads * self.key_dim
    }

    /// Elements of one position's keys.
    pub fn k_width(&self) -> usize {
        self.kv_heads * self.key_dim
    }

    /// Elements of one position's values.
    pub fn v_width(&self) -> usize {
        self.kv_heads * self.value_dim
    }

    /// Elements of one position's attention output, before its projection.
    pub fn attention_width(&self) -> usize {
        self.heads * self.value_dim
    }

    /// The window of this layer, if it has one.
    pub fn window_of(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.kinds[layer].is_windowed)
    }

    /// Layers that attend, and so have keys and values.
    pub fn attending_layers(&self) -> usize {
        self.kinds.iter().filter(|kind| !kind.is_convolution).count()
    }
}

/// Most groups of experts: they are chosen in a word of bits.
const MOST_GROUPS: usize = 64;

/// The shape of latent attention, which must be that of what is cached.
fn latent(
    gguf: &Gguf,
    header: &Header<'_>,
    (heads, kv_heads): (usize, usize),
    cached: (usize, usize),
    rope_dim: usize,
) -> Result<Latent, ModelError> {
    let rank = header.required("attention.kv_lora_rank")?;
    let short = gguf.tensor("blk.0.attn_q_a.weight").is_some();
    let query_rank = if short { header.required("attention.q_lora_rank")? } else { 0 };
    let (key_dim, value_dim, fits) = match header.count("attention.key_length_mla")? {
        Some(key_dim) => {
            let value_dim = header.required("attention.value_length_mla")?;
            (key_dim, value_dim, cached == (rank + rope_dim, rank) && kv_heads == 1)
        }
        None => (cached.0, cached.1, kv_heads == heads),
    };
    if !fits || key_dim <= rope_dim {
        let (key, value) = cached;
        return Err(ModelError::Header(format!(
            "latent vectors of {rank} and {rope_dim} do not give {kv_heads} key/value heads of {key} and {value}"
        )));
    }
    Ok(Latent { rank, query_rank, key_dim, value_dim })
}

/// Whether a layer chooses among experts.
fn has_experts(gguf: &Gguf, layer: usize) -> bool {
    gguf.tensor(&format!("blk.{layer}.ffn_gate_inp.weight")).is_some()
}

fn experts(gguf: &Gguf, header: &Header<'_>, arch: &Architecture) -> Result<Option<Experts>, ModelError> {
    if header.metadata.u64(&header.key("expert_count")).is_none_or(|count| count == 0) {
        return Ok(None);
    }
    let count = header.required("expert_count")?;
    let used = header.required("expert_used_count")?;
    if used > count {
        return Err(ModelError::Header(format!("{used} experts used of {count}")));
    }
    let groups = header.nonzero_count("expert_group_count")?.unwrap_or(1);
    let groups_used = if groups > 1 { header.required("expert_group_used_count")? } else { 1 };
    if groups > MOST_GROUPS || count % groups != 0 || groups_used > groups || groups_used * (count / groups) < used {
        return Err(ModelError::Header(format!("{used} of {count} experts from {groups_used} of {groups} groups")));
    }
    let ffn = match header.uniform(gguf, "expert_feed_forward_length")? {
        Some(ffn) => ffn,
        None => header
            .uniform(gguf, "feed_forward_length")?
            .ok_or_else(|| ModelError::Header(format!("{} is missing", header.key("expert_feed_forward_length"))))?,
    };
    // Files name the width, or a count of experts, or neither: the tensor has it.
    let shared = gguf.tensors().iter().find(|t| t.name.ends_with(".ffn_up_shexp.weight"));
    let shared_ffn = shared.map_or(0, |tensor| tensor.rows());
    if shared_ffn > MOST {
        return Err(ModelError::Header(format!("a shared expert of width {shared_ffn}")));
    }
    let gating = match header.metadata.u64(&header.key("expert_gating_func")) {
        None | Some(0) => arch.gating,
        Some(1) => Gating::Softmax,
        Some(2) => Gating::Sigmoid,
        Some(3) => Gating::SoftmaxOfChosen,
        Some(other) => {
            let key = header.key("expert_gating_func");
            return Err(ModelError::Header(format!("{key} is {other}, which is not known")));
        }
    };
    let sum_to_one = match arch.shares {
        Shares::SumToOne => true,
        Shares::AsScored => false,
        Shares::File => header.flag("expert_weights_norm").unwrap_or(false),
    };
    let scale = header.nonzero("expert_weights_scale")?.unwrap_or(1.0);
    Ok(Some(Experts {
        count,
        used,
        ffn,
        shared_ffn: shared_ffn as usize,
        gating,
        sum_to_one,
        scale,
        groups,
        groups_used,
    }))
}

/// What each layer is.
fn kinds(
    gguf: &Gguf,
    header: &Header<'_>,
    arch: &Architecture,
    layers: usize,
    window: Option<usize>,
) -> Result<Vec<LayerKind>, ModelError> {
    let kv_heads = gguf.u64s(&header.key("attention.head_count_kv"))?;
    let is_convolution =
        |layer| arch.short_convolutions && kv_heads.as_ref().and_then(|heads| heads.get(layer)) == Some(&0);
    let pattern_key = header.key("attention.sliding_window_pattern");
    let flags = match header.metadata.array(&pattern_key) {
        Some(_) => gguf.u64s(&pattern_key)?,
        None => None,
    };
    let is_windowed = |layer: usize| match (arch.window, &flags) {
        _ if window.is_none() => false,
        (Window::Never, _) => false,
        (Window::Always, _) => true,
        (Window::AllButLastOf { .. }, Some(flags)) => flags.get(layer).is_some_and(|flag| *flag > 0),
        (Window::AllButLastOf { period }, None) => {
            match header.metadata.u64(&pattern_key).unwrap_or(u64::from(period)) {
                0 => false,
                period => layer as u64 % period < period - 1,
            }
        }
    };
    let finetuned = header.flag("rope.scaling.finetuned").unwrap_or(true);
    let has_rope = |layer: usize| match arch.rope_layers {
        RopeLayers::All => true,
        RopeLayers::NotEvery(n) => !(layer as u32 + 1).is_multiple_of(n),
        RopeLayers::Windowed => window.is_none() || is_windowed(layer),
        RopeLayers::File => finetuned,
    };
    let kind = |layer| LayerKind {
        is_convolution: is_convolution(layer),
        is_windowed: is_windowed(layer),
        has_rope: has_rope(layer),
    };
    let kinds: Vec<LayerKind> = (0..layers).map(kind).collect();
    if kinds.iter().all(|kind| kind.is_convolution) {
        return Err(ModelError::Header("no layer attends".to_owned()));
    }
    Ok(kinds)
}

/// Factors on the residual stream and at its ends.
struct Factors {
    embedding: f32,
    residual: f32,
    /// `None`: by the head's size.
    attention: Option<f32>,
    logits: f32,
}

fn scales(header: &Header<'_>, arch: &Architecture, width: usize, layers: usize) -> Result<Factors, ModelError> {
    let none = Factors { embedding: 1.0, residual: 1.0, attention: None, logits: 1.0 };
    Ok(match arch.scales {
        Scales::None => none,
        Scales::Gemma => Factors { embedding: (width as f32).sqrt(), ..none },
        Scales::Granite => Factors {
            embedding: header.nonzero("embedding_scale")?.unwrap_or(1.0),
            residual: header.nonzero("residual_scale")?.unwrap_or(1.0),
            attention: header.nonzero("attention.scale")?,
            logits: header.nonzero("logit_scale")?.map_or(1.0, |scale| 1.0 / scale),
        },
        Scales::MiniCpm => Factors {
            embedding: header.nonzero("embedding_scale")?.unwrap_or(12.0),
            residual: header.nonzero("residual_scale")?.unwrap_or(1.4 / (layers as f32).sqrt()),
            logits: 1.0 / header.nonzero("logit_scale")?.unwrap_or(256.0 / width as f32),
            ..none
        },
        Scales::Cohere => Factors { logits: header.nonzero("logit_scale")?.unwrap_or(1.0), ..none },
    })
}

/// Rows of the token embedding, which must exist and be as wide as the header says.
fn vocabulary(gguf: &Gguf) -> Result<usize, ModelError> {
    let rows = gguf.tensor("token_embd.weight").ok_or_else(|| ModelError::missing("token_embd.weight"))?.rows();
    if rows == 0 || rows > MOST {
        return Err(ModelError::Header(format!("token_embd.weight has {rows} rows, not within 1 to {MOST}")));
    }
    Ok(rows as usize)
}
