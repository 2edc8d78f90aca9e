//! `sipllm doctor`: what the program sees of terminal, machine, memory and disk, and with a model, how it will run.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use serde_json::{Value, json};

use super::Outcome;
use super::driver::describe;
use super::json::json_line;
use super::pull::model_path;
use crate::catalog::Library;
use crate::cli::DoctorArgs;
use crate::config::{CHAT_CONTEXT, Settings};
use crate::engine::protocol::{Budget, Failure, ModelInfo};
use crate::forecast::{Measured, Outlook, PROMPT_TOKENS};
use crate::kernels::{Isa, pool};
use crate::places;
use crate::sanitize::sanitize;
use crate::size::{format_budget, format_size};
use crate::weights::calibrate::Limiter;
use crate::weights::{Plan, memory};
use crate::words::counted;

const MODEL: &str = "model";

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
    let mut forecast = Value::Null;
    // A model is looked at only where one is named: on a new machine doctor fetches nothing.
    let named = args.model.as_deref().or(settings.model.as_deref());
    if named.is_some() {
        let Some(path) = model_path(args.model.as_deref(), settings)? else { return Ok(Outcome::Interrupted) };
        let load = settings.load_request(path, CHAT_CONTEXT);
        let report = Measured::new(load).and_then(|mut measured| model(&mut measured, settings.budget));
        let (told, figures) = report.map_err(|failure| describe(&failure))?;
        findings.extend(told);
        forecast = figures;
    }
    let mut out = io::stdout().lock();
    if args.json {
        write!(out, "{}", json_line(&as_json(&findings, forecast)))?;
        return Ok(Outcome::Done);
    }
    let mut section = "";
    for finding in &findings {
        if finding.section != section {
            section = finding.section;
            writeln!(out, "{section}")?;
        }
        let mark = if finding.advice.is_some() { '!' } else { ' ' };
        // Paths and names may hold anything; columns within are kept.
        let found = sanitize(&finding.found).replace('\n', " ");
        writeln!(out, " {mark} {:<16} {found}", finding.what)?;
        if let Some(advice) = &finding.advice {
            writeln!(out, "   {:<16} {advice}", "")?;
        }
    }
    Ok(Outcome::Done)
}

fn as_json(findings: &[Finding], forecast: Value) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|f| json!({ "section": f.section, "what": f.what, "found": f.found, "advice": f.advice }))
        .collect();
    json!({ "findings": findings, "forecast": forecast })
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
        Some(term) => findings.push(fine(SECTION, "TERM", sanitize(term))),
        None if is_terminal => findings.push(wanting(SECTION, "TERM", "not set", "export TERM=xterm-256color, say")),
        None => {}
    }
    let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
    let utf8 = locale.to_lowercase().replace('-', "").contains("utf8");
    if utf8 || !is_terminal {
        let name = if locale.is_empty() { "not set".into() } else { sanitize(&locale).into_owned() };
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
        Budget::Bytes(bytes) if bytes > available => {
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

/// The model and the forecast for the budget asked for, and for others.
fn model(measured: &mut Measured, budget: Budget) -> Result<(Vec<Finding>, Value), Failure> {
    let asked = measured.outlook(budget)?;
    let info = measured.info().clone();
    let speeds = measured.speeds;
    let Plan { least_bytes: least, least_context, .. } = asked.plan;
    let mut findings = about_model(&info, &asked.plan);
    let rate = |bytes_s: f64| format_size(bytes_s as u64);
    let memory = match speeds.device.memory_bytes_s {
        0.0 => "not measured, the budget has no room for it".to_owned(),
        bytes_s => format!("{}/s", rate(bytes_s)),
    };
    findings.push(fine(
        MODEL,
        "speeds",
        format!(
            "disk {}/s, memory {memory}, arithmetic {}/s, of a prompt {}/s",
            rate(speeds.device.disk_bytes_s),
            rate(speeds.decode_bytes_s),
            rate(speeds.prefill_bytes_s)
        ),
    ));
    findings.push(judge(&asked, enough_to_chat(measured)));
    let mut rows = Vec::new();
    let full = asked.plan.full_bytes;
    for quarter in 0..=4 {
        let bytes = least + full.saturating_sub(least) * quarter / 4;
        // The least may move by a page between two plans.
        let Ok(outlook) = measured.outlook(Budget::Bytes(bytes)) else { continue };
        findings.push(fine(MODEL, if quarter == 0 { "other budgets" } else { "" }, told(&outlook)));
        rows.push(forecast_json(&outlook));
    }
    let forecast = json!({
        "asked": forecast_json(&asked),
        "least_bytes": least,
        "least_context": least_context,
        "full_bytes": full,
        "others": rows,
    });
    Ok((findings, forecast))
}

fn about_model(info: &ModelInfo, plan: &Plan) -> Vec<Finding> {
    let (weights, touched) = (format_size(info.weights_bytes), format_size(info.touched_bytes_per_token));
    let shape = format!("{} {}, {}", info.architecture, info.quantization, counted(info.layers, "layer"));
    let (least, full) = (format_size(plan.least_bytes), format_size(plan.full_bytes));
    let least_context = counted(plan.least_context, "token");
    let mut findings = vec![
        fine(MODEL, "name", &info.name),
        fine(MODEL, "weights", format!("{shape}, {weights}; {touched} for each token")),
        fine(MODEL, "context", format!("{} of {} tokens", plan.context, info.context_trained)),
        fine(MODEL, "budgets", format!("{least} is the least, with {least_context}; {full} holds everything")),
    ];
    findings.extend(info.warnings.iter().map(|warning| wanting(MODEL, "warning", "", super::told(warning))));
    findings
}

/// The least budget with which a chat is bearable, if any is.
fn enough_to_chat(measured: &mut Measured) -> Option<u64> {
    let plan = measured.outlook(Budget::Share(1.0)).ok()?.plan;
    let bearable = |measured: &mut Measured, bytes| {
        measured.outlook(Budget::Bytes(bytes)).is_ok_and(|outlook| !outlook.forecast.is_hopeless())
    };
    if !bearable(measured, plan.full_bytes) {
        return None;
    }
    let (mut under, mut enough) = (plan.least_bytes, plan.full_bytes);
    while enough - under > 16 << 20 {
        let middle = under + (enough - under) / 2;
        if bearable(measured, middle) { enough = middle } else { under = middle }
    }
    Some(enough)
}

/// `enough` is the least budget with which a chat is bearable.
fn judge(outlook: &Outlook, enough: Option<u64>) -> Finding {
    if !outlook.forecast.is_hopeless() {
        return fine(MODEL, "forecast", told(outlook));
    }
    let advice = match enough {
        Some(bytes) => format!("too slow to chat: give it {} or more", format_size(bytes)),
        None => "too slow to chat on this machine: take a smaller model or a smaller quantisation of it".into(),
    };
    wanting(MODEL, "forecast", told(outlook), advice)
}

fn told(outlook: &Outlook) -> String {
    let Outlook { plan, forecast } = outlook;
    let budget = format_size(plan.budget_bytes);
    let how = match forecast.bytes.streamed_bytes {
        0 => "nothing is streamed".to_owned(),
        bytes => format!("{} streamed a token", format_size(bytes)),
    };
    let limiter = match forecast.limiter {
        Limiter::Disk => "disk",
        Limiter::Memory => "memory",
        Limiter::Compute => "arithmetic",
    };
    let (tok_s, ttft_s) = (forecast.tok_s, forecast.ttft_s);
    let decimals = if tok_s < 10.0 { 2 } else { 0 };
    format!(
        "{budget}: {how}, {tok_s:.decimals$} tok/s (the {limiter} limits), a prompt of {PROMPT_TOKENS} in {ttft_s:.1} s"
    )
}

fn forecast_json(outlook: &Outlook) -> Value {
    let Outlook { plan, forecast } = outlook;
    json!({
        "budget_bytes": plan.budget_bytes,
        "context": plan.context,
        "touched_bytes_per_token": forecast.bytes.touched_bytes,
        "streamed_bytes_per_token": forecast.bytes.streamed_bytes,
        "tok_s": forecast.tok_s,
        "ttft_s": forecast.ttft_s,
        "limiter": format!("{:?}", forecast.limiter).to_lowercase(),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::weights::calibrate::{Forecast, PassBytes};
    use crate::weights::{LeastCost, Placement};

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

    fn outlook(streamed_bytes: u64, tok_s: f64) -> Outlook {
        let bytes = PassBytes { touched_bytes: 4000 << 20, streamed_bytes };
        let plan = Plan {
            budget_bytes: 2500 << 20,
            least_bytes: 100 << 20,
            least_context: 512,
            least_cost: LeastCost::default(),
            full_bytes: 4500 << 20,
            context: 4096,
            batch: 128,
            placement: Placement::default(),
            scratch_bytes: 0,
            kv_bytes: 0,
            ledger: Vec::new(),
        };
        Outlook { plan, forecast: Forecast { bytes, tok_s, ttft_s: 9.0, limiter: Limiter::Disk } }
    }

    #[test]
    fn the_forecast_says_whether_it_fits_streams_or_is_hopeless() {
        let fits = judge(&outlook(0, 12.0), None);
        assert_eq!(fits.found, "2.44 GiB: nothing is streamed, 12 tok/s (the disk limits), a prompt of 128 in 9.0 s");
        let streams = judge(&outlook(2000 << 20, 0.254), None);
        assert!(streams.found.contains("1.95 GiB streamed a token, 0.25 tok/s"), "{streams:?}");
        assert_eq!((fits.advice, streams.advice), (None, None));
        let hopeless = judge(&outlook(2000 << 20, 0.05), Some(3 << 30));
        assert_eq!(hopeless.advice.unwrap(), "too slow to chat: give it 3.00 GiB or more");
        assert!(judge(&outlook(2000 << 20, 0.05), None).advice.unwrap().contains("a smaller model"));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_said_to_be() {
        assert!(folder(Path::new("/dev/null/x/models")).advice.is_some());
        assert!(folder(&std::env::temp_dir().join("sipllm-none/models")).advice.is_none());
    }
}
