//! What can be wrong with a model file, each in one line: what, where, what to do.

use std::io;
use std::path::{Path, PathBuf};

/// Why a GGUF file was refused.
#[derive(Debug, thiserror::Error)]
pub enum GgufError {
    /// The file cannot be opened or read.
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
    /// The file is of another kind, or empty, or of a version or byte order that this program does not read.
    #[error("{}: {what}", path.display())]
    NotReadable { path: PathBuf, what: String },
    /// The header contradicts itself or the file's length.
    #[error("{}: byte {at}: {what}; the file is damaged or incomplete, fetch it again", path.display())]
    Damaged { path: PathBuf, at: u64, what: String },
    /// A tensor cannot be what the directory says.
    #[error("{}: tensor {name}: {what}", path.display())]
    Tensor { path: PathBuf, name: String, what: String },
    /// A part of a split model is missing or does not belong.
    #[error("{}: {what}", path.display())]
    Split { path: PathBuf, what: String },
    /// A metadata key is missing or of another type than its meaning needs.
    #[error("{}: metadata {key}: {what}", path.display())]
    Key { path: PathBuf, key: String, what: String },
}

impl GgufError {
    pub(super) fn io(path: &Path, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }

    pub(super) fn not_readable(path: &Path, what: impl Into<String>) -> Self {
        Self::NotReadable { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn damaged(path: &Path, at: u64, what: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), at, what: what.into() }
    }

    pub(super) fn tensor(path: &Path, name: &str, what: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_owned(), name: printable(name), what: what.into() }
    }

    pub(super) fn split(path: &Path, what: impl Into<String>) -> Self {
        Self::Split { path: path.to_owned(), what: what.into() }
    }

    pub(super) fn key(path: &Path, key: &str, what: impl Into<String>) -> Self {
        Self::Key { path: path.to_owned(), key: printable(key), what: what.into() }
    }
}

/// A name from a file as it may be shown: escape codes made visible, at most 80 characters.
pub(super) fn printable(name: &str) -> String {
    let mut shown: String = name.chars().take(80).flat_map(char::escape_debug).collect();
    if name.chars().nth(80).is_some() {
        shown.push('…');
    }
    shown
}
