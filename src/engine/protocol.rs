//! What front ends and the engine say to each other: plain data, no behaviour, no handles.
//!
//! Commands go in order over a channel; the budget and cancellation have ways of their own
//! ([`super::EngineHandle`]). Text and state changes come back in order and without loss as [`Event`]s;
//! figures come as a [`Snapshot`], latest wins.

use std::path::PathBuf;
use std::sync::Arc;

pub use crate::tokenizer::{Thinking, ThinkingSwitch};

pub use crate::sampler::Sampling;
pub use crate::weights::{KvCost, LeastCost};

/// Names one answer; counts up from 1. Events of an answer carry its id until its `Finished`.
pub type GenerationId = u64;

/// Who said a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    System,
    User,
    Assistant,
}

impl Role {
    /// The name that chat templates know.
    pub fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Message {
    pub role: Role,
    pub content: String,
}

/// What the engine is to continue.
#[derive(Clone, Debug, PartialEq)]
pub enum Prompt {
    /// A conversation, rendered with the model's chat template, the assistant to speak next.
    Chat(Vec<Message>),
    /// A conversation whose last message is an unfinished answer of the assistant, to be carried on.
    Continue(Vec<Message>),
    /// Text as it is, without a template.
    Raw(String),
    /// Token ids as they are (`bench`).
    Tokens(Vec<u32>),
}

/// A request for one answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: GenerationId,
    pub prompt: Prompt,
    pub sampling: Sampling,
    /// At most this many tokens; `None` goes on to an end token or the end of the context.
    pub max_tokens: Option<u32>,
    /// Texts that end the answer; not part of it.
    pub stop: Vec<String>,
    /// `false` goes on past end tokens (`bench`).
    pub stop_at_end: bool,
    /// How much the model is to think, where its template has a switch; `None` leaves it as the template does.
    pub thinking: Option<Thinking>,
}

/// How weights are read from their file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum SourceKind {
    /// O_DIRECT, past the page cache; falls back to `buffered` where the file system refuses it.
    #[default]
    Direct,
    /// Through the page cache, dropped behind the reader.
    Buffered,
    /// A memory map, for comparison.
    Mmap,
}

/// The arithmetic of matrix products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KernelKind {
    /// Integer products, activations of 16 bits: answers as exact ones do.
    #[default]
    Int8,
    /// Integer products, activations of 8 bits, as llama.cpp has them: prompts are read quicker, answers can differ.
    Fast,
    /// Rows decoded to f32, f32 activations: the oracle.
    Exact,
}

/// What a weight extent is kept as once it is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Residency {
    #[default]
    Quantized,
    /// Expanded to f32 on arrival: the numeric oracle, up to 8 times the memory.
    Fp32,
}

/// Element type of the KV cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    #[default]
    F16,
    #[value(name = "q8_0")]
    #[serde(rename = "q8_0")]
    Q8_0,
    F32,
}

/// How much memory the whole process may hold.
#[derive(Clone, Copy, Debug, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub enum Budget {
    /// What the machine and its cgroup can spare, shrinking under pressure.
    #[default]
    Auto,
    /// The least that runs.
    Least,
    Bytes(u64),
    /// A share of what full residency would take, 0 to 1.
    Share(f64),
}

/// What to load and how.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadRequest {
    pub path: PathBuf,
    pub budget: Budget,
    /// `None`: one a physical core this process may use.
    pub threads: Option<usize>,
    /// An explicit context is guaranteed or refused; `None` takes the largest that fits.
    pub context: Option<u32>,
    pub kernel: KernelKind,
    pub residency: Residency,
    pub source: SourceKind,
    pub kv: KvType,
    /// Positions in one prefill pass; `None` takes as many as fit.
    pub prefill_batch: Option<u32>,
    /// Bytes a second, to play a slower disk.
    pub disk_limit: Option<u64>,
    /// Context that `Budget::Least` has room for from the start; it grows with a longer conversation.
    pub least_context: u32,
    /// Where the measured speeds of devices are kept; `None` measures them each time.
    pub speeds_file: Option<PathBuf>,
}

/// What a front end asks of the engine.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    Load(Box<LoadRequest>),
    Generate(Box<Request>),
    /// Forget the KV cache and give its memory back.
    Reset,
    /// Take up the budget last asked for; the handle sends it along with the budget.
    TakeBudget,
    Shutdown,
}

/// What is known of a loaded model.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ModelInfo {
    pub path: PathBuf,
    /// What it is called, in a line: as its file.
    pub name: String,
    /// What the file calls itself, `general.name`.
    pub own_name: Option<String>,
    pub architecture: String,
    /// The type most weight bytes have, such as `Q4_K`, or the file's own name for its mix.
    pub quantization: String,
    pub layers: u32,
    pub parameters: u64,
    /// Bytes of all tensors.
    pub weights_bytes: u64,
    /// Weight bytes that one decoded token needs.
    pub touched_bytes_per_token: u64,
    pub context: u32,
    /// What the context would hold if the budget left room for all of it.
    pub context_most: u32,
    pub context_trained: u32,
    pub vocabulary: u32,
    pub threads: u32,
    pub kernel: KernelKind,
    /// Instruction set in use, such as `avx512-vnni`.
    pub isa: &'static str,
    pub source: SourceKind,
    pub kv: KvType,
    pub experts: u32,
    pub experts_used: u32,
    pub has_chat_template: bool,
    /// What the template lets one choose of thinking.
    pub thinking: ThinkingSwitch,
    /// Seconds that loading took.
    pub load_s: f64,
    /// What the file was found wanting in, in words for the user.
    pub warnings: Vec<String>,
    /// The tensors of each layer, in the order of [`Snapshot::layers`].
    pub layer_tensors: Arc<Vec<Vec<LayerTensor>>>,
}

impl ModelInfo {
    /// Name and quantisation, where they do not stand side by side.
    pub fn full_name(&self) -> String {
        format!("{} ({})", self.name, self.quantization)
    }
}

/// One tensor of a layer, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LayerTensor {
    /// Sanitised, without the layer's own prefix: `attn_q.weight`.
    pub name: String,
    /// Such as `Q4_1`.
    pub ty: &'static str,
    /// Row length first.
    pub shape: Vec<u64>,
    pub bytes: u64,
}

/// One line of the memory ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LedgerLine {
    pub what: &'static str,
    pub bytes: u64,
}

/// The itemised least memory that would run, given with a refused budget.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Shortfall {
    pub asked_bytes: u64,
    pub least_bytes: u64,
    pub lines: Vec<LedgerLine>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// An end token or a stop text.
    Stop,
    /// `max_tokens`.
    Length,
    /// The context is full.
    ContextFull,
    Cancelled,
}

/// The figures of one finished answer.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct GenerationStats {
    pub prompt_tokens: u32,
    /// Prompt tokens that the KV cache already held.
    pub reused_tokens: u32,
    pub generated_tokens: u32,
    pub ttft_s: f64,
    pub prefill_s: f64,
    pub decode_s: f64,
    pub prefill_tok_s: f64,
    pub decode_tok_s: f64,
    pub prefill_passes: u32,
    pub prefill_streamed_bytes: u64,
    pub decode_streamed_bytes: u64,
    /// Expert extents that the router asked for while decoding, and those of them that were in memory.
    pub decode_expert_uses: u64,
    pub decode_expert_hits: u64,
    /// Share of the answer's time spent waiting for the disk.
    pub stall_fraction: f64,
    /// Tokens that the context held at the end, where the budget left room for no more; else 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub context_by_budget: u32,
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

/// How grave a failure is for the front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FailureKind {
    /// The model could not be loaded; none is loaded now.
    Load,
    /// The budget is under the least that runs.
    Budget,
    /// The prompt does not fit into the context.
    ContextFull,
    /// The request itself cannot be served (a template that fails, say).
    Request,
    /// Reading weights failed; the next message may work.
    Io,
    /// A defect in the engine, caught; the next message may work.
    #[default]
    Internal,
}

/// A failure in words: what, where, what to do.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    pub shortfall: Option<Shortfall>,
}

/// What the engine tells, in order and without loss. Every text is already free of control characters.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Loading got this far; `fraction` is 0 to 1.
    Loading {
        what: &'static str,
        fraction: f32,
    },
    Loaded(Box<ModelInfo>),
    /// A failure outside an answer (loading, a refused budget).
    Failed(Failure),
    /// The prompt is tokenised and reading it begins.
    Started {
        id: GenerationId,
        prompt_tokens: u32,
        reused_tokens: u32,
    },
    /// A piece of the answer.
    Text {
        id: GenerationId,
        text: String,
    },
    /// The answer ended; nothing more comes with this id.
    Finished {
        id: GenerationId,
        reason: FinishReason,
        stats: Box<GenerationStats>,
    },
    /// The answer broke off; nothing more comes with this id. The text so far stands.
    Broken {
        id: GenerationId,
        failure: Failure,
    },
    /// A budget took effect.
    BudgetSet {
        budget: Budget,
        bytes: u64,
    },
    /// Something worth one line to the user.
    Notice(String),
}

/// What the engine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub enum Phase {
    #[default]
    NoModel,
    Loading,
    Idle,
    /// Reading the prompt.
    Prefill {
        done_tokens: u32,
        total_tokens: u32,
        layer: u32,
        /// Estimate of the time left.
        left_s: f32,
    },
    Decode,
}

/// Where every byte of the process is.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct MemoryFigures {
    pub budget: Budget,
    pub budget_bytes: u64,
    /// What [`Budget::Least`] would take now, with room for `least_context` positions.
    pub least_bytes: u64,
    pub least_context: u32,
    /// What it is made of by the context: how much of it a budget holds.
    pub least_cost: LeastCost,
    /// The budget at which nothing is streamed.
    pub full_bytes: u64,
    pub pinned_bytes: u64,
    pub ring_bytes: u64,
    /// Most that pins and ring were given together since the model was loaded.
    pub peak_weight_bytes: u64,
    pub kv_bytes: u64,
    pub scratch_bytes: u64,
    /// What the program itself holds: code, tokenizer, screen.
    pub base_bytes: u64,
    /// From the kernel.
    pub rss_bytes: u64,
    /// Peak of the same, from the kernel.
    pub peak_rss_bytes: u64,
    /// Bytes of the model in the page cache.
    pub file_cache_bytes: u64,
    /// What the machine has left.
    pub available_bytes: u64,
}

/// What one layer's weights are doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum LayerState {
    /// On disk.
    #[default]
    Cold,
    /// Being read or waiting in the ring.
    Loading,
    /// Under the kernels now.
    Computing,
}

/// One layer of the map; the entry after the last block is the head.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct LayerFigures {
    pub state: LayerState,
    pub bytes: u64,
    /// Bytes kept in memory from pass to pass.
    pub pinned_bytes: u64,
    /// The last pass: time spent reading (over all readers), waiting for it, computing.
    pub read_us: u32,
    pub wait_us: u32,
    pub compute_us: u32,
    /// Means since the model was loaded.
    pub mean_read_us: u32,
    pub mean_wait_us: u32,
    pub mean_compute_us: u32,
}

/// What bounds the speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Limiter {
    #[default]
    Unknown,
    Disk,
    Memory,
    Compute,
}

impl Limiter {
    /// One word for the screen.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::Compute => "compute",
        }
    }
}

/// How fast it goes.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct SpeedFigures {
    /// Over the last tokens.
    pub now_tok_s: f32,
    /// Over this answer.
    pub mean_tok_s: f32,
    /// Over the part of this answer that was made under the budget in force, which is what the bound is of.
    pub settled_tok_s: f32,
    pub prefill_tok_s: f32,
    /// Time of each of the last tokens, oldest first.
    pub recent_token_ms: Vec<f32>,
    /// Disk rate while reading.
    pub disk_bytes_s: u64,
    /// What this disk can do, from calibration; 0 when unknown.
    pub disk_calibrated_bytes_s: u64,
    pub streamed_bytes_per_token: u64,
    pub bound_tok_s: f32,
    pub limiter: Limiter,
    pub generated_tokens: u32,
    /// Milliseconds that a decoded token of this answer spends on each kind of work.
    pub op_ms: Vec<(&'static str, f32)>,
}

/// Experts of a mixture model.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct ExpertFigures {
    pub total: u32,
    pub resident: u32,
    /// Share of routed experts that were in memory, over this answer.
    pub hit_rate: f32,
}

/// All figures at one moment; the latest replaces the one before.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Snapshot {
    pub phase: Phase,
    /// The answer being made, if any.
    pub generation: Option<GenerationId>,
    pub memory: MemoryFigures,
    pub layers: Vec<LayerFigures>,
    pub speed: SpeedFigures,
    pub experts: Option<ExpertFigures>,
    pub context_used: u32,
    pub context: u32,
}

impl Snapshot {
    /// Tokens of room for which it is worth going on with an answer that filled the context.
    const LEAST_ROOM: u32 = 32;

    /// Whether the context, full when an answer ended, has room to go on with it: a greater budget gives more.
    pub fn has_room(&self) -> bool {
        self.context_used + Self::LEAST_ROOM <= self.context
    }
}
