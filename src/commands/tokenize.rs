//! `sipllm tokenize`.

use crate::cli::TokenizeArgs;
use crate::commands::Outcome;
use crate::config::Settings;

pub fn run(_args: &TokenizeArgs, _settings: &Settings) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
