//! Models by name: the catalog of what can be fetched, what is installed, and which file a name means.

use std::path::{Path, PathBuf};

use crate::config::Settings;

/// The file that `model`, or where a command names none the settings, means.
pub fn resolve(model: Option<&str>, settings: &Settings) -> anyhow::Result<PathBuf> {
    match model.or(settings.model.as_deref()) {
        Some(name) if Path::new(name).is_file() => Ok(name.into()),
        Some(name) => anyhow::bail!("{name}: no such file, and no model of that name"),
        None => anyhow::bail!("no model given"),
    }
}
