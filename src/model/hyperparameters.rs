//! The numbers of a model's header, checked against each other before anything is sized by them.

use super::ModelError;
use super::architecture::{self, Architecture, EmbeddingScale};
use crate::gguf::{Gguf, Metadata};

/// Rotary scaling as the header asks for it.
#[derive(Clone, Debug, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions divided by the factor.
    Linear {
        factor: f32,
    },
    /// YaRN (Peng et al., 2023).
    Yarn {
        factor: f32,
        original_context: u32,
        attention_factor: f32,
    },
    /// LongRoPE (Ding et al., 2024): per-dimension factors, `rope_factors_short.weight` up to the original
    /// context and `rope_factors_long.weight` beyond it.
    Long {
        original_context: u32,
        attention_factor: f32,
    },
}

/// Experts of a mixture model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Experts {
    pub count: usize,
    pub used: usize,
    /// Width of one expert's intermediate.
    pub ffn: usize,
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
    /// Width of the feed-forward intermediate.
    pub ffn: usize,
    pub experts: Option<Experts>,
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
    pub attention_softcap: Option<f32>,
    pub logit_softcap: Option<f32>,
    pub embedding_scale: f32,
    pub residual_scale: f32,
    /// Logits are multiplied by this.
    pub logit_scale: f32,
}

/// Largest value accepted for a count in the header: no model comes near it, and products of two fit 64 bits.
const MOST: u64 = 1 << 24;

/// Reads keys under the architecture's prefix.
struct Header<'a> {
    metadata: &'a Metadata,
    prefix: &'static str,
}

impl Header<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    fn count(&self, name: &str) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        match self.metadata.u64(&key) {
            None => Ok(None),
            Some(v) if v == 0 || v > MOST => Err(ModelError::Header(format!("{key} is {v}, not within 1 to {MOST}"))),
            Some(v) => Ok(Some(v as usize)),
        }
    }

    fn required(&self, name: &str) -> Result<usize, ModelError> {
        self.count(name)?.ok_or_else(|| ModelError::Header(format!("{} is missing", self.key(name))))
    }

    /// A count that may be given per layer (an array) as long as all are equal.
    fn uniform(&self, gguf: &Gguf, name: &str) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        if self.metadata.u64(&key).is_some() {
            return self.count(name);
        }
        let Some(values) = gguf.u64s(&key)? else { return Ok(None) };
        match values.first() {
            Some(&v) if values.iter().all(|&x| x == v) && v > 0 && v <= MOST => Ok(Some(v as usize)),
            _ => Err(ModelError::Header(format!("{key} differs from layer to layer, which is not supported"))),
        }
    }

    fn f32(&self, name: &str) -> Result<Option<f32>, ModelError> {
        let key = self.key(name);
        match self.metadata.f64(&key) {
            Some(v) if !v.is_finite() => Err(ModelError::Header(format!("{key} is {v}"))),
            v => Ok(v.map(|v| v as f32)),
        }
    }

    /// A scale or cap: 0 means that there is none.
    fn nonzero(&self, name: &str) -> Result<Option<f32>, ModelError> {
        Ok(self.f32(name)?.filter(|v| *v != 0.0))
    }
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

        let layers = header.required("block_count")?;
        if layers > gguf.tensors().len() {
            return Err(ModelError::Header(format!(
                "{} is {layers}, more than the file has tensors",
                header.key("block_count")
            )));
        }
        let width = header.required("embedding_length")?;
        let heads = header
            .uniform(gguf, "attention.head_count")?
            .ok_or_else(|| ModelError::Header(format!("{} is missing", header.key("attention.head_count"))))?;
        let kv_heads = header.uniform(gguf, "attention.head_count_kv")?.unwrap_or(heads);
        if heads % kv_heads != 0 {
            return Err(ModelError::Header(format!("{heads} heads do not divide among {kv_heads} key/value heads")));
        }
        let key_dim = match header.count("attention.key_length")? {
            Some(dim) => dim,
            None if width % heads == 0 => width / heads,
            None => {
                return Err(ModelError::Header(format!("a width of {width} does not divide among {heads} heads")));
            }
        };
        let value_dim = header.count("attention.value_length")?.unwrap_or(key_dim);
        let context_trained = header.required("context_length")? as u32;

        let experts = match header.metadata.u64(&header.key("expert_count")) {
            None | Some(0) => None,
            Some(_) => {
                let count = header.required("expert_count")?;
                let used = header.required("expert_used_count")?;
                if used > count {
                    return Err(ModelError::Header(format!("{used} experts used of {count}")));
                }
                let ffn = match header.count("expert_feed_forward_length")? {
                    Some(ffn) => ffn,
                    None => header.required("feed_forward_length")?,
                };
                Some(Experts { count, used, ffn })
            }
        };
        let ffn = match (header.uniform(gguf, "feed_forward_length")?, experts) {
            (Some(ffn), _) => ffn,
            (None, Some(experts)) => experts.ffn,
            (None, None) => {
                return Err(ModelError::Header(format!("{} is missing", header.key("feed_forward_length"))));
            }
        };

        let rope_dim = header.count("rope.dimension_count")?.unwrap_or(key_dim);
        if rope_dim > key_dim || rope_dim % 2 != 0 {
            return Err(ModelError::Header(format!(
                "{} is {rope_dim}, not an even number up to the head's {key_dim}",
                header.key("rope.dimension_count")
            )));
        }
        let rope_base = header.f32("rope.freq_base")?.unwrap_or(10_000.0);
        let norm_eps = match header.f32("attention.layer_norm_rms_epsilon")? {
            Some(eps) => eps,
            None => header.f32("attention.layer_norm_epsilon")?.unwrap_or(1e-5),
        };
        let embedding_scale = match arch.embedding_scale {
            EmbeddingScale::SqrtWidth => (width as f32).sqrt(),
            EmbeddingScale::File => header.nonzero("embedding_scale")?.unwrap_or(1.0),
        };
        let head_scale = if arch.wide_query_scale_at == Some(layers as u32) { width / heads } else { key_dim };
        let attention_scale =
            header.nonzero("attention.scale")?.unwrap_or_else(|| (1.0 / (head_scale as f64).sqrt()) as f32);
        let window = header.count("attention.sliding_window")?;

        Ok(Self {
            arch,
            layers,
            width,
            heads,
            kv_heads,
            key_dim,
            value_dim,
            ffn,
            experts,
            vocabulary: vocabulary(gguf)?,
            context_trained,
            norm_eps,
            rope_base,
            rope_base_window: header.f32("rope.freq_base_swa")?.or(arch.window_rope_base).unwrap_or(rope_base),
            rope_dim,
            rope_scaling: rope_scaling(gguf, &header, context_trained)?,
            window,
            attention_scale,
            attention_softcap: header.nonzero("attn_logit_softcapping")?,
            logit_softcap: header.nonzero("final_logit_softcapping")?,
            embedding_scale,
            residual_scale: header.nonzero("residual_scale")?.unwrap_or(1.0),
            logit_scale: header.nonzero("logit_scale")?.map_or(1.0, |s| 1.0 / s),
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
        self.window.filter(|_| self.arch.is_windowed(layer))
    }
}

/// Rows of the token embedding, which must exist and be as wide as the header says.
fn vocabulary(gguf: &Gguf) -> Result<usize, ModelError> {
    let rows = gguf.tensor("token_embd.weight").ok_or_else(|| ModelError::missing("token_embd.weight"))?.rows();
    if rows == 0 || rows > MOST {
        return Err(ModelError::Header(format!("token_embd.weight has {rows} rows, not within 1 to {MOST}")));
    }
    Ok(rows as usize)
}

/// Keys as the GGUF specification and llama.cpp's converter name them.
fn rope_scaling(gguf: &Gguf, header: &Header<'_>, context_trained: u32) -> Result<RopeScaling, ModelError> {
    let factor = header.nonzero("rope.scaling.factor")?;
    let original_context =
        header.count("rope.scaling.original_context_length")?.map_or(context_trained, |context| context as u32);
    let attention_factor = header.nonzero("rope.scaling.attn_factor")?.unwrap_or(1.0);
    if gguf.tensor("rope_factors_long.weight").is_some() {
        return Ok(RopeScaling::Long { original_context, attention_factor });
    }
    match (header.metadata.str(&header.key("rope.scaling.type")), factor) {
        (Some("yarn"), Some(factor)) => Ok(RopeScaling::Yarn { factor, original_context, attention_factor }),
        (Some("none"), _) => Ok(RopeScaling::None),
        (Some("linear") | None, Some(factor)) => Ok(RopeScaling::Linear { factor }),
        (None | Some("linear" | "yarn" | "longrope"), _) => Ok(RopeScaling::None),
        (Some(other), _) => {
            Err(ModelError::Header(format!("{} is {other:?}, which is not known", header.key("rope.scaling.type"))))
        }
    }
}
