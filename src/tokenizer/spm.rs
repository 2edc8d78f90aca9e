//! SentencePiece-style tokens: characters merged to the token of the highest score, pair by pair.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::TokenizerError;
use super::pretokenize::sequence_len;
use super::vocab::{Vocab, byte_token};
use crate::gguf::Gguf;

/// The blank as these vocabularies spell it, U+2581.
pub(super) const BLANK: &[u8] = "\u{2581}".as_bytes();

#[derive(Debug)]
pub(super) struct Spm {
    /// Of each token, as bits that order as the scores do.
    scores: Vec<u32>,
    byte_ids: [Option<u32>; 256],
    unknown: Option<u32>,
    /// Bytes that stand before a blank within some token: elsewhere no token reaches over the beginning of a word.
    before_blanks: Box<[bool; 256]>,
}

impl Spm {
    pub(super) fn from_gguf(gguf: &Gguf, vocab: &Vocab, unknown: Option<u32>) -> Result<Self, TokenizerError> {
        const SCORES: &str = "tokenizer.ggml.scores";
        let scores = match gguf.f32s(SCORES)? {
            Some(scores) if scores.len() < vocab.len() => {
                return Err(TokenizerError::Length { key: SCORES, found: scores.len(), tokens: vocab.len() });
            }
            Some(scores) => scores[..vocab.len()].iter().map(|&s| ordered(s)).collect(),
            None => vec![ordered(0.0); vocab.len()],
        };
        let byte_ids = std::array::from_fn(|byte| {
            let byte = byte as u8;
            vocab.find(&byte_token(byte)).or_else(|| vocab.find(&[byte]))
        });
        let mut before_blanks = Box::new([false; 256]);
        for id in 0..vocab.len() as u32 {
            let text = vocab.text(id);
            for at in (1..text.len()).filter(|&at| text[at..].starts_with(BLANK)) {
                before_blanks[usize::from(text[at - 1])] = true;
            }
        }
        // Blanks that follow one another stay together in any case.
        before_blanks[usize::from(BLANK[BLANK.len() - 1])] = true;
        Ok(Self { scores, byte_ids, unknown, before_blanks })
    }

    /// Appends the tokens of a stretch of text; `space_before` puts a blank before it.
    pub(super) fn encode(&self, vocab: &Vocab, text: &[u8], space_before: bool, out: &mut Vec<u32>) {
        let text = escape_blanks(text, space_before);
        let mut merge = Merge { spm: self, vocab, text: &text, symbols: Vec::new(), queue: BinaryHeap::new() };
        let mut start = 0;
        while let Some(&first) = text.get(start) {
            // Words are merged one by one where no token spans two, so that memory does not grow with the text.
            let len = sequence_len(first).min(text.len() - start);
            let begins_word = start > 0 && text[start..].starts_with(BLANK);
            if begins_word && !self.before_blanks[usize::from(text[start - 1])] {
                merge.finish(out);
            }
            let index = merge.symbols.len() as u32;
            merge.symbols.push(Symbol {
                start: start as u32,
                len: len as u32,
                before: index.wrapping_sub(1),
                after: index + 1,
            });
            start += len;
        }
        merge.finish(out);
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.scores.capacity() * size_of::<u32>()
    }
}

/// Bits that compare as unsigned numbers the way the floats do.
fn ordered(score: f32) -> u32 {
    // Both zeros are the same score.
    let bits = (score + 0.0).to_bits();
    if bits >> 31 == 0 { bits | 1 << 31 } else { !bits }
}

/// `text` with its blanks spelt as the vocabulary spells them.
pub(super) fn escape_blanks(text: &[u8], space_before: bool) -> Vec<u8> {
    let blanks = text.iter().filter(|&&b| b == b' ').count() + usize::from(space_before);
    let mut escaped = Vec::with_capacity(text.len() + 2 * blanks);
    if space_before {
        escaped.extend_from_slice(BLANK);
    }
    for &byte in text {
        if byte == b' ' {
            escaped.extend_from_slice(BLANK);
        } else {
            escaped.push(byte);
        }
    }
    escaped
}

/// A part of the text; neighbours are indices, past either end when there is none. Merged into another, it is empty.
#[derive(Clone, Copy)]
struct Symbol {
    start: u32,
    len: u32,
    before: u32,
    after: u32,
}

impl Symbol {
    fn text<'a>(&self, text: &'a [u8]) -> &'a [u8] {
        &text[self.start as usize..(self.start + self.len) as usize]
    }
}

/// A pair that is a token: best score first, then leftmost. Its length tells whether it is still what it was.
type Pair = (u32, Reverse<u32>, u32);

struct Merge<'a> {
    spm: &'a Spm,
    vocab: &'a Vocab,
    text: &'a [u8],
    symbols: Vec<Symbol>,
    queue: BinaryHeap<Pair>,
}

impl Merge<'_> {
    fn pair(&self, left: u32) -> Option<Pair> {
        let a = self.symbols.get(left as usize)?;
        let b = self.symbols.get(a.after as usize)?;
        let len = a.len + b.len;
        let id = self.vocab.find(&self.text[a.start as usize..(a.start + len) as usize])?;
        Some((self.spm.scores[id as usize], Reverse(left), len))
    }

    /// Merges the symbols so far, appends their tokens, and begins anew.
    fn finish(&mut self, out: &mut Vec<u32>) {
        self.run();
        let mut index = 0;
        while let Some(symbol) = self.symbols.get(index) {
            index = symbol.after as usize;
            let text = symbol.text(self.text);
            match self.vocab.find(text) {
                Some(id) => out.push(id),
                None => {
                    out.extend(text.iter().filter_map(|&b| self.spm.byte_ids[usize::from(b)].or(self.spm.unknown)));
                }
            }
        }
        self.symbols.clear();
    }

    fn run(&mut self) {
        let mut pairs = std::mem::take(&mut self.queue).into_vec();
        pairs.extend((0..self.symbols.len() as u32).filter_map(|left| self.pair(left)));
        self.queue = BinaryHeap::from(pairs);
        while let Some((_, Reverse(index), len)) = self.queue.pop() {
            let left = self.symbols[index as usize];
            let Some(&right) = self.symbols.get(left.after as usize) else { continue };
            if left.len == 0 || left.len + right.len != len {
                continue;
            }
            self.symbols[left.after as usize].len = 0;
            self.symbols[index as usize].len = len;
            self.symbols[index as usize].after = right.after;
            if let Some(beyond) = self.symbols.get_mut(right.after as usize) {
                beyond.before = index;
            }
            if (left.before as usize) < self.symbols.len() {
                self.queue.extend(self.pair(left.before));
            }
            self.queue.extend(self.pair(index));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_order_as_scores_do() {
        let scores = [f32::NEG_INFINITY, -1e9, -2.5, -1.0, -0.0, 0.5, 3.0, f32::INFINITY];
        for pair in scores.windows(2) {
            assert!(ordered(pair[0]) < ordered(pair[1]), "{pair:?}");
        }
        assert_eq!(ordered(0.0), ordered(-0.0));
    }
}
