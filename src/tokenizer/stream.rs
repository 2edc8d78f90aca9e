//! Text from tokens as they come, in whole characters.

use super::Tokenizer;

/// Turns the tokens of one answer into text; what is held back is less than one character.
#[derive(Debug, Default)]
pub struct TextStream {
    pending: Vec<u8>,
    /// Whether text has come that a blank could stand before.
    begun: bool,
}

impl TextStream {
    /// Text that stands on its own: the blank that some tokenizers put before the first word is left out.
    pub fn new() -> Self {
        Self::default()
    }

    /// Text that goes on from text before it.
    pub fn continuing() -> Self {
        Self { pending: Vec::new(), begun: true }
    }

    /// The whole characters that `id` completes; control tokens give nothing.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> String {
        if tokenizer.is_control(id) {
            return String::new();
        }
        let piece = tokenizer.piece(id);
        let mut bytes = piece.as_ref();
        if !self.begun && tokenizer.adds_space_prefix() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.begun = true;
        self.pending.extend_from_slice(bytes);
        self.take_whole()
    }

    /// What is left at the end; bytes that never became a character come out as U+FFFD.
    pub fn finish(&mut self) -> String {
        let rest = std::mem::take(&mut self.pending);
        String::from_utf8_lossy(&rest).into_owned()
    }

    /// Takes everything but the beginning of a character that may still be completed.
    fn take_whole(&mut self) -> String {
        let whole = self.pending.len() - unfinished(&self.pending);
        let rest = self.pending.split_off(whole);
        let text = std::mem::replace(&mut self.pending, rest);
        match String::from_utf8(text) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }
}

/// Bytes at the end that begin a character and may yet be completed.
fn unfinished(bytes: &[u8]) -> usize {
    let mut valid = 0;
    for chunk in bytes.utf8_chunks() {
        valid += chunk.valid().len();
        let invalid = chunk.invalid();
        if valid + invalid.len() == bytes.len() && !invalid.is_empty() {
            // `invalid` at the very end is either hopeless or the beginning of a longer sequence.
            let error_len = std::str::from_utf8(invalid).err().and_then(|e| e.error_len());
            return if error_len.is_none() { invalid.len() } else { 0 };
        }
        valid += invalid.len();
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_character_is_held_back() {
        for (bytes, held) in [
            (&b""[..], 0),
            (b"abc", 0),
            ("é漢🚀".as_bytes(), 0),
            (b"a\xC3", 1),
            (b"a\xE6", 1),
            (b"a\xE6\xBC", 2),
            (b"\xF0\x9F\x9A", 3),
            (b"a\xFF", 0),
            (b"a\x80", 0),
            (b"\xE6A", 0),
            (b"\xFF\xC3", 1),
            (b"\xC0", 0),
            (b"\xF5", 0),
        ] {
            assert_eq!(unfinished(bytes), held, "{bytes:x?}");
        }
    }
}
