//! Text to tokens and back, and conversations to prompts, all from what a model's own file says.
//!
//! The reference for every choice is llama.cpp: the same text gives the same ids.

mod error;
mod stream;
mod template;

use std::borrow::Cow;

pub use error::{TemplateError, TokenizerError};
pub use stream::TextStream;
pub use template::{ChatTemplate, RenderOptions, TemplateMessage};

use crate::gguf::Gguf;

/// A model's vocabulary and the way it cuts text.
#[derive(Debug)]
pub struct Tokenizer {
    warnings: Vec<String>,
}

impl Tokenizer {
    /// Reads the tokenizer of a model (or of any file that has one).
    ///
    /// # Errors
    /// There is none, it is of a kind that is not supported, or the file is damaged.
    pub fn from_gguf(_gguf: &Gguf) -> Result<Self, TokenizerError> {
        Err(TokenizerError::Unsupported("not built yet".into()))
    }

    /// What a user should know about this tokenizer; usually empty.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The ids of `text`, without BOS. `parse_special` takes the spelling of control tokens for the tokens.
    pub fn encode(&self, text: &str, parse_special: bool) -> Vec<u32> {
        self.encode_bytes(text.as_bytes(), parse_special)
    }

    /// As [`Tokenizer::encode`], for bytes that may be no valid UTF-8.
    pub fn encode_bytes(&self, _text: &[u8], _parse_special: bool) -> Vec<u32> {
        Vec::new()
    }

    /// The ids of a rendered conversation: special tokens parsed, BOS in front if the model wants one and the text has
    /// none yet.
    pub fn encode_prompt(&self, text: &str) -> Vec<u32> {
        self.encode(text, true)
    }

    /// The token to put in front of every prompt, if the model wants one.
    pub fn add_bos(&self) -> Option<u32> {
        None
    }

    pub fn bos(&self) -> Option<u32> {
        None
    }

    pub fn eos(&self) -> Option<u32> {
        None
    }

    pub fn eot(&self) -> Option<u32> {
        None
    }

    pub fn vocab_len(&self) -> usize {
        0
    }

    /// Whether an answer ends with this token: eos, eot, eom, and what the chat template implies.
    pub fn is_end(&self, _id: u32) -> bool {
        false
    }

    /// Whether the token has no text of its own in an answer.
    pub fn is_control(&self, _id: u32) -> bool {
        false
    }

    /// The bytes of a token as they appear in text; a single token may be part of a character.
    pub fn piece(&self, _id: u32) -> Cow<'_, [u8]> {
        Cow::Borrowed(&[])
    }
}
