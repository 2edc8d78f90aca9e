//! What is wrong with a tokenizer or a chat template.

use crate::gguf::GgufError;

/// Why a file's tokenizer cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    #[error(transparent)]
    Gguf(#[from] GgufError),
    /// A kind of tokenizer that is known but not supported, or not known at all.
    #[error(
        "tokenizer.ggml.model: the {0} tokenizer is not supported; use a model with a BPE or SentencePiece (llama, gemma, phi) tokenizer"
    )]
    Unsupported(String),
    #[error("{key}: is missing, so text cannot be turned into tokens; use a file with its tokenizer")]
    Missing { key: &'static str },
    #[error("{key}: has {found} entries where tokenizer.ggml.tokens has {tokens}; the file is damaged, fetch it again")]
    Length { key: &'static str, found: usize, tokens: usize },
    #[error("tokenizer.ggml.tokens: {0} tokens are more than are supported (16 million); use another file")]
    TooMany(usize),
}

/// Why a conversation could not be rendered.
#[derive(Debug, thiserror::Error)]
pub enum TemplateError {
    /// The template itself refuses the conversation (`raise_exception`).
    #[error("the model's chat template refuses this conversation: {0}")]
    Refused(String),
    /// The template is broken, or does more work than a template may.
    #[error("the model's chat template failed: {0}; run without a template (--raw) or use another file")]
    Failed(String),
}
