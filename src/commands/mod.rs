//! The subcommands: what each does with its arguments and the settings.

pub mod bench;
pub mod chat;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod driver;
pub mod inspect;
pub mod interrupt;
pub mod logits;
pub mod models;
pub mod plain;
pub mod pull;
pub mod rm;
pub mod run;
pub mod tokenize;
pub mod toy;

use std::fmt;

use crate::cli::{AnswerArgs, Cli, Command};
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
    // These must work where the configuration does not.
    match &cli.command {
        Some(Command::Completions(args)) => return completions::completions(args),
        Some(Command::Man(args)) => return completions::man(args),
        Some(Command::Config(args)) if args.path => return config::print_path(cli.engine.config.as_deref()),
        _ => {}
    }
    let mut settings = Settings::load(cli.engine.config.as_deref())?;
    settings.apply_engine_args(&cli.engine);
    let Some(command) = cli.command else {
        settings.apply_chat_args(&cli.chat);
        return chat::run(&cli.chat, &settings);
    };
    if cli.chat.answer != AnswerArgs::default() || cli.chat.plain || cli.chat.resume.is_some() || cli.chat.ascii {
        return Err(UsageError("flags of the chat or of answers stand after the command".into()).into());
    }
    if cli.engine.model_flag.is_some() && positional_model(&command).is_some() {
        return Err(
            UsageError("the model is named twice; leave out --model or the name after the command".into()).into()
        );
    }
    match command {
        Command::Chat(args) => {
            settings.apply_chat_args(&args);
            chat::run(&args, &settings)
        }
        Command::Run(args) => {
            settings.apply_answer_args(&args.answer);
            run::run(&args, &settings)
        }
        Command::Bench(args) => bench::run(&args, &settings),
        Command::Doctor(args) => doctor::run(&args, &settings),
        Command::Inspect(args) => inspect::run(&args, &settings),
        Command::Pull(args) => pull::run(&args, &settings),
        Command::Models(args) => models::run(&args, &settings),
        Command::Rm(args) => rm::run(&args, &settings),
        Command::Tokenize(args) => tokenize::run(&args, &settings),
        Command::Logits(args) => logits::run(&args, &settings),
        Command::Toy(args) => toy::run(&args, &settings),
        Command::Config(args) => config::run(&args, &settings),
        Command::Completions(args) => completions::completions(&args),
        Command::Man(args) => completions::man(&args),
    }
}

/// The model that stands after the command.
fn positional_model(command: &Command) -> Option<&str> {
    match command {
        Command::Chat(args) => args.model.as_deref(),
        Command::Run(args) => args.model.as_deref(),
        Command::Bench(args) => args.model.as_deref(),
        Command::Doctor(args) => args.model.as_deref(),
        Command::Inspect(args) => args.model.as_deref(),
        _ => None,
    }
}
