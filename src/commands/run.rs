//! `sipllm run`.

use crate::cli::RunArgs;
use crate::commands::Outcome;
use crate::config::Settings;

pub fn run(_args: &RunArgs, _settings: &Settings) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
