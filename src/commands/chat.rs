//! `sipllm chat`.

use super::Outcome;
use crate::cli::ChatArgs;
use crate::config::Settings;

pub fn run(_args: &ChatArgs, _settings: &Settings) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
