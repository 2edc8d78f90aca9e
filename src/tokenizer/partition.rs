//! Cutting text at the tokens that are taken whole, before anything else looks at it.

use std::ops::Range;

use super::vocab::{Attributes, Vocab};

/// A stretch of text, or a token that stands in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fragment {
    Text(Range<usize>),
    Token(u32),
}

/// Where tokens that are taken whole can begin.
#[derive(Debug)]
pub(super) struct Partition {
    /// For each first byte, the lengths of the tokens that begin with it, ascending.
    lengths: Vec<(u8, Vec<u32>)>,
    /// Index into `lengths` for each byte.
    by_byte: [Option<u8>; 256],
}

const WHOLE: Attributes = Attributes::CONTROL.or(Attributes::UNKNOWN).or(Attributes::USER_DEFINED);
/// Those that need `parse_special`.
const SPECIAL: Attributes = Attributes::CONTROL.or(Attributes::UNKNOWN);

impl Partition {
    pub(super) fn new(vocab: &Vocab) -> Self {
        let mut lengths: Vec<(u8, Vec<u32>)> = Vec::new();
        let mut by_byte = [None; 256];
        for id in vocab.having(WHOLE) {
            let text = vocab.text(id);
            let Some(&first) = text.first() else { continue };
            let index = *by_byte[usize::from(first)].get_or_insert_with(|| {
                lengths.push((first, Vec::new()));
                (lengths.len() - 1) as u8
            });
            let of_byte = &mut lengths[usize::from(index)].1;
            if let Err(at) = of_byte.binary_search(&(text.len() as u32)) {
                of_byte.insert(at, text.len() as u32);
            }
        }
        Self { lengths, by_byte }
    }

    /// Cuts `text`: longer tokens before shorter, each from left to right.
    pub(super) fn cut(&self, vocab: &Vocab, text: &[u8], parse_special: bool) -> Vec<Fragment> {
        let present = self.present(vocab, text, parse_special);
        let mut covered: Vec<(Range<usize>, u32)> = Vec::new();
        let mut taken = vec![false; if present.is_empty() { 0 } else { text.len() }];
        for id in present {
            let token = vocab.text(id);
            let attributes = vocab.attributes(id);
            let (first, last) = (token[0], token.len() - 1);
            let mut at = 0;
            while let Some(skip) = text.get(at..).and_then(|rest| rest.iter().position(|&b| b == first)) {
                at += skip;
                // What is taken already was taken by tokens at least as long, so it cannot lie within.
                let free = |i: usize| taken.get(i) == Some(&false);
                if !(free(at) && free(at + last) && text[at..].starts_with(token)) {
                    at += 1;
                    continue;
                }
                let blank = |i: usize| free(i) && is_c_space(text[i]);
                let (mut start, mut end) = (at, at + token.len());
                while attributes.any(Attributes::LSTRIP) && start > 0 && blank(start - 1) {
                    start -= 1;
                }
                while attributes.any(Attributes::RSTRIP) && blank(end) {
                    end += 1;
                }
                taken[start..end].fill(true);
                covered.push((start..end, id));
                at = end;
            }
        }
        covered.sort_unstable_by_key(|(range, _)| range.start);
        let mut fragments = Vec::with_capacity(covered.len() * 2 + 1);
        let mut from = 0;
        for (range, id) in covered {
            if from < range.start {
                fragments.push(Fragment::Text(from..range.start));
            }
            fragments.push(Fragment::Token(id));
            from = range.end;
        }
        if from < text.len() {
            fragments.push(Fragment::Text(from..text.len()));
        }
        fragments
    }

    /// The tokens that occur in `text` at all, in the order in which they are to be tried.
    fn present(&self, vocab: &Vocab, text: &[u8], parse_special: bool) -> Vec<u32> {
        let seed = vocab.seed();
        let mut present: Vec<u32> = Vec::new();
        for (start, &first) in text.iter().enumerate() {
            let Some(index) = self.by_byte[usize::from(first)] else { continue };
            let (mut hash, mut end) = (seed.start(), start);
            for &len in &self.lengths[usize::from(index)].1 {
                let Some(more) = text.get(end..start + len as usize) else { break };
                hash = more.iter().fold(hash, |hash, &b| seed.step(hash, b));
                end = start + len as usize;
                let Some(id) = vocab.find_hashed(seed.finish(hash), &text[start..end]) else { continue };
                let attributes = vocab.attributes(id);
                let wanted = attributes.any(WHOLE) && (parse_special || !attributes.any(SPECIAL));
                if wanted && let Err(at) = present.binary_search(&id) {
                    present.insert(at, id);
                }
            }
        }
        present.sort_by_key(|&id| std::cmp::Reverse(vocab.text(id).len()));
        present
    }
}

/// `isspace` of C.
fn is_c_space(byte: u8) -> bool {
    matches!(byte, 9..=13 | b' ')
}
