//! From token ids to the text that leaves the engine: whole characters, no control characters, nothing of a
//! stop text.

use super::channels::Channels;
use crate::sanitize::Sanitizer;
use crate::tokenizer::{TextStream, Tokenizer};

/// What a token added.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text to pass on, perhaps empty.
    Text(String),
    /// The last text to pass on: a stop text came.
    Stop(String),
}

/// The text of one answer as it grows.
pub struct AnswerText {
    stream: TextStream,
    /// Set where answers come in channels.
    channels: Option<Channels>,
    stops: Vec<String>,
    /// Text that may be the beginning of a stop text.
    held: String,
    sanitizer: Sanitizer,
}

impl AnswerText {
    pub fn new(stops: Vec<String>) -> Self {
        let stops = stops.into_iter().filter(|s| !s.is_empty()).collect();
        Self { stream: TextStream::new(), channels: None, stops, held: String::new(), sanitizer: Sanitizer::default() }
    }

    /// The answer comes in channels.
    pub fn in_channels(&mut self, channels: Channels) {
        self.channels = Some(channels);
    }

    /// The prompt has begun the answer with this, which belongs to it.
    pub fn opens_with(&mut self, text: &str) {
        self.held.push_str(text);
    }

    /// The answer goes on with text that was there before: a blank at its beginning is part of it.
    pub fn goes_on(&mut self) {
        self.stream = TextStream::continuing();
    }

    /// Takes the next token of the answer.
    pub fn push(&mut self, tokenizer: &Tokenizer, id: u32) -> Piece {
        let text = self.stream.push(tokenizer, id);
        match &mut self.channels {
            Some(channels) => {
                let text = channels.push(&text);
                self.take(&text)
            }
            None => self.take(&text),
        }
    }

    /// What is still held back when the answer ends without a stop text.
    pub fn finish(&mut self) -> String {
        let mut rest = self.stream.finish();
        if let Some(channels) = &mut self.channels {
            rest = channels.push(&rest) + &channels.finish();
        }
        match self.take(&rest) {
            Piece::Stop(text) => text,
            Piece::Text(text) => text + &self.sanitizer.push(&std::mem::take(&mut self.held)),
        }
    }

    fn take(&mut self, text: &str) -> Piece {
        self.held.push_str(text);
        if let Some(at) = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min() {
            self.held.truncate(at);
            return Piece::Stop(self.sanitizer.push(&std::mem::take(&mut self.held)).into_owned());
        }
        let keep = self.stops.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let rest = self.held.split_off(self.held.len() - keep);
        let ready = std::mem::replace(&mut self.held, rest);
        Piece::Text(self.sanitizer.push(&ready).into_owned())
    }
}

/// Length of the longest end of `text` with which `stop` begins.
fn overlap(text: &str, stop: &str) -> usize {
    let most = text.len().min(stop.len() - 1);
    (1..=most)
        .rev()
        .find(|&n| stop.is_char_boundary(n) && text.as_bytes()[text.len() - n..] == stop.as_bytes()[..n])
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut answer = AnswerText::new(stops.iter().map(|s| s.to_string()).collect());
        let mut out = String::new();
        for piece in pieces {
            match answer.take(piece) {
                Piece::Text(text) => out += &text,
                Piece::Stop(text) => return (out + &text, true),
            }
        }
        (out + &answer.finish(), false)
    }

    #[test]
    fn a_stop_text_over_several_tokens_is_cut_whole() {
        assert_eq!(feed(&["###"], &["one #", "#", "# two"]), ("one ".into(), true));
    }

    #[test]
    fn the_beginning_of_a_stop_text_that_does_not_come_is_passed_on() {
        assert_eq!(feed(&["###"], &["one #", "# two #"]), ("one ## two #".into(), false));
    }

    #[test]
    fn the_earliest_of_two_stop_texts_counts() {
        assert_eq!(feed(&["b", "a"], &["xx a b"]), ("xx ".into(), true));
    }

    #[test]
    fn a_stop_text_with_wide_characters_is_found_at_their_boundaries() {
        assert_eq!(feed(&["é!"], &["caf", "é", "?"]), ("café?".into(), false));
        assert_eq!(feed(&["é!"], &["caf", "é", "!"]), ("caf".into(), true));
    }
}
