//! The whole state of the screen: plain data that `update` changes and `view` shows.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use super::completion::Popup;
use super::composer::Composer;
use super::glyphs::Glyphs;
use super::keymap::Keymap;
use super::message::Job;
use super::options::{CatalogEntry, Forecast, PullProgress, TuiOptions};
use super::overlay::{Overlay, Panel};
use super::theme::Theme;
use super::transcript::Transcript;
use crate::engine::protocol::{Budget, GenerationId, LoadRequest, ModelInfo, Sampling, Snapshot, Thinking};
use crate::session::Summary;
use crate::words::counted;

/// What is known of the model.
#[derive(Clone, Debug, PartialEq, Default)]
pub enum Model {
    #[default]
    None,
    Loading {
        path: PathBuf,
        what: &'static str,
        fraction: f32,
    },
    Ready(Box<ModelInfo>),
}

/// The answer being made.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub id: GenerationId,
    pub since: Instant,
    /// Known once the prompt is tokenised: all of it, and what the KV cache already held.
    pub prompt_tokens: Option<(u32, u32)>,
    pub stopping: bool,
    /// Messages that were saved before it; the answer is saved after these.
    pub replaces_last: bool,
}

/// What is to happen once the answer has stopped.
#[derive(Clone, Debug, PartialEq)]
pub enum Then {
    Load(PathBuf),
    Regenerate,
    Undo,
    Edit(Option<usize>),
    Clear,
    Fork(Option<usize>),
    /// Another chat takes this one's place: opened or imported.
    Another(Job),
}

/// A model being fetched, or what became of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Pull {
    pub name: String,
    pub progress: PullProgress,
    pub since: Instant,
    /// Bytes that were there when it began, so that the rate is of this run.
    pub resumed_bytes: Option<u64>,
    pub failed: Option<String>,
}

/// How answers are made.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub system: Option<String>,
    pub sampling: Sampling,
    pub stop: Vec<String>,
    pub max_tokens: Option<u32>,
    pub thinking: Option<Thinking>,
}

/// The title that a saved chat is to have, as far as it is written.
#[derive(Clone, Debug, PartialEq)]
pub struct Renaming {
    pub id: String,
    pub title: String,
}

/// Why a context holds no more than it does.
pub const CONTEXT_BY_BUDGET: &str = ", which is what the budget leaves room for,";
/// About twice what a token of prose has.
const BYTES_PER_TOKEN: usize = 8;
/// What can be pasted into the message whatever the context holds.
const LEAST_MOST_PASTED: usize = 256 << 10;

pub struct App {
    /// Set before each update: the clock is read nowhere else.
    pub now: Instant,
    pub size: (u16, u16),
    pub theme: Arc<Theme>,
    pub glyphs: Glyphs,
    /// No colour is wanted: themes with colours become `mono`.
    pub colourless: bool,
    pub keymap: Keymap,

    pub transcript: Transcript,
    pub composer: Composer,
    pub popup: Option<Popup>,
    pub overlay: Option<Overlay>,
    /// One line for the moment, gone with the next key.
    pub status: Option<String>,
    /// When Ctrl-C was pressed with nothing to stop.
    pub quit_armed: Option<Instant>,
    /// After `/find`: n and N go on until another key.
    pub finding: bool,

    pub model: Model,
    pub snapshot: Arc<Snapshot>,
    /// Figures held still by the user.
    pub frozen: bool,
    pub panel_shown: bool,
    /// Panels taken away one by one, by [`Panel`].
    pub hidden: [bool; 3],
    pub mouse: bool,
    pub load: LoadRequest,
    /// The model was refused for its budget: another budget tries again.
    pub refused: bool,
    /// The budget last asked for, until the engine says what came of it.
    pub budget_asked: Option<u64>,
    /// The budget that took effect last, in words, as long as a status is shown; what the context holds is told with it.
    pub budget_told: Option<String>,
    /// What the context held when a budget was asked for.
    pub context_before: Option<u32>,

    pub settings: Settings,
    pub answer: Option<Answer>,
    pub last_id: GenerationId,
    /// What was sent while an answer was being made (or the model loaded).
    pub queued: Option<String>,
    pub then: Option<Then>,
    /// So many of the oldest messages are no longer sent: the context was full.
    pub dropped: usize,

    pub title: Option<String>,
    /// A saved chat is being given another title in the picker.
    pub renaming: Option<Renaming>,
    pub chats: Vec<Summary>,
    /// The chats were listed once for the offers.
    pub chats_asked: bool,
    pub catalog: Vec<CatalogEntry>,
    pub has_catalog: bool,
    /// What the machine had left when the catalog was read; 0 while unknown.
    pub available_bytes: u64,
    pub forecasts: Vec<(PathBuf, Option<Forecast>)>,
    pub pull: Option<Pull>,
    pub leaving: bool,
}

impl App {
    pub fn new(options: &TuiOptions, theme: Theme, glyphs: Glyphs, colourless: bool, keymap: Keymap) -> Self {
        let theme = Arc::new(theme);
        Self {
            now: Instant::now(),
            size: (80, 24),
            transcript: Transcript::new(theme.clone(), glyphs),
            theme,
            glyphs,
            colourless,
            keymap,
            composer: Composer::default(),
            popup: None,
            overlay: None,
            status: None,
            quit_armed: None,
            finding: false,
            model: Model::None,
            snapshot: Arc::default(),
            frozen: false,
            panel_shown: true,
            hidden: [false; 3],
            mouse: options.mouse,
            load: options.load.clone(),
            refused: false,
            budget_asked: None,
            budget_told: None,
            context_before: None,
            settings: Settings {
                system: options.system.clone(),
                sampling: options.sampling.clone(),
                stop: options.stop.clone(),
                max_tokens: options.max_tokens,
                thinking: options.thinking,
            },
            answer: None,
            last_id: 0,
            queued: None,
            then: None,
            dropped: 0,
            title: None,
            renaming: None,
            chats: Vec::new(),
            chats_asked: false,
            catalog: Vec::new(),
            has_catalog: options.catalog.is_some(),
            available_bytes: 0,
            forecasts: Vec::new(),
            pull: None,
            leaving: false,
        }
    }

    pub fn info(&self) -> Option<&ModelInfo> {
        match &self.model {
            Model::Ready(info) => Some(info),
            _ => None,
        }
    }

    /// The model the first screen offers.
    pub fn offered(&self) -> Option<&CatalogEntry> {
        self.catalog.iter().find(|e| e.default).or_else(|| self.catalog.first())
    }

    /// Whether the first screen's offer stands: no model, none on its way.
    pub fn is_offering(&self) -> bool {
        self.model == Model::None && self.transcript.entries().is_empty() && self.offered().is_some()
    }

    /// The panels that stand beside the chat where it is wide enough, from top to bottom.
    pub fn panels(&self) -> impl Iterator<Item = Panel> {
        Panel::ALL.into_iter().filter(|p| self.panel_shown && !self.hidden[*p as usize])
    }

    pub fn pulling(&self) -> Option<&Pull> {
        self.pull.as_ref().filter(|p| p.failed.is_none())
    }

    /// Tokens that the context holds; 0 without a model.
    pub fn context(&self) -> u32 {
        match self.snapshot.context {
            0 => self.info().map_or(0, |i| i.context),
            // A smaller budget leaves room for fewer.
            now => now,
        }
    }

    /// What was just said. The context of a new budget is that of the figures at hand, as everywhere on the screen.
    pub fn said(&self) -> Option<String> {
        if let Some(status) = &self.status {
            return Some(status.clone());
        }
        let budget = self.budget_told.as_ref()?;
        let now = self.context();
        Some(match self.context_before.filter(|before| *before != now) {
            Some(before) => {
                format!("{budget}; the context holds {} now, before {before}", counted(now, "token"))
            }
            None => budget.clone(),
        })
    }

    /// Forgets what was just said.
    pub fn unsay(&mut self) {
        self.status = None;
        self.budget_told = None;
    }

    /// Tokens that the context would hold with a budget of so many bytes; `None` where it would be refused.
    pub fn context_with(&self, bytes: u64) -> Option<u32> {
        let memory = &self.snapshot.memory;
        match self.load.context {
            Some(context) => (bytes >= memory.least_bytes).then_some(context),
            None => memory.least_cost.context_within(bytes, self.snapshot.context_used, self.info()?.context_most),
        }
    }

    /// Bytes that a paste, or a file put into the message, may have: more than the context holds, so that there is
    /// room for editing, and little beside the budget.
    pub fn most_pasted_bytes(&self) -> usize {
        (self.context() as usize * BYTES_PER_TOKEN).clamp(LEAST_MOST_PASTED, crate::small_file::FOR_A_MESSAGE as usize)
    }

    /// Why the context holds no more, in words that follow "of N tokens".
    pub fn context_bound(&self) -> &'static str {
        match self.info() {
            Some(info) if self.context() < info.context_most => CONTEXT_BY_BUDGET,
            _ => "",
        }
    }

    /// The budget in force or asked for, bytes; 0 while unknown.
    pub fn budget_bytes(&self) -> u64 {
        self.budget_asked.unwrap_or_else(|| match (self.snapshot.memory.budget_bytes, self.load.budget) {
            (0, Budget::Bytes(bytes)) => bytes,
            (bytes, _) => bytes,
        })
    }
}
