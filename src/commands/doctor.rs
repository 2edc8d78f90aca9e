//! `sipllm doctor`: what the program sees of terminal, machine, memory and disk, and with a model, how it will run.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::Outcome;
use super::driver::{Driver, Step};
use super::pull::model_path;
use crate::catalog::Library;
use crate::cli::DoctorArgs;
use crate::config::{CHAT_CONTEXT, Settings};
use crate::engine::protocol::{ModelInfo, Snapshot};
use crate::kernels::{Isa, pool};
use crate::places;
use crate::size::{format_budget, format_size};
use crate::weights::memory;

/// Below this a chat is hopeless.
const HOPELESS_TOK_S: f64 = 0.1;

/// One line of the report.
#[derive(Clone, Debug, PartialEq)]
struct Finding {
    section: &'static str,
    what: &'static str,
    found: String,
    /// What is wrong with it and what to do.
    advice: Option<String>,
}

fn fine(section: &'static str, what: &'static str, found: impl Into<String>) -> Finding {
    Finding { section, what, found: found.into(), advice: None }
}

fn wanting(section: &'static str, what: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
    Finding { section, what, found: found.into(), advice: Some(advice.into()) }
}

pub fn run(args: &DoctorArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let mut findings = terminal(|name| std::env::var(name).ok(), io::stdout().is_terminal(), screen_size());
    findings.extend(machine(settings));
    findings.extend(storage(settings));
    // A model is looked at only where one is named: on a new machine doctor fetches nothing.
    let named = args.model.as_deref().or(settings.model.as_deref());
    if named.is_some() {
        let Some(path) = model_path(args.model.as_deref(), settings)? else { return Ok(Outcome::Interrupted) };
        let mut driver = Driver::new()?;
        let load = settings.load_request(path, CHAT_CONTEXT);
        let Step::Done(info) = driver.load(load)? else { return Ok(Outcome::Interrupted) };
        findings.extend(model(&info, &driver.snapshot()));
    }
    let mut out = io::stdout().lock();
    if args.json {
        writeln!(out, "{}", as_json(&findings))?;
        return Ok(Outcome::Done);
    }
    let mut section = "";
    for finding in &findings {
        if finding.section != section {
            section = finding.section;
            writeln!(out, "{section}")?;
        }
        let mark = if finding.advice.is_some() { '!' } else { ' ' };
        writeln!(out, " {mark} {:<16} {}", finding.what, finding.found)?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "   {:<16} {advice}", "")?;
        }
    }
    Ok(Outcome::Done)
}

fn as_json(findings: &[Finding]) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|f| json!({ "section": f.section, "what": f.what, "found": f.found, "advice": f.advice }))
        .collect();
    json!({ "findings": findings })
}

fn screen_size() -> Option<(u16, u16)> {
    crossterm::terminal::size().ok()
}

fn terminal(variable: impl Fn(&str) -> Option<String>, is_terminal: bool, size: Option<(u16, u16)>) -> Vec<Finding> {
    const SECTION: &str = "terminal";
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut findings = Vec::new();
    match (is_terminal, size) {
        (false, _) => findings.push(fine(SECTION, "screen", "none: a prompt is read from standard input")),
        (true, Some((columns, rows))) if columns < 40 || rows < 10 => {
            let found = format!("{columns} columns, {rows} rows");
            findings.push(wanting(SECTION, "screen", found, "make it 40 x 10 or larger, or use chat --plain"));
        }
        (true, Some((columns, rows))) => {
            let layout = if columns < 100 { "chat and a status line" } else { "chat and panels" };
            findings.push(fine(SECTION, "screen", format!("{columns} columns, {rows} rows: {layout}")));
        }
        (true, None) => {
            findings.push(wanting(SECTION, "screen", "its size is not known", "use chat --plain if it looks wrong"));
        }
    }
    match set("TERM").as_deref() {
        Some("dumb") => findings.push(fine(SECTION, "TERM", "dumb: the chat goes a line at a time")),
        Some(term) => findings.push(fine(SECTION, "TERM", crate::sanitize::sanitize(term))),
        None if is_terminal => findings.push(wanting(SECTION, "TERM", "not set", "export TERM=xterm-256color, say")),
        None => {}
    }
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let utf8 = locale.to_lowercase().replace('-', "").contains("utf8");
    if utf8 || !is_terminal {
        let name = if locale.is_empty() { "not set".into() } else { crate::sanitize::sanitize(&locale).into_owned() };
        findings.push(fine(SECTION, "locale", name));
    } else {
        let found = if locale.is_empty() { "not set".to_owned() } else { locale };
        findings.push(wanting(SECTION, "locale", found, "not UTF-8: if lines look broken, use --ascii"));
    }
    let colours = if set("NO_COLOR").is_some() { "off, by NO_COLOR" } else { "the terminal's 16" };
    findings.push(fine(SECTION, "colours", colours));
    let between: Vec<&str> = [("TMUX", "tmux"), ("STY", "screen"), ("SSH_CONNECTION", "ssh")]
        .into_iter()
        .filter_map(|(name, what)| set(name).map(|_| what))
        .collect();
    if !between.is_empty() {
        findings.push(fine(SECTION, "between", between.join(", ")));
    }
    findings
}

fn machine(settings: &Settings) -> Vec<Finding> {
    const SECTION: &str = "machine";
    let threads = settings.threads.unwrap_or_else(pool::default_threads);
    let isa = Isa::detect().name();
    let others: Vec<&str> = Isa::supported().iter().map(|isa| isa.name()).filter(|name| *name != isa).collect();
    let mut findings = vec![
        fine(SECTION, "processor", format!("{}, {}", std::env::consts::ARCH, std::env::consts::OS)),
        fine(SECTION, "kernels", format!("{isa} (also here: {})", others.join(", "))),
        fine(SECTION, "threads", format!("{threads}")),
    ];
    let (available, automatic) = (memory::available_bytes(), memory::automatic_budget_bytes());
    findings.push(fine(SECTION, "memory", format!("{} available", format_size(available))));
    let budget = format!("{} (auto would be {})", format_budget(settings.budget), format_size(automatic));
    findings.push(match settings.budget {
        crate::engine::protocol::Budget::Bytes(bytes) if bytes > available => {
            wanting(SECTION, "budget", budget, "more than is available: the system would swap; lower it or take auto")
        }
        _ => fine(SECTION, "budget", budget),
    });
    findings
}

fn storage(settings: &Settings) -> Vec<Finding> {
    const SECTION: &str = "files";
    let mut findings = Vec::new();
    let config = places::config_file_from_environment().or_else(places::config_file);
    match config {
        Some(path) if path.is_file() => findings.push(fine(SECTION, "configuration", path.display().to_string())),
        Some(path) => findings.push(fine(SECTION, "configuration", format!("none; it would be {}", path.display()))),
        None => findings.push(wanting(SECTION, "configuration", "no home folder", "set SIPLLM_CONFIG")),
    }
    match Library::open(settings) {
        Ok(library) => {
            findings.push(folder(library.folder()));
            let found = match library.installed() {
                Ok(models) if models.is_empty() => "none yet; `sipllm pull smollm2-135m` fetches a small one".into(),
                Ok(models) => {
                    let bytes = models.iter().map(|model| model.bytes).sum();
                    format!("{}, {}", models.len(), format_size(bytes))
                }
                Err(error) => error.to_string(),
            };
            findings.push(fine(SECTION, "models", found));
        }
        Err(error) => findings.push(wanting(SECTION, "models", "nowhere", error.to_string())),
    }
    findings
}

/// Whether models can be written to the folder, or where it does not exist, to the nearest one above it.
fn folder(folder: &Path) -> Finding {
    const SECTION: &str = "files";
    let shown = folder.display().to_string();
    let existing = folder.ancestors().find(|path| path.exists()).unwrap_or(folder);
    let writable = existing.is_dir() && rustix::fs::access(existing, rustix::fs::Access::WRITE_OK).is_ok();
    if !writable {
        return wanting(SECTION, "folder", shown, "it cannot be written: set `data_dir` or SIPLLM_DATA_DIR");
    }
    let Ok(stat) = rustix::fs::statvfs(existing) else { return fine(SECTION, "folder", shown) };
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let found = format!("{shown}, {} free", format_size(free));
    if free < 200 << 20 {
        wanting(SECTION, "folder", found, "too little for a model")
    } else {
        fine(SECTION, "folder", found)
    }
}

/// The forecast: from the plan that was made for the budget, and the disk's calibrated speed where there is one.
fn model(info: &ModelInfo, snapshot: &Snapshot) -> Vec<Finding> {
    const SECTION: &str = "model";
    let memory = &snapshot.memory;
    let mut findings = vec![
        fine(SECTION, "name", &info.name),
        fine(
            SECTION,
            "weights",
            format!(
                "{} {}, {} layers, {}; {} for each token",
                info.architecture,
                info.quantization,
                info.layers,
                format_size(info.weights_bytes),
                format_size(info.touched_bytes_per_token)
            ),
        ),
        fine(SECTION, "context", format!("{} of {} tokens", info.context, info.context_trained)),
        fine(
            SECTION,
            "budgets",
            format!(
                "{} is the least, {} holds everything",
                format_size(memory.least_bytes),
                format_size(memory.full_bytes)
            ),
        ),
    ];
    findings.extend(info.warnings.iter().map(|warning| wanting(SECTION, "warning", "", warning)));
    // Each byte that the budget is short of full residency is read anew for each token.
    let missing = memory.full_bytes.saturating_sub(memory.budget_bytes).min(info.touched_bytes_per_token);
    let budget = format_size(memory.budget_bytes);
    if missing == 0 {
        findings.push(fine(SECTION, "forecast", format!("fits into {budget}: nothing is streamed")));
        return findings;
    }
    let streams = format!("streams {} a token at a budget of {budget}", format_size(missing));
    let disk = snapshot.speed.disk_calibrated_bytes_s;
    if disk == 0 {
        findings.push(fine(SECTION, "forecast", streams));
        return findings;
    }
    let tok_s = disk as f64 / missing as f64;
    let first = info.touched_bytes_per_token as f64 / disk as f64;
    let found = format!(
        "{streams}: at most {tok_s:.2} tok/s from a disk of {}/s, the first word after {first:.1} s or more",
        format_size(disk)
    );
    findings.push(if tok_s < HOPELESS_TOK_S {
        let enough = memory.full_bytes.saturating_sub((disk as f64 / HOPELESS_TOK_S) as u64);
        let advice = format!(
            "too slow to chat: give it {} or more, a faster disk, or take a smaller model or quantisation",
            format_size(enough)
        );
        wanting(SECTION, "forecast", found, advice)
    } else {
        fine(SECTION, "forecast", found)
    });
    findings
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::engine::protocol::{MemoryFigures, SpeedFigures};

    fn found<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
        findings.iter().find(|finding| finding.what == what).unwrap()
    }

    #[test]
    fn the_terminal_is_judged_by_what_it_says_of_itself() {
        let variables = |pairs: &'static [(&str, &str)]| {
            move |name: &str| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        };
        let good = terminal(
            variables(&[("TERM", "tmux-256color"), ("LANG", "en_GB.UTF-8"), ("TMUX", "x")]),
            true,
            Some((120, 40)),
        );
        assert!(good.iter().all(|finding| finding.advice.is_none()), "{good:?}");
        assert_eq!(found(&good, "between").found, "tmux");
        let poor =
            terminal(variables(&[("LC_ALL", "C"), ("LANG", "en_GB.UTF-8"), ("NO_COLOR", "1")]), true, Some((20, 5)));
        for what in ["screen", "TERM", "locale"] {
            assert!(found(&poor, what).advice.is_some(), "{what}");
        }
        assert_eq!(found(&poor, "colours").found, "off, by NO_COLOR");
        let pipe = terminal(variables(&[]), false, None);
        assert!(pipe.iter().all(|finding| finding.advice.is_none()), "{pipe:?}");
    }

    fn forecast(budget: u64, disk: u64) -> Finding {
        let info = ModelInfo { touched_bytes_per_token: 4000 << 20, ..ModelInfo::default() };
        let memory = MemoryFigures { budget_bytes: budget, full_bytes: 4500 << 20, ..MemoryFigures::default() };
        let speed = SpeedFigures { disk_calibrated_bytes_s: disk, ..SpeedFigures::default() };
        found(&model(&info, &Snapshot { memory, speed, ..Snapshot::default() }), "forecast").clone()
    }

    #[test]
    fn the_forecast_says_whether_it_fits_streams_or_is_hopeless() {
        assert_eq!(forecast(5000 << 20, 0).found, "fits into 4.88 GiB: nothing is streamed");
        let streams = forecast(2500 << 20, 500 << 20);
        assert!(
            streams.found.contains("streams 1.95 GiB a token") && streams.found.contains("0.25 tok/s"),
            "{streams:?}"
        );
        assert_eq!(streams.advice, None);
        let hopeless = forecast(100 << 20, 20 << 20);
        assert!(hopeless.found.contains("0.01 tok/s") && hopeless.found.contains("200.0 s"), "{hopeless:?}");
        assert!(hopeless.advice.unwrap().contains("give it 4.20 GiB or more"));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said_to_be() {
        assert!(folder(Path::new("/dev/null/x/models")).advice.is_some());
        assert!(folder(&std::env::temp_dir().join("sipllm-none/models")).advice.is_none());
    }
}
