//! The program: parses the command line, picks a front end, turns what comes back into an exit code.

use std::io::{self, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::Parser;
use sipllm::cli::Cli;
use sipllm::commands::{self, Detailed, Outcome, UsageError};
use sipllm::logging;
use sipllm::sanitize::sanitize;

fn main() -> ExitCode {
    sipllm::weights::memory::keep_heap_small();
    // clap prints its own errors and help, and exits with 2 or 0.
    let cli = Cli::parse();
    logging::tell_panics(|line| {
        let _ = writeln!(io::stderr(), "sipllm: {}", one_line(line));
    });
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _log = logging::start()?;
        commands::dispatch(cli)
    }));
    // The hook has told of a panic.
    let Ok(outcome) = outcome else { return ExitCode::FAILURE };
    match outcome {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Interrupted) => ExitCode::from(130),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            ExitCode::from(if error.is::<UsageError>() { 2 } else { 1 })
        }
    }
}

/// One line on stderr, then the details of a [`Detailed`] error. Where stderr is gone there is nobody to tell.
fn report(error: &anyhow::Error) {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Many errors already quote the one below them.
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "sipllm: {}", one_line(&message));
    for line in error.downcast_ref::<Detailed>().map(|error| error.details.as_slice()).unwrap_or_default() {
        let _ = writeln!(stderr, "  {}", one_line(line));
    }
}

/// Characters of a line; what is longer quotes a stranger.
const LONGEST: usize = 2000;

/// The text without line breaks and control characters, and not longer than can be read: it may quote a file's contents.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect();
    let safe = sanitize(&words.join("; ")).replace(char::is_control, "\u{fffd}");
    match safe.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}...", &safe[..at]),
        None => safe,
    }
}

/// Whoever read the output has gone: not a failure of ours.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::BrokenPipe)
}
