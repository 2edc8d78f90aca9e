//! The expressions that cut text into words, numbers, punctuation and blanks.
//!
//! Each function gives the length of the match at the start of `rest`, tried in the order of the expression's
//! alternatives.

use super::unicode::Char;
use super::{at, run};

/// What the family of expressions that began with cl100k varies in. In full, for Llama 3:
/// `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
#[derive(Clone, Copy)]
pub(crate) struct Words {
    /// Whether `'s` and the like are pieces of their own wherever they stand.
    pub(super) contractions: bool,
    pub(super) word: Word,
    /// Whether a word takes a following `'s` or the like with it.
    pub(super) suffix: bool,
    /// The longest run of numbers that is one piece.
    pub(super) numbers: usize,
    pub(super) tail: Tail,
    pub(super) blanks: Blanks,
}

/// What counts as a word; one `[^\r\n\p{L}\p{N}]` may stand before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// `\p{L}+`
    Letters,
    /// `[\p{L}\p{M}]+`, and marks are no punctuation
    LettersAndMarks,
    /// `[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+` and the like where llama.cpp does not tell case apart
    Caseless,
    /// `U*W+|U+W*`: capitals, then small letters; letters outside ASCII are both
    Cased { marks: bool },
    /// `(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+`: words with single blanks between them
    Phrases,
    /// Runs of Han are pieces of their own, words are of other letters
    NotHan,
}

/// What follows punctuation into its piece.
#[derive(Clone, Copy)]
pub(super) enum Tail {
    Nothing,
    /// `[\r\n]*`
    Newlines,
    /// `[\r\n/]*`
    NewlinesAndSlashes,
    /// `[\r\n/]?`
    OneNewlineOrSlash,
}

/// How blanks without a line break after them are cut.
#[derive(Clone, Copy)]
pub(super) enum Blanks {
    /// `\s+(?!\S)|\s+`
    AllButOne,
    /// `\s{512}(?!\S)|\s{256}(?!\S)|..|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`
    Halving,
}

impl Words {
    pub(super) const LLAMA3: Words = Words {
        contractions: true,
        word: Word::Letters,
        suffix: false,
        numbers: 3,
        tail: Tail::Newlines,
        blanks: Blanks::AllButOne,
    };
    pub(super) const QWEN2: Words = Words { numbers: 1, ..Words::LLAMA3 };
    pub(super) const GPT4O: Words = Words {
        contractions: false,
        word: Word::Cased { marks: false },
        suffix: true,
        tail: Tail::NewlinesAndSlashes,
        ..Words::LLAMA3
    };

    pub(super) fn matched(&self, rest: &[Char]) -> Option<usize> {
        if self.contractions
            && let Some(len) = contraction(rest, true)
        {
            return Some(len);
        }
        let first = at(rest, 0);
        if self.word == Word::NotHan && first.is_han() {
            return Some(run(rest, 0, Char::is_han));
        }
        if let Some(len) = self.word(rest) {
            return Some(if self.suffix { len + contraction(&rest[len..], true).unwrap_or(0) } else { len });
        }
        if first.is_number() {
            // No further than this piece goes, or a long number would be looked at again for each.
            return Some(run(&rest[..rest.len().min(self.numbers)], 0, Char::is_number));
        }
        let marks = self.word == Word::LettersAndMarks;
        let other = |c: Char| c.exists() && !(c.is_space() || c.is_letter() || c.is_number() || (marks && c.is_mark()));
        if let Some(len) = after_blank(rest, other) {
            return Some(len + self.tail.len(&rest[len..]));
        }
        blank_lines(rest).or_else(|| match self.blanks {
            Blanks::AllButOne => blanks(rest),
            Blanks::Halving => halving_blanks(rest),
        })
    }

    fn word(&self, rest: &[Char]) -> Option<usize> {
        match self.word {
            Word::Letters => prefixed(rest, Char::is_letter),
            Word::LettersAndMarks | Word::Caseless => prefixed(rest, letter_or_mark),
            Word::NotHan => prefixed(rest, |c| c.is_letter() && !c.is_han()),
            Word::Phrases => phrase(rest),
            Word::Cased { marks: false } => cased(rest, Char::is_letter),
            Word::Cased { marks: true } => cased(rest, letter_or_mark),
        }
    }
}

impl Tail {
    fn len(self, rest: &[Char]) -> usize {
        let slash = |c: Char| c.is_newline() || c.is('/');
        match self {
            Tail::Nothing => 0,
            Tail::Newlines => run(rest, 0, Char::is_newline),
            Tail::NewlinesAndSlashes => run(rest, 0, slash),
            Tail::OneNewlineOrSlash => usize::from(slash(at(rest, 0))),
        }
    }
}

fn letter_or_mark(c: Char) -> bool {
    c.is_letter() || c.is_mark()
}

/// `[^\r\n\p{L}\p{N}]`
fn is_prefix(c: Char) -> bool {
    c.exists() && !(c.is_newline() || c.is_letter() || c.is_number())
}

/// `[^\r\n\p{L}\p{N}]?X+`
fn prefixed(rest: &[Char], is: fn(Char) -> bool) -> Option<usize> {
    let skip = usize::from(is_prefix(at(rest, 0)) && is(at(rest, 1)));
    match run(rest, skip, is) {
        0 => None,
        len => Some(skip + len),
    }
}

/// ` ?X+`
fn after_blank(rest: &[Char], is: impl Fn(Char) -> bool) -> Option<usize> {
    let skip = usize::from(at(rest, 0).is(' ') && is(at(rest, 1)));
    match run(rest, skip, is) {
        0 => None,
        len => Some(skip + len),
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d`
fn contraction(rest: &[Char], any_case: bool) -> Option<usize> {
    let is = |i: usize, small: char| at(rest, i).is(small) || (any_case && at(rest, i).is(small.to_ascii_uppercase()));
    if !at(rest, 0).is('\'') {
        None
    } else if ['s', 't', 'm', 'd'].iter().any(|&c| is(1, c)) {
        Some(2)
    } else if [('r', 'e'), ('v', 'e'), ('l', 'l')].iter().any(|&(a, b)| is(1, a) && is(2, b)) {
        Some(3)
    } else {
        None
    }
}

/// `[^\r\n\p{L}\p{N}]?U*W+|[^\r\n\p{L}\p{N}]?U+W*`, where U are letters but `a-z` and W letters but `A-Z`, found as a
/// backtracking matcher finds it.
fn cased(rest: &[Char], letter: fn(Char) -> bool) -> Option<usize> {
    let upper = |c: Char| letter(c) && !c.is_ascii_in('a', 'z');
    let lower = |c: Char| letter(c) && !c.is_ascii_in('A', 'Z');
    let starts = if is_prefix(at(rest, 0)) { [Some(1), Some(0)] } else { [Some(0), None] };
    let starts = starts.into_iter().flatten();
    starts
        .clone()
        .find_map(|start| {
            let capitals = start + run(rest, start, upper);
            match run(rest, capitals, lower) {
                // The capitals give back up to the last one that may be a small letter too.
                0 => rest.get(start..capitals)?.iter().rposition(|&c| lower(c)).map(|last| start + last + 1),
                small => Some(capitals + small),
            }
        })
        .or_else(|| {
            starts.map(|start| (start, run(rest, start, upper))).find(|u| u.1 > 0).map(|(start, len)| start + len)
        })
}

/// `[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+`
fn phrase(rest: &[Char]) -> Option<usize> {
    let start = usize::from(is_prefix(at(rest, 0)) && at(rest, 1).is_letter());
    if !at(rest, start).is_letter() {
        return None;
    }
    let mut len = start;
    loop {
        if at(rest, len).is_letter() {
            len += 1;
        } else if at(rest, len).is(' ') && at(rest, len + 1).is_letter() {
            len += 2;
        } else {
            return Some(len);
        }
        len += run(rest, len, Char::is_mark);
    }
}

/// `\s*[\r\n]+`
fn blank_lines(rest: &[Char]) -> Option<usize> {
    let spaces = run(rest, 0, Char::is_space);
    rest[..spaces].iter().rposition(|c| c.is_newline()).map(|last| last + 1)
}

/// `\s+(?!\S)|\s+`: the last blank before a word is left to the word.
fn blanks(rest: &[Char]) -> Option<usize> {
    match run(rest, 0, Char::is_space) {
        0 => None,
        spaces if spaces > 1 && spaces < rest.len() => Some(spaces - 1),
        spaces => Some(spaces),
    }
}

fn halving_blanks(rest: &[Char]) -> Option<usize> {
    let spaces = run(rest, 0, Char::is_space);
    let free = if spaces < rest.len() { spaces.saturating_sub(1) } else { spaces };
    match spaces {
        0 => None,
        _ => Some([512, 256, 128, 64, 32, 16, 8, 4, 2].into_iter().find(|&n| n <= free).unwrap_or(1)),
    }
}

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
pub(super) fn gpt2(rest: &[Char]) -> Option<usize> {
    let other = |c: Char| c.exists() && !(c.is_space() || c.is_letter() || c.is_number());
    contraction(rest, false)
        .or_else(|| after_blank(rest, Char::is_letter))
        .or_else(|| after_blank(rest, Char::is_number))
        .or_else(|| after_blank(rest, other))
        .or_else(|| blanks(rest))
}

/// `[ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+`: what DeepSeek V3 and those after
/// it have in common.
fn deepseek_word(rest: &[Char]) -> Option<usize> {
    let sign = |c: Char| c.is_punctuation() || c.is_symbol();
    let first = at(rest, 0);
    if sign(first) && first.code_point() < 128 {
        let ascii = run(rest, 1, |c| c.is_ascii_in('a', 'z') || c.is_ascii_in('A', 'Z'));
        if ascii > 0 {
            return Some(1 + ascii);
        }
    }
    let prefix = first.exists() && !(first.is_newline() || first.is_letter() || sign(first));
    let skip = usize::from(prefix && letter_or_mark(at(rest, 1)));
    match run(rest, skip, letter_or_mark) {
        0 => None,
        len => Some(skip + len),
    }
}

/// `[ASCII punctuation][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
pub(super) fn deepseek(rest: &[Char]) -> Option<usize> {
    deepseek_word(rest)
        .or_else(|| {
            let signs = after_blank(rest, |c| c.is_punctuation() || c.is_symbol())?;
            Some(signs + run(rest, signs, Char::is_newline))
        })
        .or_else(|| blank_lines(rest))
        .or_else(|| blanks(rest))
}

/// As [`deepseek`], but a line break is a piece of its own: `..| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+`
pub(super) fn spark(rest: &[Char]) -> Option<usize> {
    deepseek_word(rest)
        .or_else(|| after_blank(rest, |c| c.is_punctuation() || c.is_symbol()))
        .or_else(|| at(rest, 0).is_newline().then_some(1))
        .or_else(|| blanks(rest))
}
