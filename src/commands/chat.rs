//! `sipllm chat`, and `sipllm` without a command: picks the front end that the terminal at hand can carry.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::pull::model_path;
use super::{Outcome, plain, run};
use crate::catalog::{self, Library, Progress, Request, ResolveError, Sources};
use crate::cli::{AnswerArgs, ChatArgs, RunArgs};
use crate::config::{CHAT_CONTEXT, Settings};
use crate::engine::EngineHandle;
use crate::engine::protocol::{Budget, LoadRequest};
use crate::places;
use crate::tui::{self, Catalog, CatalogEntry, Forecast, Left, PullProgress, Resume, TuiOptions};
use crate::weights::memory;

/// What carries the chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrontEnd {
    Screen,
    /// A line at a time.
    Plain,
    /// One prompt from standard input, one answer.
    OneShot,
}

fn front_end(plain: bool, stdin_is_terminal: bool, stdout_is_terminal: bool, term: Option<&str>) -> FrontEnd {
    match (plain, stdin_is_terminal) {
        (true, _) => FrontEnd::Plain,
        (false, false) => FrontEnd::OneShot,
        (false, true) if stdout_is_terminal && term != Some("dumb") => FrontEnd::Screen,
        (false, true) => FrontEnd::Plain,
    }
}

pub fn run(args: &ChatArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let term = std::env::var("TERM").ok();
    match front_end(args.plain, io::stdin().is_terminal(), io::stdout().is_terminal(), term.as_deref()) {
        FrontEnd::Screen => on_screen(args, settings),
        FrontEnd::Plain => plain::run(args, settings),
        FrontEnd::OneShot => one_shot(args, settings),
    }
}

fn one_shot(args: &ChatArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    if args.resume.is_some() {
        return Err(super::UsageError("--resume needs a terminal, or --plain".into()).into());
    }
    // A mistyped command is taken for a model's name: that is said before a prompt is waited for.
    match catalog::resolve(args.model.as_deref(), settings) {
        Ok(_) | Err(ResolveError::NoneInstalled { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let prompt = run::read_prompt()?;
    if prompt.trim().is_empty() {
        anyhow::bail!("without a terminal the prompt comes from standard input, which is empty");
    }
    let Some(path) = model_path(args.model.as_deref(), settings)? else { return Ok(Outcome::Interrupted) };
    let answer = AnswerArgs::default();
    let args = RunArgs { model: None, prompt: "-".into(), raw: false, json: false, answer };
    run::answer(path, prompt, &args, settings)
}

fn on_screen(args: &ChatArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let model = match catalog::resolve(args.model.as_deref(), settings) {
        Ok(path) => Some(path),
        // The first screen offers what there is.
        Err(ResolveError::NoneInstalled { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let data = places::data_dir(settings.data_dir.as_deref()).ok();
    let (engine, events) = EngineHandle::spawn()?;
    let options = TuiOptions {
        load: settings.load_request(model.clone().unwrap_or_default(), CHAT_CONTEXT),
        model,
        system: settings.system.clone(),
        sampling: settings.sampling.clone(),
        stop: settings.stop.clone(),
        max_tokens: settings.max_tokens,
        thinking: settings.think,
        resume: resume(args),
        theme: settings.theme.clone(),
        ascii: settings.ascii,
        mouse: settings.mouse,
        keys: settings.keymap.clone(),
        sessions_dir: data.as_ref().map(|data| data.join("chats")),
        history_file: places::state_dir().map(|state| state.join("history")),
        catalog: Some(Arc::new(Shelf { settings: settings.clone() })),
    };
    Ok(match tui::run(engine, events, options)? {
        Left::ByChoice => Outcome::Done,
        Left::Terminated => Outcome::Interrupted,
    })
}

pub(super) fn resume(args: &ChatArgs) -> Resume {
    match args.resume.as_deref() {
        None => Resume::Fresh,
        Some("") => Resume::Last,
        Some(id) => Resume::Id(id.into()),
    }
}

/// The catalog and the library as the screen sees them.
struct Shelf {
    settings: Settings,
}

impl Catalog for Shelf {
    fn entries(&self) -> anyhow::Result<Vec<CatalogEntry>> {
        let library = Library::open(&self.settings)?;
        let mut installed: BTreeMap<String, _> =
            library.installed()?.into_iter().map(|model| (model.name.clone(), model)).collect();
        let default = catalog::default_entry().map(|entry| &entry.name);
        let mut entries: Vec<CatalogEntry> = catalog::entries()
            .iter()
            .map(|entry| CatalogEntry {
                name: entry.name.clone(),
                title: format!("{}: {}", entry.title, entry.suits),
                quantization: entry.quantization.clone(),
                bytes: entry.bytes,
                licence: entry.licence.clone(),
                installed: installed.remove(&entry.name).map(|model| model.path),
                default: default == Some(&entry.name),
                part_bytes: catalog::left_bytes(&library.folder().join(&entry.file)),
            })
            .collect();
        entries.extend(installed.into_values().map(|model| CatalogEntry {
            title: model.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            name: model.name,
            bytes: model.bytes,
            installed: Some(model.path),
            ..CatalogEntry::default()
        }));
        Ok(entries)
    }

    fn pull(&self, name: &str, progress: &mut dyn FnMut(PullProgress), cancel: &AtomicBool) -> anyhow::Result<PathBuf> {
        let library = Library::open(&self.settings)?;
        let mut told = |step| {
            // Where the file comes from matters less here than that it comes.
            if let Progress::Step { what, done_bytes, total_bytes } = step {
                progress(PullProgress { what, done_bytes, total_bytes });
            }
        };
        let mut first = None;
        for part in Request::parse(name)?.parts() {
            let path = catalog::pull(&part, library.folder(), Sources::Any, &mut told, cancel)?;
            first.get_or_insert(path);
        }
        first.ok_or_else(|| anyhow::anyhow!("{name} has no parts"))
    }

    fn discard(&self, name: &str) -> anyhow::Result<()> {
        let library = Library::open(&self.settings)?;
        for part in Request::parse(name)?.parts() {
            catalog::discard_left(&library.folder().join(&part.file))?;
        }
        Ok(())
    }

    fn available_bytes(&self) -> u64 {
        memory::available_bytes()
    }

    /// Asked of a process of its own: opening a second model in this one would break the budget of the first.
    fn forecast(&self, model: &Path, load: &LoadRequest) -> Option<Forecast> {
        let output = std::process::Command::new(std::env::current_exe().ok()?)
            .args(["doctor", "--json", "--budget", &exact_budget(load.budget)])
            .arg(model)
            .env_remove("SIPLLM_CTX")
            .stdin(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .output()
            .ok()?;
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let forecast = &report["forecast"];
        Some(Forecast {
            least_bytes: forecast["least_bytes"].as_u64()?,
            full_bytes: forecast["full_bytes"].as_u64()?,
            tok_s: forecast["asked"]["tok_s"].as_f64()? as f32,
        })
    }
}

/// The budget as `--budget` takes it, to the byte.
fn exact_budget(budget: Budget) -> String {
    match budget {
        Budget::Auto => "auto".into(),
        Budget::Least => "0".into(),
        Budget::Bytes(bytes) => bytes.to_string(),
        Budget::Share(share) => format!("{}%", share * 100.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_end_follows_the_terminal() {
        assert_eq!(front_end(false, true, true, Some("xterm")), FrontEnd::Screen);
        assert_eq!(front_end(false, true, true, Some("dumb")), FrontEnd::Plain);
        assert_eq!(front_end(false, true, false, Some("xterm")), FrontEnd::Plain);
        assert_eq!(front_end(false, false, true, Some("xterm")), FrontEnd::OneShot);
        assert_eq!(front_end(true, false, false, None), FrontEnd::Plain);
    }
}
