//! `sipllm doctor`.

use super::Outcome;
use crate::cli::DoctorArgs;
use crate::config::Settings;

pub fn run(_args: &DoctorArgs, _settings: &Settings) -> anyhow::Result<Outcome> {
    anyhow::bail!("not built yet")
}
