//! Settings: defaults < configuration file < environment (`SIPLLM_*`) < flags.
//!
//! `keys` is the table of all settings: how each is called, read and shown. `file` reads the file. What themes and
//! the keys of the `[keymap]` table mean is for the screen to say; they are handed on as they stand.

mod file;
mod keys;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

pub(crate) use keys::MOST_QUOTED;
pub use keys::{KEYS, Key, Kind};

use crate::cli::{AnswerArgs, ChatArgs, EngineArgs};
use crate::engine::protocol::{Budget, KernelKind, KvType, LoadRequest, Residency, Sampling, SourceKind, Thinking};

/// The least context that a budget of 0 holds for a chat.
pub const CHAT_CONTEXT: u32 = 512;

/// A setting that cannot be used: what, where, what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}:{line}: {message}", path.display())]
    File { path: PathBuf, line: usize, message: String },
    #[error("environment variable {name}: {message}")]
    Environment { name: String, message: String },
}

/// Where a setting comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File { path: PathBuf, line: usize },
    Environment(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(name) => f.write_str(name),
            Self::Flag(name) => f.write_str(name),
        }
    }
}

/// All settings in force.
#[derive(Clone, Debug, PartialEq)]
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
    /// The most tokens of one answer.
    pub max_tokens: Option<u32>,
    /// `None` leaves thinking as the model's template does.
    pub think: Option<Thinking>,
    /// Where models and chats are kept; `None` is the platform's place ([`crate::places`]).
    pub data_dir: Option<PathBuf>,
    /// Draw with ASCII characters only.
    pub ascii: bool,
    /// Name of a theme or path of a theme file.
    pub theme: String,
    /// Whether the chat takes the mouse's clicks and wheel from the terminal.
    pub mouse: bool,
    /// The `[keymap]` table of the file: action to keys. What they mean is for the screen to check.
    pub keymap: BTreeMap<String, String>,
    /// Where each setting comes from, by the path of its key; a key that is not here has its default.
    pub origins: BTreeMap<&'static str, Origin>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            model: None,
            budget: Budget::default(),
            threads: None,
            context: None,
            kernel: KernelKind::default(),
            residency: Residency::default(),
            source: SourceKind::default(),
            kv: KvType::default(),
            prefill_batch: None,
            disk_limit: None,
            system: None,
            sampling: Sampling::default(),
            stop: Vec::new(),
            max_tokens: None,
            think: None,
            data_dir: None,
            ascii: false,
            theme: "default".into(),
            mouse: false,
            keymap: BTreeMap::new(),
            origins: BTreeMap::new(),
        }
    }
}

impl Settings {
    /// What the file and the environment set; `file` is the `--config` flag, which must exist where given.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let mut settings = Self::default();
        if let Some((path, text)) = file::find(file)? {
            settings.apply_file(&path, &text)?;
        }
        settings.apply_environment(|name| std::env::var_os(name))?;
        Ok(settings)
    }

    /// Puts the text of a configuration file over what is set.
    pub fn apply_file(&mut self, path: &Path, text: &str) -> Result<(), ConfigError> {
        file::apply(self, path, text)
    }

    /// Puts environment variables over what is set; an empty one counts as absent.
    pub fn apply_environment(
        &mut self,
        variable: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<(), ConfigError> {
        for key in KEYS {
            let name = key.environment();
            let Some(value) = variable(&name).filter(|value| !value.is_empty()) else { continue };
            if key.kind == Kind::Texts {
                self.stop.clear();
            }
            let outcome = match value.to_str() {
                Some(text) => (key.read)(self, text),
                None => Err("is not valid UTF-8".into()),
            };
            outcome.map_err(|message| ConfigError::Environment { name: name.clone(), message })?;
            self.origins.insert(key.path, Origin::Environment(name));
        }
        Ok(())
    }

    /// Puts the engine's flags over what is set.
    pub fn apply_engine_args(&mut self, args: &EngineArgs) {
        let mut over = Over(&mut self.origins);
        over.set("model", "--model", &mut self.model, args.model_flag.clone().map(Some));
        over.set("budget", "--budget", &mut self.budget, args.budget);
        over.set("threads", "--threads", &mut self.threads, args.threads.map(|n| Some(n.into())));
        over.set("ctx", "--ctx", &mut self.context, args.ctx.map(Some));
        over.set("kernel", "--kernel", &mut self.kernel, args.kernel);
        over.set("residency", "--residency", &mut self.residency, args.residency);
        over.set("source", "--source", &mut self.source, args.source);
        over.set("kv", "--kv", &mut self.kv, args.kv);
        over.set("prefill_batch", "--prefill-batch", &mut self.prefill_batch, args.prefill_batch.map(Some));
        over.set("disk_limit", "--disk-limit", &mut self.disk_limit, args.disk_limit.map(Some));
    }

    /// Puts the flags of `chat` and `run` over what is set.
    pub fn apply_answer_args(&mut self, args: &AnswerArgs) {
        let mut over = Over(&mut self.origins);
        let sampling = &mut self.sampling;
        over.set("system", "--system", &mut self.system, args.system.clone().map(Some));
        over.set("sampling.temp", "--temp", &mut sampling.temperature, args.temp);
        over.set("sampling.top_k", "--top-k", &mut sampling.top_k, args.top_k);
        over.set("sampling.top_p", "--top-p", &mut sampling.top_p, args.top_p);
        over.set("sampling.min_p", "--min-p", &mut sampling.min_p, args.min_p);
        over.set("sampling.repeat_penalty", "--repeat-penalty", &mut sampling.repeat_penalty, args.repeat_penalty);
        over.set("sampling.seed", "--seed", &mut sampling.seed, args.seed.map(Some));
        over.set("stop", "--stop", &mut self.stop, (!args.stop.is_empty()).then(|| args.stop.clone()));
        over.set("max_tokens", "--max-tokens", &mut self.max_tokens, args.max_tokens.map(Some));
        over.set("think", "--think", &mut self.think, args.think.map(Some));
    }

    /// Puts the chat's own flags over what is set.
    pub fn apply_chat_args(&mut self, args: &ChatArgs) {
        self.apply_answer_args(&args.answer);
        Over(&mut self.origins).set("ascii", "--ascii", &mut self.ascii, args.ascii.then_some(true));
    }

    /// Where the value of a key comes from.
    pub fn origin(&self, key: &Key) -> &Origin {
        self.origins.get(key.path).unwrap_or(&Origin::Default)
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
            speeds_file: crate::places::device_speeds_file(),
        }
    }
}

/// Sets what a flag gives and notes that it did.
struct Over<'a>(&'a mut BTreeMap<&'static str, Origin>);

impl Over<'_> {
    fn set<T>(&mut self, path: &'static str, flag: &'static str, place: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *place = value;
            self.0.insert(path, Origin::Flag(flag));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;

    fn from_file(text: &str) -> Result<Settings, ConfigError> {
        let mut settings = Settings::default();
        settings.apply_file(Path::new("config.toml"), text).map(|()| settings)
    }

    fn complaint(text: &str) -> String {
        from_file(text).unwrap_err().to_string()
    }

    #[test]
    fn each_layer_covers_the_one_before() {
        let mut settings = from_file("budget = '1G'\nctx = 1024\nthreads = 3\n[sampling]\ntemp = 0.2\n").unwrap();
        settings
            .apply_environment(|name| match name {
                "SIPLLM_CTX" => Some("2048".into()),
                "SIPLLM_TEMP" => Some("0.5".into()),
                "SIPLLM_KV" => Some("".into()),
                _ => None,
            })
            .unwrap();
        settings.apply_answer_args(&AnswerArgs { temp: Some(0.0), ..AnswerArgs::default() });
        assert_eq!(settings.budget, Budget::Bytes(1 << 30));
        assert_eq!((settings.context, settings.threads), (Some(2048), Some(3)));
        assert_eq!(settings.sampling.temperature, 0.0);
        let origins: Vec<String> = ["kv", "budget", "ctx", "sampling.temp"]
            .iter()
            .map(|path| settings.origin(KEYS.iter().find(|key| key.path == *path).unwrap()).to_string())
            .collect();
        assert_eq!(origins, ["default", "config.toml:1", "SIPLLM_CTX", "--temp"]);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_likely_one() {
        assert_eq!(
            complaint("ctx = 9\n\nbugdet = '1G'"),
            "config.toml:3: unknown key `bugdet`; did you mean `budget`?"
        );
        assert_eq!(
            complaint("[sampling]\ntemperature = 1"),
            "config.toml:2: unknown key `sampling.temperature`; did you mean `sampling.temp`?"
        );
        assert!(complaint("[smapling]\ntemp = 1").contains("config.toml:1: unknown key `smapling`"));
        assert!(complaint("xyzzy = 1").ends_with("unknown key `xyzzy`; `sipllm config` lists them all"));
    }

    #[test]
    fn a_wrong_value_is_named_with_its_line_and_key() {
        assert_eq!(
            complaint("\nbudget = 'much'"),
            "config.toml:2: budget: \"much\" is not a budget: a size such as 512M, a percentage such as 60%, auto, \
             or 0 for the least that runs"
        );
        assert_eq!(complaint("ctx = 'x'"), "config.toml:1: ctx: `x` is not a number of tokens above 0");
        assert_eq!(complaint("ctx = 0"), "config.toml:1: ctx: `0` is not a number of tokens above 0");
        assert_eq!(complaint("kv = 'f8'"), "config.toml:1: kv: `f8` is not one of f16, q8_0, f32");
        assert_eq!(complaint("ascii = 'yes'"), "config.toml:1: ascii: expected true or false, found a string");
        assert_eq!(complaint("model = 3"), "config.toml:1: model: expected a string, found an integer");
        assert_eq!(complaint("sampling = 3"), "config.toml:1: sampling: expected a table, found an integer");
        assert!(complaint("ctx = 1\nctx = 2").starts_with("config.toml:2: "));
        assert!(complaint("budget = 1G").starts_with("config.toml:1: "));
        assert_eq!(complaint("a\n\u{1b}[31m= 1").matches(['\n', '\u{1b}']).count(), 0);
    }

    #[test]
    fn stop_texts_of_one_layer_replace_those_of_the_one_before() {
        let mut settings = from_file("stop = ['a', 'b']").unwrap();
        settings.apply_environment(|name| (name == "SIPLLM_STOP").then(|| "c".into())).unwrap();
        assert_eq!(settings.stop, ["c"]);
    }

    #[test]
    fn a_wrong_environment_variable_is_named() {
        let error = Settings::default()
            .apply_environment(|name| (name == "SIPLLM_THREADS").then(|| "many".into()))
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "environment variable SIPLLM_THREADS: `many` is not a number of threads from 1 to 1024"
        );
    }

    #[test]
    fn the_keymap_passes_through_as_texts() {
        let settings = from_file("theme = 'light'\n[keymap]\nquit = 'ctrl-d'\n'budget-more' = 'alt-= f3'").unwrap();
        assert_eq!(settings.keymap["quit"], "ctrl-d");
        assert_eq!(settings.keymap["budget-more"], "alt-= f3");
        assert_eq!(
            complaint("[keymap]\n\nquit = 4"),
            "config.toml:3: keymap.quit: expected a string, found an integer"
        );
    }

    #[test]
    fn what_a_key_shows_reads_back_as_the_same() {
        let text = "model = 'a'\nbudget = '60%'\nthreads = 2\nctx = 77\nkernel = 'exact'\nresidency = 'fp32'\n\
                    source = 'mmap'\nkv = 'q8_0'\nprefill_batch = 5\ndisk_limit = '1.5M'\nsystem = \"say\\n\\\"hi\\\"\"\n\
                    stop = ['a', \"b\\n\"]\nthink = 'low'\ndata_dir = '/x y'\nascii = true\n\
                    theme = 'light'\nmouse = true\nmax_tokens = 9\n[sampling]\ntemp = 0.1\ntop_k = 1\n\
                    top_p = 0.3\nmin_p = 0.2\nrepeat_penalty = 1.3\nseed = 12\n";
        let settings = from_file(text).unwrap();
        assert_eq!(settings.origins.len(), KEYS.len(), "the test sets every key");
        let shown: String =
            KEYS.iter().map(|key| format!("{} = {}\n", key.path, (key.show)(&settings).unwrap())).collect();
        let mut again = from_file(&shown).unwrap();
        again.origins = settings.origins.clone();
        assert_eq!(again, settings);
    }

    #[test]
    fn the_example_file_documents_every_key_with_its_default() {
        let example = include_str!("../config.example.toml");
        assert_eq!(from_file(example).unwrap().origins.len(), 0, "as it stands, the example changes nothing");
        let mut live = String::new();
        for line in example.lines() {
            let setting = line.strip_prefix("#: ").unwrap_or(line);
            live.push_str(setting);
            live.push('\n');
        }
        let settings = from_file(&live).unwrap();
        for key in KEYS {
            assert!(settings.origins.contains_key(key.path), "config.example.toml lacks `{}`", key.path);
            if let Some(default) = (key.show)(&Settings::default()) {
                assert_eq!((key.show)(&settings), Some(default), "the default of `{}`", key.path);
            }
        }
    }
}
