//! `sipllm bench`.

use crate::cli::BenchArgs;
use crate::commands::Outcome;
use crate::config::Settings;

pub fn run(_args: &BenchArgs, _settings: &Settings) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
