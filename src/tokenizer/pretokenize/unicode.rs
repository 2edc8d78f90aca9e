//! Characters with the properties that pre-tokenizers ask for.

use super::unicode_table::RUNS;

/// What a pre-tokenizer's `\p{..}` distinguishes; separators, controls and unassigned code points are `Other`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Class {
    Other = 0,
    Number = 1,
    Letter = 2,
    Mark = 3,
    Punctuation = 4,
    Symbol = 5,
}

/// One character of a text; [`Char::END`], which has no property at all, is what one sees past the end of a piece.
///
/// Bits 0 to 20 are the code point, 21 to 23 the class, 24 says whitespace, 25 says that there is a character.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Char(u32);

const CLASS_SHIFT: u32 = 21;
const SPACE: u32 = 1 << 24;
const PRESENT: u32 = 1 << 25;

impl Char {
    pub(super) const END: Char = Char(0);

    pub(super) fn new(code_point: u32) -> Self {
        let class = if code_point < 128 { ASCII[code_point as usize] } else { class_of(code_point) };
        let space = if is_space(code_point) { SPACE } else { 0 };
        Self(code_point | class << CLASS_SHIFT | space | PRESENT)
    }

    /// A character whose properties do not matter.
    pub(crate) fn bare(code_point: u32) -> Self {
        Self(code_point | PRESENT)
    }

    pub(super) fn exists(self) -> bool {
        self.0 != 0
    }

    pub(crate) fn code_point(self) -> u32 {
        self.0 & ((1 << CLASS_SHIFT) - 1)
    }

    /// Whether this is the ASCII character `c`.
    pub(super) fn is(self, c: char) -> bool {
        self.exists() && self.code_point() == c as u32
    }

    pub(super) fn is_ascii_in(self, first: char, last: char) -> bool {
        self.exists() && (first as u32..=last as u32).contains(&self.code_point())
    }

    /// Whether the code point is in one of the (inclusive) ranges. Whitespace outside ASCII is in none: llama.cpp takes
    /// it for a vertical tab where it compares code points.
    pub(super) fn in_ranges(self, ranges: &[(u32, u32)]) -> bool {
        let code_point = self.code_point();
        if !self.exists() || (self.is_space() && code_point > 127) {
            return false;
        }
        ranges.iter().any(|&(first, last)| (first..=last).contains(&code_point))
    }

    fn class(self) -> u32 {
        self.0 >> CLASS_SHIFT & 7
    }

    /// `\p{N}`
    pub(super) fn is_number(self) -> bool {
        self.class() == Class::Number as u32
    }

    /// `\p{L}`
    pub(super) fn is_letter(self) -> bool {
        self.class() == Class::Letter as u32
    }

    /// `\p{M}`
    pub(super) fn is_mark(self) -> bool {
        self.class() == Class::Mark as u32
    }

    /// `\p{P}`
    pub(super) fn is_punctuation(self) -> bool {
        self.class() == Class::Punctuation as u32
    }

    /// `\p{S}`
    pub(super) fn is_symbol(self) -> bool {
        self.class() == Class::Symbol as u32
    }

    /// `\s`
    pub(super) fn is_space(self) -> bool {
        self.0 & SPACE != 0
    }

    /// `[\r\n]`
    pub(super) fn is_newline(self) -> bool {
        self.is('\n') || self.is('\r')
    }

    /// Han as llama.cpp's splitter for Kimi K2 lists it.
    pub(super) fn is_han(self) -> bool {
        const HAN: &[(u32, u32)] = &[
            (0x4E00, 0x9FFF),
            (0x3400, 0x4DBF),
            (0x20000, 0x2A6DF),
            (0x2A700, 0x2B73F),
            (0x2B740, 0x2B81F),
            (0x2B820, 0x2CEAF),
            (0x2CEB0, 0x2EBEF),
            (0xF900, 0xFAFF),
            (0x2F800, 0x2FA1F),
        ];
        self.in_ranges(HAN)
    }
}

static ASCII: [u32; 128] = {
    let mut classes = [0; 128];
    let mut i = 0;
    while i < 128 {
        classes[i] = match i as u8 {
            b'0'..=b'9' => Class::Number,
            b'A'..=b'Z' | b'a'..=b'z' => Class::Letter,
            b'$' | b'+' | b'<'..=b'>' | b'^' | b'`' | b'|' | b'~' => Class::Symbol,
            b'!'..=b'/' | b':'..=b'@' | b'['..=b'_' | b'{'..=b'}' => Class::Punctuation,
            _ => Class::Other,
        } as u32;
        i += 1;
    }
    classes
};

fn class_of(code_point: u32) -> u32 {
    let after = RUNS.partition_point(|&run| run >> 3 <= code_point);
    after.checked_sub(1).map_or(0, |i| RUNS[i] & 7)
}

/// Unicode's `White_Space`.
fn is_space(code_point: u32) -> bool {
    matches!(code_point, 0x09..=0x0D | 0x20 | 0x85 | 0xA0 | 0x1680 | 0x2000..=0x200A | 0x2028 | 0x2029 | 0x202F | 0x205F | 0x3000)
}

/// The characters of `bytes`; each byte that belongs to none counts as U+FFFD. As lenient as llama.cpp: surrogates and
/// forms that are longer than need be are taken as they are.
pub(crate) fn decode(bytes: &[u8]) -> Vec<Char> {
    let mut chars = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(&lead) = rest.first() {
        let len = sequence_len(lead);
        let tail = rest.get(1..len).filter(|tail| tail.iter().all(|&b| b & 0xC0 == 0x80));
        let code_point = match (lead, tail) {
            (0..=0x7F, _) => Some(u32::from(lead)),
            (0xC0..=0xF7, Some(tail)) => {
                let head = u32::from(lead) & (0x7F >> len);
                Some(tail.iter().fold(head, |cp, &b| cp << 6 | u32::from(b & 0x3F))).filter(|&cp| cp <= 0x10_FFFF)
            }
            _ => None,
        };
        chars.push(Char::new(code_point.unwrap_or(0xFFFD)));
        rest = &rest[if code_point.is_some() { len } else { 1 }..];
    }
    chars
}

/// Bytes of a UTF-8 sequence that starts with `lead`; 1 for a byte that starts none.
pub(crate) fn sequence_len(lead: u8) -> usize {
    match lead {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xFF => 4,
        _ => 1,
    }
}

/// Appends the UTF-8 of `c`; surrogates, which [`decode`] lets through, as the three bytes they came as.
pub(crate) fn push_utf8(c: Char, out: &mut Vec<u8>) {
    let cp = c.code_point();
    let tail = |shift: u32| (0x80 | (cp >> shift & 0x3F)) as u8;
    match cp {
        0..=0x7F => out.push(cp as u8),
        0x80..=0x7FF => out.extend([0xC0 | (cp >> 6) as u8, tail(0)]),
        0x800..=0xFFFF => out.extend([0xE0 | (cp >> 12) as u8, tail(6), tail(0)]),
        _ => out.extend([0xF0 | (cp >> 18) as u8, tail(12), tail(6), tail(0)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_those_of_unicode() {
        for (c, class) in [
            ('a', Class::Letter),
            ('É', Class::Letter),
            ('漢', Class::Letter),
            ('ª', Class::Letter),
            ('7', Class::Number),
            ('½', Class::Number),
            ('٣', Class::Number),
            ('\u{301}', Class::Mark),
            ('\u{940}', Class::Mark),
            ('_', Class::Punctuation),
            ('\\', Class::Punctuation),
            ('。', Class::Punctuation),
            ('€', Class::Symbol),
            ('~', Class::Symbol),
            ('🚀', Class::Symbol),
            ('\u{200D}', Class::Other),
            ('\n', Class::Other),
            ('\u{10FFFF}', Class::Other),
        ] {
            assert_eq!(Char::new(c as u32).class(), class as u32, "{c:?}");
        }
    }

    #[test]
    fn whitespace_is_that_of_unicode() {
        for cp in 0..=0x10_FFFF {
            if let Some(c) = char::from_u32(cp) {
                assert_eq!(Char::new(cp).is_space(), c.is_whitespace(), "{cp:#x}");
            }
        }
    }

    #[test]
    fn the_ascii_table_agrees_with_the_table_of_all_characters() {
        for cp in 0..128 {
            assert_eq!(ASCII[cp as usize], class_of(cp), "{:?}", cp as u8 as char);
        }
    }

    #[test]
    fn text_comes_back_from_its_characters() {
        let text = "aé漢🚀\u{7FF}\u{800}\u{FFFF}\u{10000}\u{10FFFF}";
        let mut bytes = Vec::new();
        decode(text.as_bytes()).into_iter().for_each(|c| push_utf8(c, &mut bytes));
        assert_eq!(bytes, text.as_bytes());
    }

    #[test]
    fn every_byte_that_is_no_character_counts_as_a_replacement_character() {
        let code_points = |bytes: &[u8]| decode(bytes).into_iter().map(Char::code_point).collect::<Vec<_>>();
        assert_eq!(code_points(b"a\xFFb"), [0x61, 0xFFFD, 0x62]);
        assert_eq!(code_points(b"\xE6\xBC"), [0xFFFD, 0xFFFD]);
        assert_eq!(code_points(b"\xE6A"), [0xFFFD, 0x41]);
        assert_eq!(code_points(b"\x80"), [0xFFFD]);
        assert_eq!(code_points(b"\xF4\x90\x80\x80"), [0xFFFD; 4]);
    }
}
