//! What a toy of each architecture consists of: metadata keys and tensors as llama.cpp's converter writes them.

use crate::gguf::TensorType;
use crate::gguf::writer::Writer;

use super::vocabulary::{self, Vocabulary};

/// What tells one architecture's toys from another's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Architecture {
    pub name: &'static str,
    epsilon: f32,
    rope_base: f32,
    pre_tokenizer: &'static str,
    experts: Experts,
    biases: bool,
    qk_norms: bool,
    post_norms: bool,
    fused: bool,
    /// Head dimensions are keys of their own, not width by heads.
    head_keys: bool,
    always_tied: bool,
    window: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Experts {
    Never,
    Optional,
    Always,
}

const LLAMA: Architecture = Architecture {
    name: "llama",
    epsilon: 1e-5,
    rope_base: 10_000.0,
    pre_tokenizer: "smollm",
    experts: Experts::Optional,
    biases: false,
    qk_norms: false,
    post_norms: false,
    fused: false,
    head_keys: false,
    always_tied: false,
    window: None,
};

const QWEN2: Architecture = Architecture {
    name: "qwen2",
    epsilon: 1e-6,
    rope_base: 1_000_000.0,
    pre_tokenizer: "qwen2",
    experts: Experts::Never,
    biases: true,
    ..LLAMA
};

const QWEN3: Architecture = Architecture { name: "qwen3", biases: false, qk_norms: true, head_keys: true, ..QWEN2 };

/// The architectures that toys come in.
pub const ARCHITECTURES: [Architecture; 7] = [
    LLAMA,
    QWEN2,
    QWEN3,
    Architecture { name: "qwen3moe", experts: Experts::Always, ..QWEN3 },
    Architecture {
        name: "gemma2",
        qk_norms: false,
        post_norms: true,
        always_tied: true,
        window: Some(4096),
        rope_base: 10_000.0,
        pre_tokenizer: "smollm",
        ..QWEN3
    },
    Architecture {
        name: "gemma3",
        post_norms: true,
        always_tied: true,
        window: Some(512),
        pre_tokenizer: "smollm",
        ..QWEN3
    },
    Architecture { name: "phi3", fused: true, experts: Experts::Never, ..LLAMA },
];

/// Everything that decides a toy.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    pub architecture: Architecture,
    pub layers: u32,
    pub width: u32,
    pub heads: u32,
    pub kv_heads: u32,
    /// Of one expert, where there are experts.
    pub ffn: u32,
    pub vocab: u32,
    /// Experts and how many of them each token uses.
    pub experts: Option<(u32, u32)>,
    pub tied: bool,
    pub context: u32,
    pub ty: TensorType,
    /// Of the matrix that makes the logits.
    pub head_ty: TensorType,
    pub seed: u64,
}

/// How a tensor's values are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Values {
    /// About zero, of this standard deviation.
    Weights(f32),
    /// Near one.
    Norm,
}

impl Recipe {
    /// A recipe with the customary proportions: heads of 64, as many kv heads, a feed-forward part of 8/3 the width.
    pub fn new(architecture: Architecture, layers: u32, width: u32, ty: TensorType) -> Self {
        let fits = |heads: &u32| width.is_multiple_of(2 * *heads);
        let heads = (1..=(width / 64).max(1)).rev().find(fits).unwrap_or(1);
        let step = ty.block_len().max(32) as u32;
        Self {
            architecture,
            layers,
            width,
            heads,
            kv_heads: heads,
            ffn: (width.saturating_mul(8) / 3).next_multiple_of(step),
            vocab: vocabulary::LEAST as u32,
            experts: (architecture.experts == Experts::Always).then_some((8, 2)),
            tied: architecture.always_tied,
            context: 4096,
            ty,
            head_ty: ty,
            seed: 1,
        }
    }

    fn head_dim(&self) -> u32 {
        self.width / self.heads
    }

    /// Why this cannot be written, if it cannot.
    pub fn check(&self) -> Result<(), String> {
        let Self { architecture, width, heads, kv_heads, .. } = *self;
        let name = architecture.name;
        if [self.layers, width, heads, kv_heads, self.ffn, self.context].contains(&0) {
            return Err("layers, width, heads, kv-heads, ffn and context must be at least 1".into());
        }
        if !width.is_multiple_of(heads) || !self.head_dim().is_multiple_of(2) {
            return Err(format!("width {width} does not divide into {heads} heads of even size; change --heads"));
        }
        if !heads.is_multiple_of(kv_heads) {
            return Err(format!("{heads} heads cannot share {kv_heads} kv heads evenly; change --kv-heads"));
        }
        let sizes = vocabulary::LEAST..=vocabulary::MOST;
        if !sizes.contains(&(self.vocab as usize)) {
            return Err(format!("a vocabulary of {} is not possible: {sizes:?} are", self.vocab));
        }
        match (architecture.experts, self.experts) {
            (Experts::Never, Some(_)) => return Err(format!("{name} has no experts; take --arch llama or qwen3moe")),
            (_, Some((experts, used))) if used == 0 || used > experts => {
                return Err(format!("{used} of {experts} experts cannot be used; change --experts-used"));
            }
            _ => {}
        }
        if architecture.always_tied && !self.tied {
            return Err(format!("{name} always shares the embedding's weights with the head"));
        }
        for (what, row, ty) in
            [("--width", width, self.ty), ("--width", width, self.head_ty), ("--ffn", self.ffn, self.ty)]
        {
            let block = ty.block_len() as u32;
            if !row.is_multiple_of(block) {
                let near = row.checked_next_multiple_of(block).unwrap_or(row - row % block);
                return Err(format!("{ty} needs rows of a multiple of {block}, {what} {row} is not; try {near}"));
            }
        }
        Ok(())
    }

    /// The file's metadata and directory, and how the values of each tensor are drawn, in the same order.
    pub(super) fn layout(&self) -> std::io::Result<(Writer, Vec<Values>)> {
        let mut layout = Layout { writer: Writer::new(), values: Vec::new() };
        self.metadata(&mut layout.writer);
        self.tensors(&mut layout)?;
        Ok((layout.writer, layout.values))
    }

    fn metadata(&self, writer: &mut Writer) {
        let Self { architecture, .. } = self;
        let name = architecture.name;
        let key = |suffix: &str| format!("{name}.{suffix}");
        // Without the architecture: llama.cpp takes a name with "phi3" in it for a vocabulary with Phi 3's specials.
        let title = format!("toy {}x{} {}", self.layers, self.width, self.ty);
        writer.set("general.architecture", name);
        writer.set("general.type", "model");
        writer.set("general.name", title.as_str());
        writer.set(&key("block_count"), self.layers);
        writer.set(&key("context_length"), self.context);
        writer.set(&key("embedding_length"), self.width);
        writer.set(&key("feed_forward_length"), self.ffn);
        writer.set(&key("attention.head_count"), self.heads);
        writer.set(&key("attention.head_count_kv"), self.kv_heads);
        writer.set(&key("rope.freq_base"), architecture.rope_base);
        writer.set(&key("attention.layer_norm_rms_epsilon"), architecture.epsilon);
        writer.set(&key("vocab_size"), self.vocab);
        if architecture.head_keys {
            writer.set(&key("attention.key_length"), self.head_dim());
            writer.set(&key("attention.value_length"), self.head_dim());
        } else {
            writer.set(&key("rope.dimension_count"), self.head_dim());
        }
        if let Some((experts, used)) = self.experts {
            writer.set(&key("expert_count"), experts);
            writer.set(&key("expert_used_count"), used);
            if architecture.experts == Experts::Always {
                writer.set(&key("expert_feed_forward_length"), self.ffn);
            }
        }
        if let Some(window) = architecture.window {
            writer.set(&key("attention.sliding_window"), window);
        }
        if name == "gemma2" {
            writer.set(&key("attn_logit_softcapping"), 50.0f32);
            writer.set(&key("final_logit_softcapping"), 30.0f32);
        }
        if name == "phi3" {
            writer.set(&key("rope.scaling.original_context_length"), self.context);
            // A window of zero would mean none; one past the context is none to llama.cpp too.
            writer.set(&key("attention.sliding_window"), self.context.saturating_add(1));
        }
        if let Some(number) = file_type(self.ty) {
            writer.set("general.file_type", number);
        }
        writer.set("general.quantization_version", 2u32);
        let vocabulary = Vocabulary::new(self.vocab as usize);
        writer.set("tokenizer.ggml.model", "gpt2");
        writer.set("tokenizer.ggml.pre", architecture.pre_tokenizer);
        writer.set("tokenizer.ggml.tokens", vocabulary.tokens.as_slice());
        writer.set("tokenizer.ggml.token_type", vocabulary.types.as_slice());
        writer.set("tokenizer.ggml.merges", vocabulary.merges.as_slice());
        writer.set("tokenizer.ggml.bos_token_id", vocabulary::BOS);
        writer.set("tokenizer.ggml.eos_token_id", vocabulary::EOS);
        writer.set("tokenizer.ggml.add_bos_token", false);
        writer.set("tokenizer.chat_template", vocabulary::CHAT_TEMPLATE);
    }

    fn tensors(&self, out: &mut Layout) -> std::io::Result<()> {
        let Self { architecture, ty, .. } = *self;
        let [width, ffn, vocab] = [self.width, self.ffn, self.vocab].map(u64::from);
        let kv_width = u64::from(self.kv_heads * self.head_dim());
        let inward = Values::Weights(1.0 / (self.width as f32).sqrt());
        // What is added to the residual stream shrinks with depth, so that the sum stays near one.
        let outward = |rows: u64| Values::Weights(1.0 / (2.0 * self.layers as f32 * rows as f32).sqrt());
        // Rows of the head meet a normed vector, so this is a third of the logits' size.
        let head = Values::Weights(3.0 / (self.width as f32).sqrt());

        if self.tied {
            out.tensor("token_embd.weight", &[width, vocab], self.head_ty, head)?;
        } else {
            out.tensor("token_embd.weight", &[width, vocab], ty, Values::Weights(1.0))?;
        }
        out.norm("output_norm.weight", width)?;
        if !self.tied {
            out.tensor("output.weight", &[width, vocab], self.head_ty, head)?;
        }
        for layer in 0..self.layers {
            let name = |suffix: &str| format!("blk.{layer}.{suffix}");
            out.norm(&name("attn_norm.weight"), width)?;
            if architecture.fused {
                out.tensor(&name("attn_qkv.weight"), &[width, width + 2 * kv_width], ty, inward)?;
            } else {
                out.tensor(&name("attn_q.weight"), &[width, width], ty, inward)?;
                out.tensor(&name("attn_k.weight"), &[width, kv_width], ty, inward)?;
                out.tensor(&name("attn_v.weight"), &[width, kv_width], ty, inward)?;
            }
            if architecture.biases {
                for (suffix, rows) in [("q", width), ("k", kv_width), ("v", kv_width)] {
                    out.tensor(&name(&format!("attn_{suffix}.bias")), &[rows], TensorType::F32, Values::Weights(0.2))?;
                }
            }
            if architecture.qk_norms {
                out.norm(&name("attn_q_norm.weight"), self.head_dim().into())?;
                out.norm(&name("attn_k_norm.weight"), self.head_dim().into())?;
            }
            out.tensor(&name("attn_output.weight"), &[width, width], ty, outward(width))?;
            if architecture.post_norms {
                out.norm(&name("post_attention_norm.weight"), width)?;
            }
            out.norm(&name("ffn_norm.weight"), width)?;
            if let Some((experts, _)) = self.experts {
                let experts = u64::from(experts);
                out.tensor(&name("ffn_gate_inp.weight"), &[width, experts], TensorType::F32, inward)?;
                out.tensor(&name("ffn_gate_exps.weight"), &[width, ffn, experts], ty, inward)?;
                out.tensor(&name("ffn_up_exps.weight"), &[width, ffn, experts], ty, inward)?;
                out.tensor(&name("ffn_down_exps.weight"), &[ffn, width, experts], ty, outward(ffn))?;
            } else if architecture.fused {
                out.tensor(&name("ffn_up.weight"), &[width, 2 * ffn], ty, inward)?;
                out.tensor(&name("ffn_down.weight"), &[ffn, width], ty, outward(ffn))?;
            } else {
                out.tensor(&name("ffn_gate.weight"), &[width, ffn], ty, inward)?;
                out.tensor(&name("ffn_up.weight"), &[width, ffn], ty, inward)?;
                out.tensor(&name("ffn_down.weight"), &[ffn, width], ty, outward(ffn))?;
            }
            if architecture.post_norms {
                out.norm(&name("post_ffw_norm.weight"), width)?;
            }
        }
        Ok(())
    }
}

struct Layout {
    writer: Writer,
    values: Vec<Values>,
}

impl Layout {
    fn tensor(&mut self, name: &str, shape: &[u64], ty: TensorType, values: Values) -> std::io::Result<()> {
        self.writer.tensor(name, shape, ty)?;
        self.values.push(values);
        Ok(())
    }

    fn norm(&mut self, name: &str, width: u64) -> std::io::Result<()> {
        self.tensor(name, &[width], TensorType::F32, Values::Norm)
    }
}

/// `general.file_type` for a file mostly of this type (`llama_ftype` of llama.cpp).
fn file_type(ty: TensorType) -> Option<u32> {
    Some(match ty {
        TensorType::F32 => 0,
        TensorType::F16 => 1,
        TensorType::Q4_0 => 2,
        TensorType::Q4_1 => 3,
        TensorType::Q8_0 => 7,
        TensorType::Q5_0 => 8,
        TensorType::Q5_1 => 9,
        TensorType::Q2_K => 10,
        TensorType::Q3_K => 11,
        TensorType::Q4_K => 14,
        TensorType::Q5_K => 16,
        TensorType::Q6_K => 18,
        TensorType::IQ2_XXS => 19,
        TensorType::IQ2_XS => 20,
        TensorType::IQ3_XXS => 23,
        TensorType::IQ1_S => 24,
        TensorType::IQ4_NL => 25,
        TensorType::IQ3_S => 26,
        TensorType::IQ2_S => 28,
        TensorType::IQ4_XS => 30,
        TensorType::IQ1_M => 31,
        TensorType::BF16 => 32,
        TensorType::TQ1_0 => 36,
        TensorType::TQ2_0 => 37,
        TensorType::MXFP4 => 38,
        _ => return None,
    })
}
