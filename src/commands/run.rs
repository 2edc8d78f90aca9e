//! `sipllm run`: one answer on standard output.

use std::io::{Read, Write, stderr, stdin, stdout};

use super::driver::{Driver, Step};
use super::json::json_line;
use super::pull::model_path;
use super::{Outcome, told};
use crate::cli::RunArgs;
use crate::config::Settings;
use crate::engine::protocol::{FinishReason, GenerationStats, Message, Prompt, Request, Role};
use crate::words::counted;

pub fn run(args: &RunArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let prompt = match args.prompt.as_str() {
        "-" => match read_prompt()? {
            text if text.trim().is_empty() => {
                anyhow::bail!("the prompt comes from standard input, which is empty")
            }
            text => text,
        },
        text => text.to_owned(),
    };
    let Some(path) = model_path(args.model.as_deref(), settings)? else { return Ok(Outcome::Interrupted) };
    answer(path, prompt, args, settings)
}

/// The whole of standard input, without the line break at its end.
pub fn read_prompt() -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    stdin().lock().read_to_end(&mut bytes)?;
    let mut text = String::from_utf8(bytes).map_err(|error| {
        anyhow::anyhow!("standard input is not UTF-8 at byte {}; convert it first", error.utf8_error().valid_up_to())
    })?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

/// Loads the model at `path` and answers `prompt`.
pub fn answer(
    path: std::path::PathBuf,
    prompt: String,
    args: &RunArgs,
    settings: &Settings,
) -> anyhow::Result<Outcome> {
    let mut driver = Driver::new()?;
    let Step::Done(info) = driver.load(settings.load_request(path, 1))? else { return Ok(Outcome::Interrupted) };
    for warning in &info.warnings {
        writeln!(stderr(), "sipllm: {}", told(warning))?;
    }
    let request = Request {
        id: 0,
        prompt: if args.raw { Prompt::Raw(prompt) } else { Prompt::Chat(conversation(prompt, settings)) },
        sampling: settings.sampling.clone(),
        max_tokens: settings.max_tokens,
        stop: settings.stop.clone(),
        stop_at_end: true,
        thinking: settings.think,
    };
    let mut text = String::new();
    let mut out = stdout().lock();
    let step = driver.generate(request, |piece| {
        if args.json {
            text.push_str(piece);
            return Ok(());
        }
        out.write_all(piece.as_bytes())?;
        out.flush()
    })?;
    match step {
        Step::Done((reason, stats)) if args.json => {
            write!(out, "{}", json_line(&json(&info.name, &text, reason, &stats)))?
        }
        Step::Done((reason, _)) => {
            writeln!(out)?;
            if reason == FinishReason::ContextFull {
                writeln!(
                    stderr(),
                    "sipllm: the context of {} is full; raise --ctx for a longer answer",
                    counted(info.context, "token")
                )?;
            }
        }
        Step::Interrupted => {
            if !args.json {
                writeln!(out)?;
            }
            return Ok(Outcome::Interrupted);
        }
    }
    Ok(Outcome::Done)
}

fn conversation(prompt: String, settings: &Settings) -> Vec<Message> {
    let system = settings.system.clone().map(|content| Message { role: Role::System, content });
    system.into_iter().chain([Message { role: Role::User, content: prompt }]).collect()
}

fn json(model: &str, text: &str, reason: FinishReason, stats: &GenerationStats) -> serde_json::Value {
    serde_json::json!({ "model": model, "text": text, "reason": reason, "stats": stats })
}
