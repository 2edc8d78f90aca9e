//! The stages of pre-tokenization, each named for what it keeps together.

use super::unicode::Char;
use super::words::{Words, deepseek, gpt2, spark};
use super::{Cuts, at, run};

/// One cut of every piece; most stand for one regular expression, quoted beside them.
#[derive(Clone, Copy)]
pub(crate) enum Stage {
    /// `X+`
    Runs(fn(Char) -> bool),
    /// `\s?X+`
    SpacedRuns(fn(Char) -> bool),
    /// ` ?X+`
    BlankedRuns(fn(Char) -> bool),
    /// `X`
    Singles(fn(Char) -> bool),
    /// `A+|B+|..`
    Scripts(&'static [fn(Char) -> bool]),
    /// `\p{N}{1,3}`
    ThreeNumbers,
    /// `[0-9][0-9][0-9]`
    ThreeDigits,
    /// Numbers in groups of three, counted from their end; what stands before a number stays with its first group
    /// (`\d{1,3}(?=(?:\d{3})*\b)` as llama.cpp has it).
    GroupsFromTheEnd,
    /// `(?=(\d{3})+(?!\d))`
    Thousands,
    /// `\s+$`
    TrailingSpace,
    /// `<sentinel:[0-9]+>`
    Sentinels,
    /// `(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z`
    Images,
    /// `([\t\n]|    |  )`
    Indents,
    /// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
    Gpt2,
    /// The expression of DeepSeek V3, see [`deepseek`].
    DeepSeek,
    /// The expression of Spark, see [`spark`].
    Spark,
    /// The expressions that came with cl100k and after, see [`Words`].
    Words(Words),
}

impl Stage {
    pub(super) fn cut(&self, piece: &[Char], cuts: &mut Cuts<'_>) {
        let some = |len: usize| (len > 0).then_some(len);
        match *self {
            Stage::Runs(is) => cuts.around(piece, |rest| some(run(rest, 0, is))),
            Stage::SpacedRuns(is) => cuts.around(piece, |rest| some(after_one(rest, Char::is_space, is))),
            Stage::BlankedRuns(is) => cuts.around(piece, |rest| some(after_one(rest, |c| c.is(' '), is))),
            Stage::Singles(is) => cuts.around(piece, |rest| is(at(rest, 0)).then_some(1)),
            Stage::Scripts(scripts) => cuts.around(piece, |rest| scripts.iter().find_map(|&is| some(run(rest, 0, is)))),
            Stage::ThreeNumbers => cuts.around(piece, |rest| some(run(&rest[..rest.len().min(3)], 0, Char::is_number))),
            Stage::ThreeDigits => cuts.around(piece, |rest| {
                let three = rest.get(..3)?;
                three.iter().all(|c| c.is_ascii_in('0', '9')).then_some(3)
            }),
            Stage::GroupsFromTheEnd => groups_from_the_end(piece, cuts),
            Stage::Thousands => thousands(piece, cuts),
            Stage::TrailingSpace => cuts.at(piece.len() - piece.iter().rev().take_while(|c| c.is_space()).count()),
            Stage::Sentinels => cuts.around(piece, sentinel),
            Stage::Images => cuts.around(piece, image),
            Stage::Indents => cuts.around(piece, |rest| match run(rest, 0, |c| c.is(' ')) {
                0 => (at(rest, 0).is('\t') || at(rest, 0).is('\n')).then_some(1),
                1 => None,
                2 | 3 => Some(2),
                _ => Some(4),
            }),
            Stage::Gpt2 => cuts.around(piece, gpt2),
            Stage::DeepSeek => cuts.around(piece, deepseek),
            Stage::Spark => cuts.around(piece, spark),
            Stage::Words(ref words) => cuts.around(piece, |rest| words.matched(rest)),
        }
    }
}

/// `A?X+`
fn after_one(rest: &[Char], before: impl Fn(Char) -> bool, is: fn(Char) -> bool) -> usize {
    let skip = usize::from(before(at(rest, 0)) && is(at(rest, 1)));
    match run(rest, skip, is) {
        0 => 0,
        len => skip + len,
    }
}

fn groups_from_the_end(piece: &[Char], cuts: &mut Cuts<'_>) {
    let mut i = 0;
    while i < piece.len() {
        let numbers = run(piece, i, Char::is_number);
        let first = if numbers % 3 == 0 { 3 } else { numbers % 3 };
        for end in (first..=numbers).step_by(3) {
            cuts.at(i + end);
        }
        i += numbers.max(1);
    }
}

fn thousands(piece: &[Char], cuts: &mut Cuts<'_>) {
    let mut i = 0;
    while i < piece.len() {
        let digits = run(piece, i, |c| c.is_ascii_in('0', '9'));
        for start in (digits % 3..digits).step_by(3) {
            cuts.at(i + start);
        }
        i += digits.max(1);
    }
}

/// Whether `rest` starts with the ASCII text `text`.
fn starts_with(rest: &[Char], text: &str) -> bool {
    text.chars().enumerate().all(|(i, c)| at(rest, i).is(c))
}

fn sentinel(rest: &[Char]) -> Option<usize> {
    const OPEN: &str = "<sentinel:";
    let digits = if starts_with(rest, OPEN) { run(rest, OPEN.len(), |c| c.is_ascii_in('0', '9')) } else { 0 };
    (digits > 0 && at(rest, OPEN.len() + digits).is('>')).then_some(OPEN.len() + digits + 1)
}

fn image(rest: &[Char]) -> Option<usize> {
    const OPEN: &str = "IMGIMG";
    let letters = if starts_with(rest, OPEN) { run(rest, OPEN.len(), |c| c.is_ascii_in('A', 'I')) } else { 0 };
    ((1..=4).contains(&letters) && at(rest, OPEN.len() + letters).is('Z')).then_some(OPEN.len() + letters + 1)
}
