//! The subcommands: what each does with its arguments and the settings.

pub mod bench;
pub mod chat;
pub mod completions;
pub mod config;
pub mod doctor;
pub mod driver;
pub mod inspect;
pub mod interrupt;
mod json;
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
use crate::kernels::Isa;
use crate::sanitize::line;

/// Characters of a message; what is longer quotes a stranger.
const MOST_TOLD: usize = 1000;

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

/// What a file or the engine has to say, as one line for the terminal.
fn told(text: &str) -> String {
    line(text, MOST_TOLD)
}

/// Does what the command line asks.
pub fn dispatch(cli: Cli) -> anyhow::Result<Outcome> {
    check_usage(&cli)?;
    // These must work where the configuration does not.
    match &cli.command {
        Some(Command::Completions(args)) => return completions::completions(args),
        Some(Command::Man(args)) => return completions::man(args),
        Some(Command::Config(args)) if args.path => return config::print_path(cli.engine.config.as_deref()),
        _ => {}
    }
    let mut settings = Settings::load(cli.engine.config.as_deref())?;
    settings.apply_engine_args(&cli.engine);
    Isa::check_environment().map_err(anyhow::Error::msg)?;
    let Some(command) = cli.command else {
        settings.apply_chat_args(&cli.chat);
        return chat::run(&cli.chat, &settings);
    };
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

/// What stands where it would be passed over in silence.
fn check_usage(cli: &Cli) -> Result<(), UsageError> {
    let Some(command) = &cli.command else { return Ok(()) };
    let chat = &cli.chat;
    if let Some(model) = &chat.model {
        return Err(UsageError(format!("`{}` stands before the command; name the model after it", line(model, 60))));
    }
    if chat.answer != AnswerArgs::default() || chat.plain || chat.resume.is_some() || chat.ascii {
        return Err(UsageError("flags of the chat or of answers stand after the command".into()));
    }
    if cli.engine.model_flag.is_some() {
        match model_of(command) {
            ModelArgument::Absent => {}
            ModelArgument::Given => {
                let what = "the model is named twice; leave out --model or the name after the command";
                return Err(UsageError(what.into()));
            }
            ModelArgument::Never => return Err(UsageError("this command takes no --model".into())),
        }
    }
    Ok(())
}

/// Whether a command names a model after it.
enum ModelArgument {
    Given,
    Absent,
    /// It has no use for `--model`.
    Never,
}

fn model_of(command: &Command) -> ModelArgument {
    let model = match command {
        Command::Chat(args) => &args.model,
        Command::Run(args) => &args.model,
        Command::Bench(args) => &args.model,
        Command::Doctor(args) => &args.model,
        Command::Inspect(args) => &args.model,
        Command::Config(_) => &None,
        Command::Tokenize(_) | Command::Logits(_) => return ModelArgument::Given,
        Command::Pull(_) | Command::Models(_) | Command::Rm(_) | Command::Toy(_) => return ModelArgument::Never,
        Command::Completions(_) | Command::Man(_) => return ModelArgument::Never,
    };
    if model.is_some() { ModelArgument::Given } else { ModelArgument::Absent }
}
