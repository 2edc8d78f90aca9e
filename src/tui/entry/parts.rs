//! Cuts an entry's text into parts that are laid out one by one, so that no step of scrolling and no token pays for more
//! than a few of them, however long a message is.
//!
//! Not responsible for how a part looks (`lines`) or for when it is laid out (`transcript`).

use std::ops::Range;

use crate::tui::markdown::{self, Block, Fence};

/// What a part holds about: short blocks are put together up to this.
const PART_BYTES: usize = 4 << 10;
/// A single block longer than this is cut at the end of a line, or of a word.
const BLOCK_BYTES: usize = 16 << 10;

/// A stretch of an entry; ranges are bytes of the entry's text.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    /// Who speaks, and the title of what was thought.
    Head,
    /// Text as it is.
    Plain(Range<usize>),
    /// What was thought.
    Thought(Range<usize>),
    /// Blocks of Markdown, `code` fenced ones of this entry before them; the first of an answer has no gap before it.
    Blocks { range: Range<usize>, code: usize, first: bool },
    /// Lines of a long fenced block, of which `code` come before it. The part that `begins` it has the tag.
    Code { lines: Range<usize>, language: Range<usize>, indent: usize, code: usize, begins: bool, first: bool },
    /// A note of the program's own.
    Note,
    /// What stands under it.
    Foot,
}

/// A long fenced block that goes on in the next part.
#[derive(Clone, Debug)]
struct OpenCode {
    fence: Fence,
    language: Range<usize>,
    begins: bool,
}

/// An answer cut so far. What is added to the text changes only parts from `stable` on.
#[derive(Clone, Debug, Default)]
pub struct Cuts {
    pub parts: Vec<Part>,
    stable: usize,
    /// Bytes of the text in the stable parts.
    at: usize,
    code: usize,
    open: Option<OpenCode>,
    /// A block stands before `at`.
    any: bool,
    /// Where the answer begins, once that is known.
    answer_at: Option<usize>,
}

/// Text as it is, in parts of whole lines where lines allow it.
pub fn plain(text: &str, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut at = range.start;
    let mut first = true;
    std::iter::from_fn(move || {
        // An empty text is one part too: it has a line.
        if at >= range.end && !std::mem::take(&mut first) {
            return None;
        }
        first = false;
        let end = at + window(&text[at..range.end], PART_BYTES).len();
        Some(std::mem::replace(&mut at, end)..end)
    })
}

/// The beginning of `text` of about `bytes`: whole lines, else whole words, else whole characters.
fn window(text: &str, bytes: usize) -> &str {
    if text.len() <= bytes {
        return text;
    }
    let most = (0..=bytes).rev().find_map(|end| text.get(..end)).unwrap_or(text);
    let at = most.rfind('\n').or_else(|| most.rfind(' ')).map_or(most.len(), |at| at + 1);
    &text[..at]
}

impl Cuts {
    /// Of a text that is shown as it is.
    pub fn plain(text: &str) -> Self {
        let mut parts = vec![Part::Head];
        parts.extend(plain(text, 0..text.len()).map(Part::Plain));
        parts.push(Part::Foot);
        Self { parts, ..Self::default() }
    }

    pub fn note() -> Self {
        Self { parts: vec![Part::Note], ..Self::default() }
    }

    /// Goes on with an answer: `thought` is what the model thought before it and whether that is over.
    pub fn go_on(&mut self, text: &str, thought: Option<(Range<usize>, bool)>, answer_at: usize) {
        let over = thought.as_ref().is_none_or(|t| t.1);
        if !over || self.answer_at != Some(answer_at) {
            *self = Self { at: answer_at, answer_at: over.then_some(answer_at), ..Self::default() };
            self.parts.push(Part::Head);
            if let Some((thought, _)) = thought {
                self.parts.extend(plain(text, thought).map(Part::Thought));
            }
            self.stable = self.parts.len();
        }
        self.parts.truncate(self.stable);
        while self.next(text) {}
        self.parts.push(Part::Foot);
    }

    /// Cuts off the next part; `false` where the text ends, whose last part is not stable.
    fn next(&mut self, text: &str) -> bool {
        if self.at >= text.len() {
            return false;
        }
        match self.open.clone() {
            Some(open) => self.next_of_code(text, open),
            None => self.next_blocks(text),
        }
    }

    fn next_blocks(&mut self, text: &str) -> bool {
        let start = self.at;
        let mut end = start;
        let mut code = self.code;
        let mut any = self.any;
        while end < text.len() {
            let part = window(&text[end..], BLOCK_BYTES);
            let whole = end + part.len() == text.len();
            let Some(piece) = markdown::first_block(part) else { break };
            let cut = !piece.closed && !whole;
            if end > start && (piece.end + end - start > PART_BYTES || cut) {
                break;
            }
            if cut && let Block::Code { .. } = piece.block {
                return self.begin_code(text, part);
            }
            any |= !matches!(piece.block, Block::Prose(prose) if prose.trim().is_empty());
            code += usize::from(matches!(piece.block, Block::Code { .. }));
            end += piece.end;
            if !piece.closed && whole {
                self.parts.push(Part::Blocks { range: start..end, code: self.code, first: !self.any });
                return false;
            }
            if cut {
                break;
            }
        }
        self.parts.push(Part::Blocks { range: start..end, code: self.code, first: !self.any });
        if end == text.len() && end - start < PART_BYTES {
            return false;
        }
        (self.at, self.code, self.any) = (end, code, any);
        self.stable = self.parts.len();
        true
    }

    /// A fenced block that is longer than a part may be: its fence is taken, its lines come part by part.
    fn begin_code(&mut self, text: &str, part: &str) -> bool {
        let Some(line) = part.split_inclusive('\n').next() else { return false };
        let Some(fence) = markdown::fence(line.trim_end_matches(['\n', '\r'])) else { return false };
        let language = markdown::language(line);
        let from = self.at + line.find(language).unwrap_or(0);
        self.at += line.len();
        self.open = Some(OpenCode { fence, language: from..from + language.len(), begins: true });
        self.next(text)
    }

    fn next_of_code(&mut self, text: &str, mut open: OpenCode) -> bool {
        let part = window(&text[self.at..], PART_BYTES);
        let mut end = self.at;
        let mut closing = None;
        for line in part.split_inclusive('\n') {
            if open.fence.is_closed_by(line) {
                closing = Some(line.len());
                break;
            }
            end += line.len();
        }
        let (lines, language, indent) = (self.at..end, open.language.clone(), open.fence.indent);
        let first = open.begins && !self.any;
        self.parts.push(Part::Code { lines, language, indent, code: self.code, begins: open.begins, first });
        let at = end + closing.unwrap_or(0);
        if at == text.len() && (part.len() < PART_BYTES / 2 || !text.ends_with('\n')) {
            return false;
        }
        self.at = at;
        self.any = true;
        if closing.is_some() {
            self.code += 1;
            self.open = None;
        } else {
            open.begins = false;
            self.open = Some(open);
        }
        self.stable = self.parts.len();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Vec<Part> {
        let mut cuts = Cuts::default();
        cuts.go_on(text, None, 0);
        cuts.parts
    }

    fn range(part: &Part) -> Option<Range<usize>> {
        match part {
            Part::Plain(range) | Part::Thought(range) | Part::Blocks { range, .. } => Some(range.clone()),
            Part::Code { lines, .. } => Some(lines.clone()),
            _ => None,
        }
    }

    fn long() -> String {
        let code = "    let x = 1;\n".repeat(4000);
        let prose = "Words that go on and on. ".repeat(3000);
        let list = "- one\n- two\n\nmore\n\n```\nshort\n```\n".repeat(500);
        format!("Begin.\n\n```rust\n{code}```\n{list}\n{prose}\n\n~~~\n{code}")
    }

    #[test]
    fn no_part_is_long() {
        let text = long();
        for part in answer(&text).iter().chain(&Cuts::plain(&text).parts).filter_map(range) {
            assert!(part.len() <= BLOCK_BYTES + PART_BYTES, "{part:?}");
        }
    }

    #[test]
    fn plain_text_is_kept_to_the_last_byte() {
        let text = long();
        let parts: String = plain(&text, 0..text.len()).map(|range| &text[range]).collect();
        assert_eq!(parts, text);
        assert_eq!(plain("", 0..0).count(), 1);
    }

    #[test]
    fn a_text_that_grows_is_cut_as_one_that_is_there_at_once() {
        let text = long();
        let mut cuts = Cuts::default();
        let mut at = 0;
        while at < text.len() {
            at = text.len().min(at + 1_733);
            cuts.go_on(&text[..at], None, 0);
        }
        // Where parts end depends on when they were cut; what they hold does not.
        let held = |parts: &[Part]| -> String { parts.iter().filter_map(range).map(|r| &text[r]).collect() };
        assert_eq!(held(&cuts.parts), held(&answer(&text)));
        let codes = |parts: &[Part]| parts.iter().filter(|p| matches!(p, Part::Code { begins: true, .. })).count();
        assert_eq!(codes(&cuts.parts), 2);
    }

    #[test]
    fn code_blocks_count_on_from_part_to_part() {
        let text = long();
        let last = answer(&text).into_iter().rev().find_map(|part| match part {
            Part::Code { code, .. } => Some(code),
            _ => None,
        });
        assert_eq!(last, Some(501));
    }
}
