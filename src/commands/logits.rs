//! `sipllm logits`.

use crate::cli::LogitsArgs;
use crate::commands::Outcome;
use crate::config::Settings;

pub fn run(_args: &LogitsArgs, _settings: &Settings) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
