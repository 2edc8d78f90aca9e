//! Byte-level BPE: pieces of text merged pair by pair, in the order of the merges.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::TokenizerError;
use super::pretokenize::{Char, Family, Spelling, decode, push_utf8, sequence_len, split};
use super::table::{Seed, SlotTable};
use super::vocab::{MAX_IDS, Vocab, byte_token};
use crate::gguf::Gguf;

/// The merges of a vocabulary.
#[derive(Debug)]
pub(super) struct Bpe {
    family: Family,
    /// Left, right and merged id of each merge, 21 bits each; the index is its rank.
    merges: Vec<u64>,
    /// Ranks by pair.
    ranks: SlotTable,
    seed: Seed,
    /// The id of each byte, or of each spelling of a byte.
    byte_ids: [u32; 256],
    /// What merges name and is no token; its ids follow those of the vocabulary.
    nameless: Nameless,
}

impl std::fmt::Debug for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Family").field("spelling", &self.spelling).finish_non_exhaustive()
    }
}

/// What no merge knows.
const NONE: u32 = (1 << 21) - 1;

#[derive(Debug, Default)]
struct Nameless {
    ids: HashMap<Box<[u8]>, u32>,
}

impl Nameless {
    fn find(&self, text: &[u8]) -> Option<u32> {
        if self.ids.is_empty() { None } else { self.ids.get(text).copied() }
    }
}

fn pack(left: u32, right: u32, merged: u32) -> u64 {
    u64::from(left) << 42 | u64::from(right) << 21 | u64::from(merged)
}

/// The pair and what it merges to.
fn unpack(merge: u64) -> ((u32, u32), u32) {
    let id = |shift: u32| (merge >> shift) as u32 & NONE;
    ((id(42), id(21)), id(0))
}

impl Bpe {
    pub(super) fn from_gguf(gguf: &Gguf, vocab: &Vocab, family: Family) -> Result<Self, TokenizerError> {
        const MERGES: &str = "tokenizer.ggml.merges";
        let lines = gguf.strings(MERGES)?.ok_or(TokenizerError::Missing { key: MERGES })?;
        if lines.len() > MAX_IDS {
            return Err(TokenizerError::TooMany(lines.len()));
        }
        let mut bpe = Self {
            family,
            merges: Vec::with_capacity(lines.len()),
            ranks: SlotTable::new(lines.len(), lines.len() as u32),
            seed: vocab.seed(),
            byte_ids: [NONE; 256],
            nameless: Nameless::default(),
        };
        let mut merged = Vec::new();
        for line in lines.iter() {
            // The left side may itself begin with a blank.
            let cut = line.iter().skip(1).position(|&b| b == b' ').map(|at| at + 1);
            let Some((left, right)) = cut.map(|at| (&line[..at], &line[at + 1..])) else { continue };
            merged.clear();
            merged.extend_from_slice(left);
            merged.extend_from_slice(right);
            let [left, right, merged] =
                [left, right, &merged].map(|text| bpe.intern(vocab, text).ok_or(TokenizerError::TooMany(MAX_IDS + 1)));
            bpe.add(left?, right?, merged?);
        }
        for byte in 0..=u8::MAX {
            let mut spelt = Vec::new();
            push_spelt(byte, &mut spelt);
            bpe.byte_ids[usize::from(byte)] = bpe.find(vocab, &spelt);
        }
        Ok(bpe)
    }

    fn add(&mut self, left: u32, right: u32, merged: u32) {
        if self.rank(left, right).is_none() {
            let rank = self.merges.len() as u32;
            self.merges.push(pack(left, right, merged));
            self.ranks.insert(self.seed.pair(left, right), rank);
        }
    }

    /// The id of a token or of what is none.
    fn intern(&mut self, vocab: &Vocab, text: &[u8]) -> Option<u32> {
        vocab.find(text).or_else(|| self.nameless.find(text)).or_else(|| {
            let id = vocab.len() + self.nameless.ids.len();
            (id < MAX_IDS).then(|| {
                self.nameless.ids.insert(text.into(), id as u32);
                id as u32
            })
        })
    }

    fn find(&self, vocab: &Vocab, text: &[u8]) -> u32 {
        vocab.find(text).or_else(|| self.nameless.find(text)).unwrap_or(NONE)
    }

    fn rank(&self, left: u32, right: u32) -> Option<u32> {
        self.ranks.find(self.seed.pair(left, right), |rank| unpack(self.merges[rank as usize]).0 == (left, right))
    }

    /// Whether blanks are spelt U+2581.
    pub(super) fn escapes_blanks(&self) -> bool {
        self.family.spelling != Spelling::Bytes
    }

    /// Appends the tokens of a stretch of text.
    pub(super) fn encode(&self, vocab: &Vocab, text: &[u8], out: &mut Vec<u32>) {
        let escaped;
        let text = if self.escapes_blanks() {
            escaped = super::spm::escape_blanks(text, false);
            &escaped
        } else {
            text
        };
        let chars = decode(text);
        let mut work = Work::default();
        let mut start = 0;
        for end in split(&chars, self.family.stages) {
            work.piece.clear();
            chars[start as usize..end as usize].iter().for_each(|&c| push_utf8(c, &mut work.piece));
            self.encode_piece(vocab, &mut work, out);
            start = end;
        }
    }

    fn encode_piece(&self, vocab: &Vocab, work: &mut Work, out: &mut Vec<u32>) {
        let bytes = self.family.spelling == Spelling::Bytes;
        let whole = self.family.ignore_merges
            || (self.family.spelling == Spelling::Gemma4 && work.piece.iter().all(|&b| b == b'\n'));
        if whole {
            let token = if bytes {
                work.spelt.clear();
                work.piece.iter().for_each(|&b| push_spelt(b, &mut work.spelt));
                vocab.find(&work.spelt)
            } else {
                vocab.find(&work.piece)
            };
            if let Some(token) = token {
                out.push(token);
                return;
            }
        }
        work.symbols.clear();
        let mut at = 0;
        while let Some(&first) = work.piece.get(at) {
            let end = if bytes { at + 1 } else { (at + sequence_len(first)).min(work.piece.len()) };
            let id = if bytes { self.byte_ids[usize::from(first)] } else { self.find(vocab, &work.piece[at..end]) };
            let index = work.symbols.len() as u32;
            work.symbols.push(Symbol { id, start: at as u32, before: index.wrapping_sub(1), after: index + 1 });
            at = end;
        }
        self.merge(work);
        let mut index = 0;
        while let Some(symbol) = work.symbols.get(index) {
            index = symbol.after as usize;
            if (symbol.id as usize) < vocab.len() {
                out.push(symbol.id);
                continue;
            }
            let end = work.symbols.get(index).map_or(work.piece.len(), |next| next.start as usize);
            for &byte in &work.piece[symbol.start as usize..end] {
                self.push_byte(vocab, byte, out);
            }
        }
    }

    /// Merges the pair of lowest rank, the leftmost among equals, as long as there is one.
    fn merge(&self, work: &mut Work) {
        let Work { symbols, queue, .. } = work;
        let mut pending = std::mem::take(queue).into_vec();
        pending.clear();
        for (index, pair) in symbols.windows(2).enumerate() {
            pending.extend(self.rank(pair[0].id, pair[1].id).map(|rank| Reverse((rank, index as u32))));
        }
        *queue = BinaryHeap::from(pending);
        while let Some(Reverse((rank, index))) = queue.pop() {
            let ((left, right), merged) = unpack(self.merges[rank as usize]);
            let Symbol { id, before, after, .. } = symbols[index as usize];
            let Some(&next) = symbols.get(after as usize) else { continue };
            // One of the two may have been merged with something else since.
            if id != left || next.id != right {
                continue;
            }
            symbols[after as usize].id = NONE;
            symbols[index as usize].id = merged;
            symbols[index as usize].after = next.after;
            if let Some(beyond) = symbols.get_mut(next.after as usize) {
                beyond.before = index;
                let right = beyond.id;
                queue.extend(self.rank(merged, right).map(|rank| Reverse((rank, index))));
            }
            if let Some(left) = symbols.get(before as usize) {
                queue.extend(self.rank(left.id, merged).map(|rank| Reverse((rank, before))));
            }
        }
    }

    /// What is no token goes byte by byte, where the vocabulary has tokens for bytes as they are.
    fn push_byte(&self, vocab: &Vocab, byte: u8, out: &mut Vec<u32>) {
        if self.family.spelling == Spelling::Bytes {
            let mut spelt = Vec::new();
            push_spelt(byte, &mut spelt);
            out.extend(spelt.iter().filter_map(|&b| vocab.find(&[b])));
        } else {
            out.extend(vocab.find(&byte_token(byte)));
        }
    }

    pub(super) fn heap_bytes(&self) -> usize {
        let nameless: usize = self.nameless.ids.keys().map(|text| text.len() + 32).sum();
        self.merges.capacity() * size_of::<u64>() + self.ranks.heap_bytes() + nameless
    }
}

/// One symbol of a piece; neighbours are indices, past either end when there is none.
#[derive(Clone, Copy, Debug)]
struct Symbol {
    id: u32,
    /// Where its text starts in the piece.
    start: u32,
    before: u32,
    after: u32,
}

/// Buffers that are used again for every piece.
#[derive(Default)]
struct Work {
    piece: Vec<u8>,
    spelt: Vec<u8>,
    symbols: Vec<Symbol>,
    /// Rank of a pair and the index of its left symbol.
    queue: BinaryHeap<Reverse<(u32, u32)>>,
}

/// Whether GPT-2 spells this byte as the character of the same number.
fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

/// Appends the character by which GPT-2's vocabulary spells a byte: itself if it is printable, else one from U+0100 on.
pub(super) fn push_spelt(byte: u8, out: &mut Vec<u8>) {
    let code_point = if is_printable(byte) {
        u32::from(byte)
    } else {
        256 + match byte {
            0..=0x20 => u32::from(byte),
            0x7F..=0xA0 => u32::from(byte) - 0x7F + 0x21,
            _ => 0x43,
        }
    };
    push_utf8(Char::bare(code_point), out);
}

/// The byte that a character of such a spelling stands for.
pub(super) fn byte_of_spelling(c: char) -> Option<u8> {
    match c as u32 {
        code_point @ 0..=0xFF => Some(code_point as u8).filter(|&b| is_printable(b)),
        code_point @ 0x100..=0x120 => Some((code_point - 0x100) as u8),
        code_point @ 0x121..=0x142 => Some((code_point - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_a_spelling_of_its_own_that_leads_back_to_it() {
        let mut seen = std::collections::HashSet::new();
        for byte in 0..=u8::MAX {
            let mut spelt = Vec::new();
            push_spelt(byte, &mut spelt);
            let text = String::from_utf8(spelt).unwrap();
            assert_eq!(text.chars().map(byte_of_spelling).collect::<Vec<_>>(), [Some(byte)]);
            assert!(seen.insert(text));
        }
    }

    #[test]
    fn the_blank_and_the_line_break_are_spelt_as_in_gpt2() {
        let spelt = |byte| {
            let mut out = Vec::new();
            push_spelt(byte, &mut out);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            (spelt(b' '), spelt(b'\n'), spelt(b'a'), spelt(0xAD)),
            ("Ġ".into(), "Ċ".into(), "a".into(), "Ń".into())
        );
    }

    #[test]
    fn a_merge_comes_back_as_it_was_packed() {
        for merge in [(0, 1, 2), (NONE, NONE - 1, NONE - 2), (5, NONE, 0)] {
            let ((left, right), merged) = unpack(pack(merge.0, merge.1, merge.2));
            assert_eq!((left, right, merged), merge);
        }
    }
}
