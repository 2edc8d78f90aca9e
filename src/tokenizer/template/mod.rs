//! Chat templates: a conversation as the text the model was trained on.

use super::{TemplateError, Tokenizer};
use crate::gguf::Gguf;

/// One message as a template sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TemplateMessage<'a> {
    /// `system`, `user` or `assistant`.
    pub role: &'a str,
    pub content: &'a str,
}

/// What to render beside the messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenderOptions {
    /// Ends with the opening of the assistant's turn.
    pub add_generation_prompt: bool,
    /// The last message is an unfinished answer: its end is left out, so that the model carries it on.
    pub continue_last: bool,
    /// Thinking on or off, for a template that knows it; `None` leaves it as the template does.
    pub thinking: Option<bool>,
}

/// The chat template of a model.
#[derive(Debug)]
pub struct ChatTemplate {
    warnings: Vec<String>,
}

impl ChatTemplate {
    /// The template of a model's file; ChatML when it has none or a broken one.
    pub fn from_gguf(_gguf: &Gguf, _tokenizer: &Tokenizer) -> Self {
        Self { warnings: Vec::new() }
    }

    /// The Jinja source.
    pub fn source(&self) -> &str {
        ""
    }

    /// Whether this is the ChatML that stands in for a template of the model's own.
    pub fn is_fallback(&self) -> bool {
        true
    }

    /// Whether the template has a switch for thinking.
    pub fn can_think(&self) -> bool {
        false
    }

    /// What a user should know about this template; usually empty.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// The template refuses the conversation, is broken, or does more work than a template may.
    pub fn render(&self, messages: &[TemplateMessage<'_>], _opts: &RenderOptions) -> Result<String, TemplateError> {
        Ok(messages.iter().map(|m| m.content).collect())
    }
}

/// The tokens that end an answer by what the model's template puts after one.
pub(super) fn implied_ends(_gguf: &Gguf, _tokenizer: &Tokenizer) -> Vec<u32> {
    Vec::new()
}
