//! Why a model cannot be run.

use super::architecture::ARCHITECTURES;
use crate::gguf::{GgufError, TensorType};
use crate::kernels::Cancelled;
use crate::weights::StoreError;

/// What was wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ModelError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    #[error(transparent)]
    Store(StoreError),
    #[error("no memory for the context: {0}; lower --ctx or the budget")]
    Memory(#[from] std::io::Error),
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
    /// The hooks of a pass broke it off.
    #[error("the pass was interrupted")]
    Interrupted,
    #[error("architecture {name:?} is not supported; these are: {known}")]
    UnknownArchitecture { name: String, known: String },
    #[error("the header does not describe a model that can run: {0}")]
    Header(String),
    #[error("tensor {0} is missing; the file is not complete, or not of the architecture it names")]
    Missing(String),
    #[error("{name}: shape {shape:?} does not match the {k} x {rows} that the header implies")]
    Shape { name: String, shape: Vec<u64>, k: usize, rows: usize },
    #[error("{name}: {found} elements do not match the {expected} that the header implies")]
    Length { name: String, found: u64, expected: usize },
    #[error(
        "{name} is nothing that a model of architecture {arch} has; the file is of a variant that is not supported yet"
    )]
    Unused { name: String, arch: &'static str },
    #[error("{name}: type {ty} is not supported; use a file quantised to one of those that `sipllm inspect` accepts")]
    Type { name: String, ty: TensorType },
    #[error("token {id} is not within the vocabulary of {vocabulary}")]
    Token { id: u32, vocabulary: usize },
}

impl ModelError {
    pub(super) fn missing(name: &str) -> Self {
        Self::Missing(name.to_owned())
    }

    pub(super) fn unknown_architecture(name: &str) -> Self {
        let known = ARCHITECTURES.iter().map(|a| a.name).collect::<Vec<_>>().join(", ");
        Self::UnknownArchitecture { name: name.to_owned(), known }
    }
}

impl From<StoreError> for ModelError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Cancelled => Self::Cancelled(Cancelled),
            other => Self::Store(other),
        }
    }
}
