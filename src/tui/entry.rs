//! One entry of the transcript: a message or a note of the program, the parts it is cut into and, where they are laid out,
//! their lines.

mod lines;
mod parts;

use ratatui::text::Line;

use super::glyphs::Glyphs;
use super::markdown;
use crate::engine::protocol::Role;
use crate::session::ChatMessage;
use parts::{Cuts, Part};

pub use lines::{Page, summary};

/// What the program itself says in the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoteKind {
    Notice,
    Error,
    /// Kept as it is: lists and tables made by the program.
    Listing,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Message(ChatMessage),
    Note(NoteKind, String),
}

/// The lines of a part; how many there are is remembered when they are forgotten.
#[derive(Clone, Debug, Default)]
struct Slot {
    lines: Option<Vec<Line<'static>>>,
    count: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub body: Body,
    /// Code blocks in all entries before this one.
    pub code_before: usize,
    /// The answer is still being written.
    pub live: bool,
    cuts: Cuts,
    slots: Vec<Slot>,
    /// The parts are those of the text as it is now.
    fresh: bool,
}

/// Opening and closing marks of what a model thinks before it answers.
const THINK: (&str, &str) = ("<think>", "</think>");

/// Splits an answer into what was thought (with whether that is over) and where the answer begins.
fn thinking(text: &str) -> Option<(&str, bool, usize)> {
    let start = text.len() - text.trim_start().len();
    let inner = start + THINK.0.len();
    if !text[start..].starts_with(THINK.0) {
        return None;
    }
    match text[inner..].find(THINK.1) {
        Some(length) => Some((&text[inner..inner + length], true, inner + length + THINK.1.len())),
        None => Some((&text[inner..], false, text.len())),
    }
}

/// The answer without what was thought before it.
pub fn answer_only(text: &str) -> &str {
    match thinking(text) {
        Some((_, _, at)) => text[at..].trim_start(),
        None => text,
    }
}

impl Entry {
    fn new(body: Body) -> Self {
        Self { body, code_before: 0, live: false, cuts: Cuts::default(), slots: Vec::new(), fresh: false }
    }

    pub fn message(message: ChatMessage) -> Self {
        Self::new(Body::Message(message))
    }

    pub fn note(kind: NoteKind, text: impl Into<String>) -> Self {
        Self::new(Body::Note(kind, text.into()))
    }

    pub fn text(&self) -> &str {
        match &self.body {
            Body::Message(message) => &message.content,
            Body::Note(_, text) => text,
        }
    }

    pub fn as_message(&self) -> Option<&ChatMessage> {
        match &self.body {
            Body::Message(message) => Some(message),
            Body::Note(..) => None,
        }
    }

    fn is_answer(&self) -> bool {
        self.as_message().is_some_and(|m| m.role == Role::Assistant)
    }

    pub fn code_blocks(&self) -> usize {
        if self.is_answer() { markdown::count_code(answer_only(self.text())) } else { 0 }
    }

    /// Code block `number` of this answer, from 1.
    pub fn code_block(&self, number: usize) -> Option<String> {
        if !self.is_answer() {
            return None;
        }
        markdown::code_blocks(answer_only(self.text())).nth(number.checked_sub(1)?)
    }

    /// What was thought before this answer, and whether that is over.
    fn thought(&self) -> Option<(&str, bool)> {
        if !self.is_answer() {
            return None;
        }
        thinking(self.text()).map(|(thought, over, _)| (thought, over))
    }

    /// Whether a line of a part is the fold of what was thought.
    pub fn is_fold(&self, part: usize, line: usize) -> bool {
        part == 0 && line == 1 && self.thought().is_some_and(|(t, over)| !over || !t.trim().is_empty())
    }

    /// The number in the tag of a code block, if that is what the line is.
    pub fn code_tag(&self, part: usize, line: usize, glyphs: &Glyphs) -> Option<usize> {
        let text = self.lines(part)?.get(line)?.to_string();
        let tag = text.trim().strip_prefix(glyphs.code_bar)?.trim().strip_suffix(']')?;
        let (language, number) = tag.rsplit_once('[')?;
        let number = number.parse().ok()?;
        let ours = self.code_before + 1..=self.code_before + self.code_blocks();
        (!language.trim().contains(' ') && ours.contains(&number)).then_some(number)
    }

    /// The text grew, or its state changed.
    pub fn touch(&mut self) {
        self.fresh = false;
    }

    /// The look changed, or the text altogether.
    pub fn forget_layout(&mut self) {
        self.slots.iter_mut().for_each(|slot| *slot = Slot::default());
    }

    /// The text is another one.
    pub fn replace(&mut self, body: Body) {
        *self = Self { code_before: self.code_before, ..Self::new(body) };
    }

    /// Brings the parts up to date with the text and returns how many there are: one at least.
    pub fn parts(&mut self) -> usize {
        if !self.fresh {
            self.cut();
        }
        self.slots.len()
    }

    fn cut(&mut self) {
        let mut cuts = std::mem::take(&mut self.cuts);
        let before = cuts.parts.clone();
        match &self.body {
            Body::Note(..) => cuts = Cuts::note(),
            Body::Message(m) if m.role == Role::Assistant => {
                let text = m.content.as_str();
                let thought = thinking(text).map(|(thought, over, _)| {
                    let inner = thought.trim();
                    let from = inner.as_ptr() as usize - text.as_ptr() as usize;
                    (from..from + inner.len(), over)
                });
                let answer_at = thinking(text).map_or(0, |t| t.2);
                cuts.go_on(text, thought, answer_at);
            }
            Body::Message(m) => cuts = Cuts::plain(&m.content),
        }
        self.slots.resize_with(cuts.parts.len(), Slot::default);
        for (i, part) in cuts.parts.iter().enumerate() {
            // What is said over and under the text may be other words now.
            if matches!(part, Part::Head | Part::Note | Part::Foot) || before.get(i) != Some(part) {
                self.slots[i] = Slot::default();
            }
        }
        self.cuts = cuts;
        self.fresh = true;
    }

    /// Parts as they were last cut.
    pub fn known_parts(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of the text in a part; all of it where the part has words of its own.
    pub fn text_of(&self, part: usize) -> &str {
        let text = self.text();
        match self.cuts.parts.get(part) {
            Some(Part::Plain(range) | Part::Thought(range) | Part::Blocks { range, .. }) => &text[range.clone()],
            Some(Part::Code { lines, .. }) => &text[lines.clone()],
            _ => text,
        }
    }

    /// Lays a part out where that is still to be done, and returns how many lines it has.
    pub fn lay_out(&mut self, part: usize, page: Page) -> usize {
        self.parts();
        let Some(what) = self.cuts.parts.get(part) else { return 0 };
        if let Some(lines) = &self.slots[part].lines {
            return lines.len();
        }
        let lines = lines::lay_out(self, what, page);
        let count = lines.len();
        self.slots[part] = Slot { lines: Some(lines), count: Some(count) };
        count
    }

    /// Lines of a part as they were last laid out.
    pub fn lines(&self, part: usize) -> Option<&[Line<'static>]> {
        self.slots.get(part)?.lines.as_deref()
    }

    /// How many lines a part has, where that is known.
    pub fn count(&self, part: usize) -> Option<usize> {
        self.slots.get(part)?.count
    }

    /// Forgets the lines of a part, not how many they are.
    pub fn forget_lines(&mut self, part: usize) {
        if let Some(slot) = self.slots.get_mut(part) {
            slot.lines = None;
        }
    }
}
