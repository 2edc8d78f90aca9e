//! The subcommands: what each does with its arguments and the settings.

pub mod bench;
pub mod inspect;
pub mod logits;
pub mod run;
pub mod tokenize;
pub mod toy;

use std::fmt;

use crate::cli::{Cli, Command};
use crate::config::Settings;

/// How a command that did not fail ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The user stopped it: exit code 130.
    Interrupted,
}

/// A wrong use of the command line that clap cannot see: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// A failure with more to say than one line holds, such as the itemised least memory: the message is
/// printed as the one line, the details each on a line of its own below it.
#[derive(Debug)]
pub struct Detailed {
    pub message: String,
    pub details: Vec<String>,
}

impl fmt::Display for Detailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Detailed {}

/// Does what the command line asks.
pub fn dispatch(cli: Cli) -> anyhow::Result<Outcome> {
    let mut settings = Settings::default();
    settings.apply_engine_args(&cli.engine);
    match cli.command {
        None => anyhow::bail!("not built yet"),
        Some(Command::Run(args)) => {
            settings.apply_answer_args(&args.answer);
            run::run(&args, &settings)
        }
        Some(Command::Bench(args)) => bench::run(&args, &settings),
        Some(Command::Inspect(args)) => inspect::run(&args, &settings),
        Some(Command::Tokenize(args)) => tokenize::run(&args, &settings),
        Some(Command::Logits(args)) => logits::run(&args, &settings),
        Some(Command::Toy(args)) => toy::run(&args, &settings),
        Some(_) => anyhow::bail!("not built yet"),
    }
}
