//! `sipllm toy`.

use crate::cli::ToyArgs;
use crate::commands::Outcome;
use crate::config::Settings;

pub fn run(_args: &ToyArgs, _settings: &Settings) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
