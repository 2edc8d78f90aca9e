//! Cutting text into the pieces within which byte-level BPE merges.
//!
//! Every model family has its own regular expressions for this. They are written out here as code: a splitter looks at
//! each character a bounded number of times, so no text makes one slow. What each does is what llama.cpp does with the
//! expressions in its `llama-vocab.cpp`: a [`Stage`] cuts every piece that the stage before it left, and what no
//! alternative matches stays together as a piece of its own.

mod families;
mod stages;
mod unicode;
mod unicode_table;
mod words;

pub(super) use families::{DEFAULT, Family, Spelling, family};
pub(super) use unicode::{Char, decode, push_utf8, sequence_len};

use stages::Stage;

/// Cuts `text` by one stage after another; returns where each piece ends.
pub(super) fn split(text: &[Char], stages: &[Stage]) -> Vec<u32> {
    let mut ends = vec![text.len() as u32];
    for stage in stages {
        let mut finer = Vec::with_capacity(ends.len());
        let mut start = 0;
        for &end in &ends {
            let mut cuts = Cuts { start, ends: &mut finer };
            stage.cut(&text[start as usize..end as usize], &mut cuts);
            cuts.at((end - start) as usize);
            start = end;
        }
        ends = finer;
    }
    ends
}

/// Where a stage cuts the piece it is given.
struct Cuts<'a> {
    start: u32,
    ends: &'a mut Vec<u32>,
}

impl Cuts<'_> {
    /// Ends a piece at `offset` of the piece being cut; ascending, and twice at the same place is once.
    fn at(&mut self, offset: usize) {
        let end = self.start + offset as u32;
        if end > self.ends.last().copied().unwrap_or(0) {
            self.ends.push(end);
        }
    }

    /// Cuts around every match, as a search with a regular expression would find them from left to right.
    /// `matched(rest)` is the length of the match at the start of `rest`.
    fn around(&mut self, piece: &[Char], mut matched: impl FnMut(&[Char]) -> Option<usize>) {
        let mut at = 0;
        while at < piece.len() {
            match matched(&piece[at..]) {
                Some(len) if len > 0 => {
                    self.at(at);
                    at += len;
                    self.at(at);
                }
                _ => at += 1,
            }
        }
    }
}

/// The character at `i`, or [`Char::END`].
fn at(text: &[Char], i: usize) -> Char {
    text.get(i).copied().unwrap_or(Char::END)
}

/// How many characters from `from` on satisfy `is`.
fn run(text: &[Char], from: usize, is: impl Fn(Char) -> bool) -> usize {
    text.get(from..).unwrap_or_default().iter().take_while(|&&c| is(c)).count()
}
