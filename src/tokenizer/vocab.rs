//! The tokens of a vocabulary: their spelling, their kind, and which token a spelling is.

use super::TokenizerError;
use super::table::{Seed, SlotTable};
use crate::gguf::{Gguf, StringArena};

/// More tokens than any vocabulary has; ids and what merges need beside them fit 21 bits.
pub(super) const MAX_IDS: usize = (1 << 21) - 2;

/// What a token is: one of the kinds that GGUF knows, and what models change about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes(u8);

impl Attributes {
    pub(super) const NORMAL: Self = Self(1);
    pub(super) const UNKNOWN: Self = Self(2);
    pub(super) const CONTROL: Self = Self(4);
    pub(super) const USER_DEFINED: Self = Self(8);
    pub(super) const UNUSED: Self = Self(16);
    pub(super) const BYTE: Self = Self(32);
    /// Blanks before the token belong to it.
    pub(super) const LSTRIP: Self = Self(64);
    /// Blanks after the token belong to it.
    pub(super) const RSTRIP: Self = Self(128);

    /// From `tokenizer.ggml.token_type`.
    fn from_gguf(token_type: i32) -> Self {
        match token_type {
            1 => Self::NORMAL,
            2 => Self::UNKNOWN,
            3 => Self::CONTROL,
            4 => Self::USER_DEFINED,
            5 => Self::UNUSED,
            6 => Self::BYTE,
            _ => Self(0),
        }
    }

    pub(super) fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }

    pub(super) const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

#[derive(Debug)]
pub(super) struct Vocab {
    texts: StringArena,
    attributes: Vec<Attributes>,
    table: SlotTable,
    seed: Seed,
    /// Bytes of the longest token.
    longest: usize,
}

impl Vocab {
    pub(super) fn from_gguf(gguf: &Gguf) -> Result<Self, TokenizerError> {
        const TOKENS: &str = "tokenizer.ggml.tokens";
        const TYPES: &str = "tokenizer.ggml.token_type";
        let texts = gguf.strings(TOKENS)?.filter(|t| !t.is_empty()).ok_or(TokenizerError::Missing { key: TOKENS })?;
        if texts.len() > MAX_IDS {
            return Err(TokenizerError::TooMany(texts.len()));
        }
        let attributes: Vec<_> = match gguf.i32s(TYPES)? {
            Some(types) if types.len() < texts.len() => {
                return Err(TokenizerError::Length { key: TYPES, found: types.len(), tokens: texts.len() });
            }
            Some(types) => types[..texts.len()].iter().map(|&t| Attributes::from_gguf(t)).collect(),
            None => vec![Attributes::NORMAL; texts.len()],
        };
        let mut table = SlotTable::new(texts.len(), texts.len() as u32);
        let seed = Seed::random();
        let mut longest = 0;
        for (id, text) in texts.iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            longest = longest.max(text.len());
            let hash = seed.bytes(text);
            if table.find(hash, |other| texts.get(other as usize) == text).is_none() {
                table.insert(hash, id as u32);
            }
        }
        Ok(Self { texts, attributes, table, seed, longest })
    }

    /// Bytes of the longest token.
    pub(super) fn longest(&self) -> usize {
        self.longest
    }

    pub(super) fn len(&self) -> usize {
        self.attributes.len()
    }

    pub(super) fn seed(&self) -> Seed {
        self.seed
    }

    /// The spelling of a token; empty for an id that is none.
    pub(super) fn text(&self, id: u32) -> &[u8] {
        self.texts.get(id as usize)
    }

    /// The token with this spelling.
    pub(super) fn find(&self, text: &[u8]) -> Option<u32> {
        if text.len() > self.longest {
            return None;
        }
        self.find_hashed(self.seed.bytes(text), text)
    }

    /// As [`Vocab::find`] when the finished hash of `text` is known.
    pub(super) fn find_hashed(&self, hash: u64, text: &[u8]) -> Option<u32> {
        self.table.find(hash, |id| self.text(id) == text)
    }

    pub(super) fn attributes(&self, id: u32) -> Attributes {
        self.attributes.get(id as usize).copied().unwrap_or(Attributes(0))
    }

    pub(super) fn set_attributes(&mut self, id: u32, attributes: Attributes) {
        if let Some(slot) = self.attributes.get_mut(id as usize) {
            *slot = attributes;
        }
    }

    /// The tokens that have any of these attributes.
    pub(super) fn having(&self, any: Attributes) -> impl Iterator<Item = u32> {
        (0..self.len() as u32).filter(move |&id| self.attributes(id).any(any))
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.texts.heap_bytes() + self.attributes.capacity() + self.table.heap_bytes()
    }
}

/// The spelling of a byte in vocabularies that have a token for each: `<0x0A>`.
pub(super) fn byte_token(byte: u8) -> [u8; 6] {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    [b'<', b'0', b'x', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)], b'>']
}

/// The byte that a token of type byte stands for.
pub(super) fn byte_of_token(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}
