//! Where files are kept: the platform's folders for configuration, data, state and caches.

use std::path::{Path, PathBuf};

use directories::ProjectDirs;

/// The platform names no home for this user, so there is no usual place for data.
#[derive(Debug, thiserror::Error)]
#[error("no home folder is known for this user; set SIPLLM_DATA_DIR to a folder for models and chats")]
pub struct NoHome;

/// Whether the error says that there is nothing at a path: neither there nor, where a home is `/dev/null`, above it.
pub fn is_absent(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory)
}

fn project() -> Option<ProjectDirs> {
    ProjectDirs::from("", "", "sipllm")
}

/// The usual configuration file.
pub fn config_file() -> Option<PathBuf> {
    project().map(|dirs| dirs.config_dir().join("config.toml"))
}

/// The configuration file that `SIPLLM_CONFIG` names.
pub fn config_file_from_environment() -> Option<PathBuf> {
    std::env::var_os("SIPLLM_CONFIG").filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// The folder of models and chats: the configured one (which a leading `~/` puts into the home folder), or the usual one.
pub fn data_dir(configured: Option<&Path>) -> Result<PathBuf, NoHome> {
    match configured {
        Some(path) => match path.strip_prefix("~") {
            Ok(rest) => Ok(directories::BaseDirs::new().ok_or(NoHome)?.home_dir().join(rest)),
            Err(_) => Ok(path.into()),
        },
        None => project().map(|dirs| dirs.data_dir().into()).ok_or(NoHome),
    }
}

/// The folder of things that may be lost, such as calibration figures.
pub fn cache_dir() -> Option<PathBuf> {
    project().map(|dirs| dirs.cache_dir().into())
}

/// Where the measured speeds of devices are kept.
pub fn device_speeds_file() -> Option<PathBuf> {
    cache_dir().map(|dir| dir.join("devices.json"))
}

/// The folder of logs.
pub fn state_dir() -> Option<PathBuf> {
    project().map(|dirs| dirs.state_dir().unwrap_or_else(|| dirs.cache_dir()).into())
}
