//! Settings: defaults < configuration file < environment (`SIPLLM_*`) < flags.

use std::path::PathBuf;

use crate::cli::{AnswerArgs, ChatArgs, EngineArgs, Switch};
use crate::engine::protocol::{Budget, KernelKind, KvType, LoadRequest, Residency, Sampling, SourceKind};

/// The least context that a budget of 0 holds for a chat.
pub const CHAT_CONTEXT: u32 = 512;

/// All settings in force.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    /// The model that the user means when a command names none: a path or a name.
    pub model: Option<String>,
    pub budget: Budget,
    pub threads: Option<usize>,
    pub context: Option<u32>,
    pub kernel: KernelKind,
    pub residency: Residency,
    pub source: SourceKind,
    pub kv: KvType,
    pub prefill_batch: Option<u32>,
    /// Bytes a second.
    pub disk_limit: Option<u64>,
    pub system: Option<String>,
    pub sampling: Sampling,
    pub stop: Vec<String>,
    /// `None` leaves thinking as the model's template does.
    pub think: Option<bool>,
    /// Where models and chats are kept; `None` is the platform's place.
    pub data_dir: Option<PathBuf>,
    /// Draw with ASCII characters only.
    pub ascii: bool,
    /// The `[keymap]` table of the file, as it stands.
    pub keymap: toml::Table,
    /// The `[theme]` table of the file, as it stands.
    pub theme: toml::Table,
}

impl Settings {
    /// Puts the engine's flags over what is set.
    pub fn apply_engine_args(&mut self, args: &EngineArgs) {
        set(&mut self.model, args.model_flag.clone().map(Some));
        set(&mut self.budget, args.budget);
        set(&mut self.threads, args.threads.map(|n| Some(n.into())));
        set(&mut self.context, args.ctx.map(Some));
        set(&mut self.kernel, args.kernel);
        set(&mut self.residency, args.residency);
        set(&mut self.source, args.source);
        set(&mut self.kv, args.kv);
        set(&mut self.prefill_batch, args.prefill_batch.map(Some));
        set(&mut self.disk_limit, args.disk_limit.map(Some));
    }

    /// Puts the flags of `chat` and `run` over what is set.
    pub fn apply_answer_args(&mut self, args: &AnswerArgs) {
        set(&mut self.system, args.system.clone().map(Some));
        set(&mut self.sampling.temperature, args.temp);
        set(&mut self.sampling.top_k, args.top_k);
        set(&mut self.sampling.top_p, args.top_p);
        set(&mut self.sampling.min_p, args.min_p);
        set(&mut self.sampling.repeat_penalty, args.repeat_penalty);
        set(&mut self.sampling.seed, args.seed.map(Some));
        set(&mut self.stop, (!args.stop.is_empty()).then(|| args.stop.clone()));
        set(&mut self.think, args.think.map(|switch| Some(switch == Switch::On)));
    }

    /// Puts the chat's own flags over what is set.
    pub fn apply_chat_args(&mut self, args: &ChatArgs) {
        self.apply_answer_args(&args.answer);
        self.ascii |= args.ascii;
    }

    /// The request that loads `path` as the settings say.
    pub fn load_request(&self, path: PathBuf, least_context: u32) -> LoadRequest {
        LoadRequest {
            path,
            budget: self.budget,
            threads: self.threads,
            context: self.context,
            kernel: self.kernel,
            residency: self.residency,
            source: self.source,
            kv: self.kv,
            prefill_batch: self.prefill_batch,
            disk_limit: self.disk_limit,
            least_context,
        }
    }
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}
