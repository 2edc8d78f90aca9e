//! Which tensors a pass uses, in the order in which it uses them, with every shape checked.
//!
//! Matrices become [`MatrixSpec`]s for the extent table; a fused tensor (QKV, or gate and up) becomes one
//! spec for each of its parts, so that the forward pass knows no fused case. Vectors (norms, biases) are read
//! into memory here and stay.

use std::cell::RefCell;
use std::collections::HashSet;

use super::ModelError;
use super::architecture::{Norm, QkNorm};
use super::block_weights::{
    AttentionWeights, BlockWeights, Expansion, ExpertWeights, FfnStages, FfnWeights, LatentWeights, MixerStages,
    MixerWeights, NormWeights, SharedExpert, Stage,
};
use super::hyperparameters::{Hyperparameters, Latent};
use crate::gguf::{Gguf, TensorInfo, TensorType};
use crate::quant;
use crate::weights::{MatrixSpec, RowsAt};

/// The token embedding: rows read one at a time, past the extent table.
#[derive(Clone, Debug)]
pub struct EmbeddingRows {
    pub ty: TensorType,
    pub at: RowsAt,
    /// Whether the head's rows are the same.
    pub is_tied: bool,
}

/// Everything a pass needs to know of the file.
#[derive(Debug)]
pub struct Layout {
    pub embedding: EmbeddingRows,
    pub blocks: Vec<BlockWeights>,
    pub output_norm: NormWeights,
    pub head: Stage,
    pub head_bias: Option<Vec<f32>>,
    /// Divisors of the rotary frequencies (`rope_freqs.weight`), or LongRoPE's two sets.
    pub rope_freqs: Option<Vec<f32>>,
    pub rope_long: Option<Vec<f32>>,
    pub rope_short: Option<Vec<f32>>,
    pub matrices: Vec<MatrixSpec>,
}

impl Layout {
    /// Bytes of the vectors that stay in memory.
    pub fn resident_bytes(&self) -> usize {
        let norm = |n: &NormWeights| n.weight.len() + n.bias.as_ref().map_or(0, Vec::len);
        let some_norm = |n: &Option<NormWeights>| n.as_ref().map_or(0, norm);
        let some = |v: &Option<Vec<f32>>| v.as_ref().map_or(0, Vec::len);
        let blocks: usize = self
            .blocks
            .iter()
            .map(|block| {
                let (m, f) = (&block.mixer, &block.ffn);
                let mixer = match &m.kind {
                    MixerStages::Attention(a) => {
                        [&a.q_bias, &a.k_bias, &a.v_bias, &a.q_norm, &a.k_norm, &a.sinks].map(some).iter().sum()
                    }
                    MixerStages::Latent(l) => l.norm.len() + l.query.as_ref().map_or(0, |(norm, _)| norm.len()),
                    MixerStages::Convolution { taps, .. } => taps.len(),
                };
                let biases = match &f.kind {
                    FfnStages::Dense { gate_bias, up_bias, down_bias, .. } => {
                        some(gate_bias) + some(up_bias) + some(down_bias)
                    }
                    FfnStages::Experts(e) => {
                        [&e.router_bias, &e.choice_bias, &e.gate_bias, &e.up_bias, &e.down_bias].map(some).iter().sum()
                    }
                };
                some_norm(&m.norm)
                    + some_norm(&m.post_norm)
                    + some(&m.output_bias)
                    + mixer
                    + some_norm(&f.norm)
                    + some_norm(&f.post_norm)
                    + biases
            })
            .sum();
        4 * (blocks + norm(&self.output_norm) + some(&self.rope_freqs) + some(&self.rope_long) + some(&self.rope_short))
    }

    /// Finds and checks every tensor that the header implies.
    ///
    /// # Errors
    /// A tensor that is missing, misshapen or of a type that cannot be read.
    pub fn new(gguf: &Gguf, hp: &Hyperparameters) -> Result<Self, ModelError> {
        let mut builder = Builder { gguf, hp, matrices: Vec::new(), stages: 0, used: RefCell::default() };
        let table = builder.matrix_tensor("token_embd.weight", hp.width, hp.vocabulary)?;
        let embedding = EmbeddingRows {
            ty: table.ty,
            at: RowsAt {
                part: table.part,
                offset: table.offset,
                row_bytes: (table.bytes / hp.vocabulary as u64) as usize,
            },
            is_tied: gguf.tensor("output.weight").is_none(),
        };
        let blocks = (0..hp.layers).map(|layer| builder.block(layer)).collect::<Result<Vec<_>, _>>()?;
        let output_norm =
            builder.norm(hp.arch.output_norm, true)?.ok_or_else(|| ModelError::missing(hp.arch.output_norm))?;
        let head_name = if embedding.is_tied { "token_embd.weight" } else { "output.weight" }.to_owned();
        let head = builder.stage(&[(&head_name, hp.width, 0, hp.vocabulary)], hp.layers, hp.vocabulary, None)?;
        let rope_freqs = builder.vector("rope_freqs.weight", hp.rope_dim / 2)?;
        let rope_long = builder.vector("rope_factors_long.weight", hp.rope_dim / 2)?;
        let rope_short = builder.vector("rope_factors_short.weight", hp.rope_dim / 2)?;
        let head_bias = builder.vector("output.bias", hp.vocabulary)?;
        builder.check_that_all_is_used()?;
        Ok(Self {
            embedding,
            blocks,
            output_norm,
            head,
            head_bias,
            rope_freqs,
            rope_long,
            rope_short,
            matrices: builder.matrices,
        })
    }
}

struct Builder<'a> {
    gguf: &'a Gguf,
    hp: &'a Hyperparameters,
    matrices: Vec<MatrixSpec>,
    stages: u32,
    /// Tensors that were found, by address.
    used: RefCell<HashSet<*const TensorInfo>>,
}

impl<'a> Builder<'a> {
    fn find(&self, name: &str) -> Option<&'a TensorInfo> {
        let tensor = self.gguf.tensor(name)?;
        self.used.borrow_mut().insert(tensor);
        Some(tensor)
    }

    /// A tensor of a block or of the model's ends that nothing uses means that this is not the model that its name says.
    fn check_that_all_is_used(&self) -> Result<(), ModelError> {
        let used = self.used.borrow();
        let is_part = |name: &str| match name.strip_prefix("blk.") {
            Some(rest) => {
                rest.split('.').next().and_then(|n| n.parse().ok()).is_some_and(|n: usize| n < self.hp.layers)
            }
            None => ["output", "token_", "position_", "per_layer_"].iter().any(|start| name.starts_with(start)),
        };
        // Old files have the rotary frequencies of each layer, which follow from the header.
        let is_needless = |name: &str| name.ends_with("attn_rot_embd.weight") || name.ends_with("rope_freqs.weight");
        let unused = |tensor: &&TensorInfo| !used.contains(&std::ptr::from_ref(*tensor));
        match self.gguf.tensors().iter().filter(unused).find(|t| is_part(&t.name) && !is_needless(&t.name)) {
            Some(tensor) => Err(ModelError::Unused { name: tensor.name.clone(), arch: self.hp.arch.name }),
            None => Ok(()),
        }
    }

    /// The tensor of this name, which must be `rows` rows of `k`, in a type that rows can be decoded from.
    fn matrix_tensor(&self, name: &str, k: usize, rows: usize) -> Result<&'a TensorInfo, ModelError> {
        let tensor = self.find(name).ok_or_else(|| ModelError::missing(name))?;
        if tensor.row_len() != k as u64 || tensor.rows() != rows as u64 {
            return Err(ModelError::Shape { name: name.to_owned(), shape: tensor.shape.clone(), k, rows });
        }
        if !quant::is_supported(tensor.ty) {
            return Err(ModelError::Type { name: name.to_owned(), ty: tensor.ty });
        }
        Ok(tensor)
    }

    /// A vector of `len` as f32, if the file has it.
    fn vector(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, ModelError> {
        let Some(tensor) = self.find(name) else { return Ok(None) };
        let elements = tensor.row_len() * tensor.rows();
        if elements != len as u64 {
            return Err(ModelError::Length { name: name.to_owned(), found: elements, expected: len });
        }
        if !quant::is_supported(tensor.ty) {
            return Err(ModelError::Type { name: name.to_owned(), ty: tensor.ty });
        }
        let bytes = self.gguf.read_tensor(tensor)?;
        let mut values = vec![0.0; len];
        for (row, out) in
            bytes.chunks_exact(tensor.row_bytes() as usize).zip(values.chunks_exact_mut(tensor.row_len() as usize))
        {
            quant::decode_row(tensor.ty, row, out);
        }
        Ok(Some(values))
    }

    fn required_vector(&self, name: &str, len: usize) -> Result<Vec<f32>, ModelError> {
        self.vector(name, len)?.ok_or_else(|| ModelError::missing(name))
    }

    /// The norm of this name over the residual stream, where the family has one there.
    fn norm(&self, name: &str, present: bool) -> Result<Option<NormWeights>, ModelError> {
        if !present {
            return Ok(None);
        }
        let weight = self.required_vector(&format!("{name}.weight"), self.hp.width)?;
        let bias = match self.hp.arch.norm {
            Norm::Rms => None,
            Norm::Layer => self.vector(&format!("{name}.bias"), self.hp.width)?,
        };
        Ok(Some(NormWeights { weight, bias }))
    }

    /// A stage of parts `(tensor, k, first row, rows)`; `tensor_rows` is what each tensor must have in all.
    fn stage(
        &mut self,
        parts: &[(&str, usize, usize, usize)],
        layer: usize,
        tensor_rows: usize,
        expert: Option<u16>,
    ) -> Result<Stage, ModelError> {
        let mut stage = Stage { id: self.stages, first_matrix: self.matrices.len() as u32, types: Vec::new() };
        self.stages += 1;
        for &(name, k, first_row, rows) in parts {
            let total = if tensor_rows == 0 { rows } else { tensor_rows };
            self.push(&mut stage, layer, expert, (name, k, first_row, rows), total)?;
        }
        Ok(stage)
    }

    fn push(
        &mut self,
        stage: &mut Stage,
        layer: usize,
        expert: Option<u16>,
        (name, k, first_row, rows): (&str, usize, usize, usize),
        tensor_rows: usize,
    ) -> Result<(), ModelError> {
        let tensor = self.matrix_tensor(name, k, tensor_rows)?;
        if !stage.types.contains(&tensor.ty) {
            stage.types.push(tensor.ty);
        }
        self.matrices.push(MatrixSpec {
            name: name.to_owned(),
            ty: tensor.ty,
            k,
            rows,
            part: tensor.part,
            offset: tensor.offset + first_row as u64 * tensor.row_bytes(),
            layer: layer as u16,
            stage: stage.id,
            expert,
        });
        Ok(())
    }

    fn block(&mut self, layer: usize) -> Result<BlockWeights, ModelError> {
        Ok(BlockWeights { mixer: self.mixer(layer)?, ffn: self.ffn(layer)? })
    }

    fn mixer(&mut self, layer: usize) -> Result<MixerWeights, ModelError> {
        let (hp, name) = (self.hp, |tensor: &str| format!("blk.{layer}.{tensor}"));
        let kind = match hp.latent {
            Some(latent) => self.latent(layer, &latent)?,
            None if hp.kinds[layer].is_convolution => self.convolution(layer)?,
            None => self.attention(layer)?,
        };
        Ok(MixerWeights {
            norm: self.norm(&name("attn_norm"), hp.arch.pre_norm)?,
            kind,
            output_bias: self.vector(&name("attn_output.bias"), hp.width)?,
            post_norm: self.norm(&name("post_attention_norm"), hp.arch.post_norm)?,
        })
    }

    fn convolution(&mut self, layer: usize) -> Result<MixerStages, ModelError> {
        let (hp, name) = (self.hp, |tensor: &str| format!("blk.{layer}.shortconv.{tensor}.weight"));
        let (inward, outward) = (name("in_proj"), name("out_proj"));
        let (width, taps) = (hp.width, hp.convolution);
        let parts = [0, 1, 2].map(|part| (&*inward, width, part * width, width));
        // In the file the taps of one element are together; here those of one tap.
        let by_element = self.required_vector(&name("conv"), taps * width)?;
        let taps = (0..taps * width).map(|i| by_element[i % width * taps + i / width]).collect();
        Ok(MixerStages::Convolution {
            inward: self.stage(&parts, layer, 3 * width, None)?,
            taps,
            output: self.stage(&[(&outward, width, 0, width)], layer, 0, None)?,
        })
    }

    fn latent(&mut self, layer: usize, latent: &Latent) -> Result<MixerStages, ModelError> {
        let (hp, name) = (self.hp, |tensor: &str| format!("blk.{layer}.attn_{tensor}.weight"));
        let (width, heads, rank) = (hp.width, hp.heads, latent.rank);
        let (queries, short) = (heads * latent.key_dim, latent.query_rank);
        let (plain, value) = (latent.key_dim - hp.rope_dim, latent.value_dim);
        let [q, kv] = [name(if short > 0 { "q_a" } else { "q" }), name("kv_a_mqa")];
        let q_rows = if short > 0 { short } else { queries };
        let inward = self.stage(&[(&q, width, 0, q_rows), (&kv, width, 0, rank + hp.rope_dim)], layer, 0, None)?;
        let query = match short {
            0 => None,
            _ => {
                let norm = self.required_vector(&name("q_a_norm"), short)?;
                Some((norm, self.stage(&[(&name("q_b"), short, 0, queries)], layer, 0, None)?))
            }
        };
        let norm = self.required_vector(&name("kv_a_norm"), rank)?;
        let whole = name("kv_b");
        let expansion = if hp.kv_heads == heads && self.gguf.tensor(&whole).is_some() {
            Expansion::Whole(self.stage(&[(&whole, rank, 0, heads * (plain + value))], layer, 0, None)?)
        } else {
            let mut by_head = |tensor: &str, k: usize, rows: usize| {
                let parts: Vec<_> = (0..heads).map(|head| (tensor, k, head * rows, rows)).collect();
                self.stage(&parts, layer, heads * rows, None)
            };
            let keys = by_head(&name("k_b"), plain, rank)?;
            Expansion::ByHead { keys, values: by_head(&name("v_b"), rank, value)? }
        };
        let output = self.stage(&[(&name("output"), heads * value, 0, width)], layer, 0, None)?;
        Ok(MixerStages::Latent(LatentWeights { inward, query, norm, expansion, output }))
    }

    fn attention(&mut self, layer: usize) -> Result<MixerStages, ModelError> {
        let hp = self.hp;
        let arch = hp.arch;
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (q, k, v) = (hp.q_width(), hp.k_width(), hp.v_width());
        let fused = name("attn_qkv.weight");
        let is_fused = self.gguf.tensor(&fused).is_some();
        let qkv = if is_fused {
            let parts = [(&*fused, hp.width, 0, q), (&*fused, hp.width, q, k), (&*fused, hp.width, q + k, v)];
            self.stage(&parts, layer, q + k + v, None)?
        } else {
            let names = [name("attn_q.weight"), name("attn_k.weight"), name("attn_v.weight")];
            let parts = [(&*names[0], hp.width, 0, q), (&*names[1], hp.width, 0, k), (&*names[2], hp.width, 0, v)];
            self.stage(&parts, layer, 0, None)?
        };
        let (q_bias, k_bias, v_bias) = match self.vector(&name("attn_qkv.bias"), q + k + v)? {
            Some(bias) if is_fused => {
                (Some(bias[..q].to_vec()), Some(bias[q..q + k].to_vec()), Some(bias[q + k..].to_vec()))
            }
            _ => (
                self.vector(&name("attn_q.bias"), q)?,
                self.vector(&name("attn_k.bias"), k)?,
                self.vector(&name("attn_v.bias"), v)?,
            ),
        };
        let (q_norm, k_norm) = match arch.qk_norm {
            QkNorm::None => (None, None),
            QkNorm::PerHeadIfGiven => (
                self.vector(&name("attn_q_norm.weight"), hp.key_dim)?,
                self.vector(&name("attn_k_norm.weight"), hp.key_dim)?,
            ),
            QkNorm::PerHead | QkNorm::PerHeadAfterRope => (
                Some(self.required_vector(&name("attn_q_norm.weight"), hp.key_dim)?),
                Some(self.required_vector(&name("attn_k_norm.weight"), hp.key_dim)?),
            ),
            QkNorm::Whole => (
                Some(self.required_vector(&name("attn_q_norm.weight"), q)?),
                Some(self.required_vector(&name("attn_k_norm.weight"), k)?),
            ),
        };
        let sinks = if arch.sinks { Some(self.required_vector(&name("attn_sinks.weight"), hp.heads)?) } else { None };
        let output_name = name("attn_output.weight");
        let output = self.stage(&[(&output_name, hp.attention_width(), 0, hp.width)], layer, 0, None)?;
        Ok(MixerStages::Attention(AttentionWeights { qkv, q_bias, k_bias, v_bias, q_norm, k_norm, sinks, output }))
    }

    fn ffn(&mut self, layer: usize) -> Result<FfnWeights, ModelError> {
        let arch = self.hp.arch;
        let has_experts = self.gguf.tensor(&format!("blk.{layer}.ffn_gate_inp.weight")).is_some();
        let kind = if has_experts { self.expert_stages(layer)? } else { self.dense_stages(layer)? };
        let has_norm = arch.pre_norm && !self.hp.side_by_side;
        Ok(FfnWeights {
            norm: self.norm(&format!("blk.{layer}.{}", arch.ffn_norm), has_norm)?,
            kind,
            post_norm: self.norm(&format!("blk.{layer}.post_ffw_norm"), arch.post_norm)?,
        })
    }

    fn dense_stages(&mut self, layer: usize) -> Result<FfnStages, ModelError> {
        let hp = self.hp;
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (gate, up, down) = (name("ffn_gate.weight"), name("ffn_up.weight"), name("ffn_down.weight"));
        let gate_up = match hp.arch.ffn {
            ffn if !ffn.is_gated() => self.stage(&[(&up, hp.width, 0, hp.ffn)], layer, 0, None)?,
            _ if self.gguf.tensor(&gate).is_some() => {
                self.stage(&[(&gate, hp.width, 0, hp.ffn), (&up, hp.width, 0, hp.ffn)], layer, 0, None)?
            }
            // The gate is the first half of a fused tensor (Phi 3, GLM 4).
            _ => {
                let parts = [(&*up, hp.width, 0, hp.ffn), (&*up, hp.width, hp.ffn, hp.ffn)];
                self.stage(&parts, layer, 2 * hp.ffn, None)?
            }
        };
        Ok(FfnStages::Dense {
            gate_up,
            gate_bias: self.vector(&name("ffn_gate.bias"), hp.ffn)?,
            up_bias: self.vector(&name("ffn_up.bias"), hp.ffn)?,
            down: self.stage(&[(&down, hp.ffn, 0, hp.width)], layer, 0, None)?,
            down_bias: self.vector(&name("ffn_down.bias"), hp.width)?,
        })
    }

    fn expert_stages(&mut self, layer: usize) -> Result<FfnStages, ModelError> {
        let hp = self.hp;
        let Some(experts) = hp.experts else { return self.dense_stages(layer) };
        let (count, ffn) = (experts.count, experts.ffn);
        let name = |tensor: &str| format!("blk.{layer}.{tensor}");
        let (router_name, shared_gate) = (name("ffn_gate_inp.weight"), name("ffn_gate_inp_shexp.weight"));
        let has_shared_gate = self.gguf.tensor(&shared_gate).is_some();
        let parts = [(&*router_name, hp.width, 0, count), (&*shared_gate, hp.width, 0, 1)];
        let router = self.stage(&parts[..1 + usize::from(has_shared_gate)], layer, 0, None)?;
        let shared = self.shared_expert(layer, experts.shared_ffn, has_shared_gate)?;
        let (gate, up, down) = (name("ffn_gate_exps.weight"), name("ffn_up_exps.weight"), name("ffn_down_exps.weight"));
        let fused = name("ffn_gate_up_exps.weight");
        let is_fused = self.gguf.tensor(&fused).is_some();
        let mut gate_up = self.stage(&[], layer, 0, None)?;
        for e in 0..count {
            let (parts, rows) = if is_fused {
                ([(&*fused, hp.width, 2 * e * ffn, ffn), (&*fused, hp.width, (2 * e + 1) * ffn, ffn)], 2 * count * ffn)
            } else {
                ([(&*gate, hp.width, e * ffn, ffn), (&*up, hp.width, e * ffn, ffn)], count * ffn)
            };
            for part in parts {
                self.push(&mut gate_up, layer, Some(e as u16), part, rows)?;
            }
        }
        let mut down_stage = self.stage(&[], layer, 0, None)?;
        for e in 0..count {
            self.push(&mut down_stage, layer, Some(e as u16), (&down, ffn, e * hp.width, hp.width), count * hp.width)?;
        }
        Ok(FfnStages::Experts(ExpertWeights {
            router,
            router_bias: self.vector(&name("ffn_gate_inp.bias"), count)?,
            choice_bias: self.vector(&name("exp_probs_b.bias"), count)?,
            shared,
            gate_up,
            gate_bias: self.vector(&name("ffn_gate_exps.bias"), count * ffn)?,
            up_bias: self.vector(&name("ffn_up_exps.bias"), count * ffn)?,
            down: down_stage,
            down_bias: self.vector(&name("ffn_down_exps.bias"), count * hp.width)?,
        }))
    }

    fn shared_expert(&mut self, layer: usize, ffn: usize, has_gate: bool) -> Result<Option<SharedExpert>, ModelError> {
        let (width, name) = (self.hp.width, |tensor: &str| format!("blk.{layer}.ffn_{tensor}_shexp.weight"));
        let (gate, up, down) = (name("gate"), name("up"), name("down"));
        if self.gguf.tensor(&up).is_none() {
            return Ok(None);
        }
        Ok(Some(SharedExpert {
            gate_up: self.stage(&[(&gate, width, 0, ffn), (&up, width, 0, ffn)], layer, 0, None)?,
            down: self.stage(&[(&down, ffn, 0, width)], layer, 0, None)?,
            has_gate,
        }))
    }
}
