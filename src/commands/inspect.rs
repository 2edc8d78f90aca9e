//! `sipllm inspect`.

use crate::cli::InspectArgs;
use crate::commands::Outcome;
use crate::config::Settings;

pub fn run(_args: &InspectArgs, _settings: &Settings) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
