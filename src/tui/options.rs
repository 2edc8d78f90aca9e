//! What the command line and the configuration tell the screen.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::engine::protocol::{LoadRequest, Sampling, Thinking};

/// How a chat starts.
#[derive(Clone)]
pub struct TuiOptions {
    /// How models are loaded; its `path` is replaced for each model.
    pub load: LoadRequest,
    /// The model to start with; `None` shows the first screen, which offers the catalog's default.
    pub model: Option<PathBuf>,
    pub system: Option<String>,
    pub sampling: Sampling,
    /// Texts that end an answer.
    pub stop: Vec<String>,
    /// At most this many tokens an answer.
    pub max_tokens: Option<u32>,
    /// How much the model is to think, where its template has a switch.
    pub thinking: Option<Thinking>,
    pub resume: Resume,
    /// `default`, `light`, `high-contrast`, `mono`, or the path of a theme file.
    pub theme: String,
    pub ascii: bool,
    pub mouse: bool,
    /// Action to keys, such as `budget-more = "alt-="`; several keys are separated by spaces.
    pub keys: BTreeMap<String, String>,
    /// Where chats are saved; `None` saves nothing.
    pub sessions_dir: Option<PathBuf>,
    /// Where the input history is kept; `None` keeps it for this run only.
    pub history_file: Option<PathBuf>,
    pub catalog: Option<Arc<dyn Catalog>>,
}

/// Which saved chat to open.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Resume {
    #[default]
    Fresh,
    Last,
    Id(String),
}

/// A model that is installed or can be fetched.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CatalogEntry {
    /// What `pull` and `/model` take.
    pub name: String,
    /// One line for people.
    pub title: String,
    pub quantization: String,
    pub bytes: u64,
    pub licence: String,
    /// Where it lies, once installed.
    pub installed: Option<PathBuf>,
    /// The one offered when there is no model.
    pub default: bool,
    /// What an earlier fetch left of it.
    pub part_bytes: u64,
}

/// How far a fetch is.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct PullProgress {
    /// What is being done: `connecting`, `fetching`, `checking`.
    pub what: &'static str,
    pub done_bytes: u64,
    /// 0 when unknown.
    pub total_bytes: u64,
}

/// How a model would run on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Forecast {
    /// The least budget that runs.
    pub least_bytes: u64,
    /// The budget at which nothing is streamed.
    pub full_bytes: u64,
    /// At the budget asked about; 0 when unknown.
    pub tok_s: f32,
}

/// Where models come from. Called on threads of their own, never on the one that draws.
pub trait Catalog: Send + Sync {
    /// Installed models and those that can be fetched, the default first.
    fn entries(&self) -> anyhow::Result<Vec<CatalogEntry>>;

    /// Fetches a model, resuming what an earlier call left; returns its path. Once `cancel` is true it returns an
    /// error soon and keeps what it has.
    fn pull(&self, name: &str, progress: &mut dyn FnMut(PullProgress), cancel: &AtomicBool) -> anyhow::Result<PathBuf>;

    /// Removes what a stopped fetch of the model left.
    fn discard(&self, _name: &str) -> anyhow::Result<()> {
        Ok(())
    }

    /// Memory that the machine has left; 0 when unknown.
    fn available_bytes(&self) -> u64 {
        0
    }

    /// How the file would run under a budget; `None` when that cannot be told.
    fn forecast(&self, _model: &Path, _load: &LoadRequest) -> Option<Forecast> {
        None
    }
}
