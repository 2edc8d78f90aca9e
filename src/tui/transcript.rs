//! What has been said, laid out for the screen: each part's lines are kept until its text or the width changes, and only
//! parts near the window are laid out at all.
//!
//! Not responsible for what is sent to the model (`conversation` in `app`), for how parts are cut and look (`entry`), or
//! for drawing (`view::chat`).

mod search;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use ratatui::text::Line;

use super::entry::{Body, Entry, NoteKind, Page};
use super::glyphs::Glyphs;
use super::markdown::Look;
use super::theme::Theme;

pub use search::find_in;

/// Beyond this many laid-out parts, those far from the window are forgotten.
const KEPT_LAYOUTS: usize = 192;
/// Text is laid out no wider than this: longer lines are hard to read.
const MAX_TEXT_COLUMNS: u16 = 112;

/// A line of a part of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    pub entry: usize,
    pub part: usize,
    pub line: usize,
}

/// What the window shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scroll {
    /// The end, whatever is added.
    Follow,
    /// This line at the top, whatever is added.
    Anchored(Position),
}

/// Entries with their layouts and the window on them.
pub struct Transcript {
    entries: Vec<Entry>,
    theme: Arc<Theme>,
    glyphs: Glyphs,
    columns: u16,
    rows: usize,
    scroll: Scroll,
    top: Position,
    /// The last part that could grow when the window left the end, and the lines from its beginning on: what came since
    /// is new.
    left_at: Position,
    new_lines: usize,
    laid_out: usize,
    pub unfold_thinking: bool,
    /// The text looked for; its occurrences are marked.
    pub find: Option<String>,
    /// The line found last.
    found: Option<Position>,
    /// The search went past the last place and began again.
    around: bool,
}

impl Transcript {
    pub fn new(theme: Arc<Theme>, glyphs: Glyphs) -> Self {
        Self {
            entries: Vec::new(),
            theme,
            glyphs,
            columns: 80,
            rows: 24,
            scroll: Scroll::Follow,
            top: Position::default(),
            left_at: Position::default(),
            new_lines: 0,
            laid_out: 0,
            unfold_thinking: false,
            find: None,
            found: None,
            around: false,
        }
    }

    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Adds an entry at the end.
    pub fn push(&mut self, mut entry: Entry) {
        entry.code_before = self.entries.last().map_or(0, |last| last.code_before + last.code_blocks());
        self.entries.push(entry);
    }

    /// Adds an entry before the last one, which is still being written; what the window shows stays.
    pub fn insert_before_last(&mut self, entry: Entry) {
        let Some(last) = self.entries.pop() else { return self.push(entry) };
        let moved = self.entries.len();
        self.push(entry);
        self.push(last);
        let anchored = match &mut self.scroll {
            Scroll::Anchored(at) => Some(at),
            Scroll::Follow => None,
        };
        for at in anchored.into_iter().chain([&mut self.left_at]).chain(self.found.as_mut()) {
            at.entry += usize::from(at.entry == moved);
        }
    }

    /// Replaces a note before the last entry that begins with `beginning`; `false` where there is none.
    pub fn replace_note_before_last(&mut self, beginning: &str, text: &str) -> bool {
        let at = self.entries.len().wrapping_sub(2);
        match self.entries.get_mut(at) {
            Some(entry) if matches!(&entry.body, Body::Note(NoteKind::Notice, note) if note.starts_with(beginning)) => {
                entry.replace(Body::Note(NoteKind::Notice, text.to_owned()));
                true
            }
            _ => false,
        }
    }

    /// Changes the last entry; it is laid out again as far as its text changed.
    pub fn change_last(&mut self, change: impl FnOnce(&mut Entry)) {
        if let Some(last) = self.entries.last_mut() {
            change(last);
            last.touch();
        }
    }

    /// Drops the entries from `length` on and returns them.
    pub fn truncate(&mut self, length: usize) -> Vec<Entry> {
        let cut = self.entries.split_off(length.min(self.entries.len()));
        self.scroll = Scroll::Follow;
        cut
    }

    /// Drops the last entry, wherever the window is.
    pub fn drop_last(&mut self) {
        self.entries.pop();
    }

    pub fn clear(&mut self) {
        self.truncate(0);
    }

    pub fn set_look(&mut self, theme: Arc<Theme>, glyphs: Glyphs) {
        self.theme = theme;
        self.glyphs = glyphs;
        self.forget_layouts();
    }

    /// Shows or folds what models think before they answer.
    pub fn set_unfold_thinking(&mut self, unfold: bool) {
        self.unfold_thinking = unfold;
        self.forget_layouts();
    }

    fn forget_layouts(&mut self) {
        self.entries.iter_mut().for_each(Entry::forget_layout);
        self.laid_out = 0;
    }

    fn page_of(&self) -> (Arc<Theme>, Glyphs, u16) {
        (self.theme.clone(), self.glyphs, self.columns.min(MAX_TEXT_COLUMNS))
    }

    /// Lays a part out where it is not, and returns how many lines it has.
    fn lines(&mut self, at: Position) -> usize {
        let (theme, glyphs, columns) = self.page_of();
        let Some(entry) = self.entries.get_mut(at.entry) else { return 0 };
        if at.part >= entry.parts() {
            return 0;
        }
        self.laid_out += usize::from(entry.lines(at.part).is_none());
        let look = Look { theme: &theme, glyphs: &glyphs };
        entry.lay_out(at.part, Page { columns, look, unfold: self.unfold_thinking })
    }

    /// How many lines a part has, laid out only where that is not known.
    fn count(&mut self, at: Position) -> usize {
        let Some(entry) = self.entries.get_mut(at.entry) else { return 0 };
        entry.parts();
        match entry.count(at.part) {
            Some(count) => count,
            None => self.lines(at),
        }
    }

    fn parts(&mut self, entry: usize) -> usize {
        self.entries.get_mut(entry).map_or(0, Entry::parts)
    }

    /// The beginning of the part before.
    fn previous(&mut self, at: Position) -> Option<Position> {
        if at.part > 0 {
            return Some(Position { part: at.part - 1, line: 0, ..at });
        }
        let entry = at.entry.checked_sub(1)?;
        Some(Position { entry, part: self.parts(entry).saturating_sub(1), line: 0 })
    }

    /// The beginning of the part after; behind the last, of an entry that is not there.
    fn next(&mut self, at: Position) -> Position {
        if at.part + 1 < self.parts(at.entry) {
            Position { part: at.part + 1, line: 0, ..at }
        } else {
            Position { entry: at.entry + 1, part: 0, line: 0 }
        }
    }

    /// Sets the window's size and lays out what it shows.
    pub fn prepare(&mut self, columns: u16, rows: u16) {
        if columns != self.columns {
            self.rescale(columns);
        }
        self.rows = usize::from(rows);
        let end = self.back_from_end(self.rows);
        self.top = match self.scroll {
            Scroll::Follow => end,
            Scroll::Anchored(at) => self.normal(at),
        };
        if self.top >= end {
            self.scroll = Scroll::Follow;
            self.top = end;
        }
        let mut at = self.top;
        let mut rows = 0;
        while rows < self.rows && at.entry < self.entries.len() {
            rows += self.lines(at).saturating_sub(at.line);
            at = self.next(at);
        }
        self.new_lines = if self.is_following() { 0 } else { self.count_from(self.left_at) };
        self.forget_distant(at);
    }

    /// A position whose line its part has: a part that grew may have been cut in two.
    fn normal(&mut self, mut at: Position) -> Position {
        loop {
            let here = self.count(at);
            if at.line < here || (at.line == 0 && here == 0) {
                return at;
            }
            if at.part + 1 >= self.parts(at.entry) {
                return Position { line: here.saturating_sub(1), ..at };
            }
            at = Position { part: at.part + 1, line: at.line - here, ..at };
        }
    }

    /// Lines from the beginning of a part to the end, less the position's own.
    fn count_from(&mut self, from: Position) -> usize {
        let mut at = Position { line: 0, ..from };
        let mut lines = 0;
        while at.entry < self.entries.len() {
            lines += self.count(at);
            at = self.next(at);
        }
        lines.saturating_sub(from.line)
    }

    /// Keeps the same place of the anchored part at the top when lines become longer or shorter.
    fn rescale(&mut self, columns: u16) {
        let anchor = match self.scroll {
            Scroll::Anchored(at) => Some((at, self.count(at).max(1))),
            Scroll::Follow => None,
        };
        // What was there already and takes more lines now is not new.
        let start = Position { line: 0, ..self.left_at };
        let (before, new) = (self.count_from(start).max(1), self.new_lines);
        self.columns = columns;
        self.forget_layouts();
        if anchor.is_some() {
            let after = self.count_from(start);
            self.left_at.line = after - (new * after / before).min(after);
        }
        if let Some((at, before)) = anchor {
            let after = self.count(at);
            self.scroll = Scroll::Anchored(Position { line: at.line * after / before, ..at });
        }
    }

    /// The position `lines` above the end.
    fn back_from_end(&mut self, lines: usize) -> Position {
        let mut left = lines;
        let mut at = Position { entry: self.entries.len(), ..Position::default() };
        while let Some(before) = self.previous(at) {
            let here = self.count(before);
            if here >= left {
                return Position { line: here - left, ..before };
            }
            left -= here;
            at = before;
        }
        Position::default()
    }

    /// Forgets lines that are neither near the window, which ends before `end`, nor among the last.
    fn forget_distant(&mut self, end: Position) {
        if self.laid_out <= KEPT_LAYOUTS {
            return;
        }
        let (mut first, mut last) = (self.top, end);
        for _ in 0..KEPT_LAYOUTS / 4 {
            first = self.previous(first).unwrap_or(first);
            last = self.next(last);
        }
        let mut tail = Position { entry: self.entries.len(), ..Position::default() };
        for _ in 0..=self.rows {
            tail = self.previous(tail).unwrap_or(tail);
        }
        let mut kept = 0;
        for (number, entry) in self.entries.iter_mut().enumerate() {
            for part in 0..entry.known_parts() {
                let at = Position { entry: number, part, line: 0 };
                if (first.entry, first.part) <= (number, part) && at < last || at >= tail {
                    kept += usize::from(entry.lines(part).is_some());
                } else {
                    entry.forget_lines(part);
                }
            }
        }
        self.laid_out = kept;
    }

    /// The lines in the window, after [`Transcript::prepare`].
    pub fn window(&self) -> impl Iterator<Item = &Line<'static>> {
        self.laid_out_from(self.top).map(|(_, line)| line).take(self.rows)
    }

    fn laid_out_from(&self, first: Position) -> impl Iterator<Item = (Position, &Line<'static>)> {
        let entries = self.entries.iter().enumerate().skip(first.entry);
        let parts = entries.flat_map(|(entry, e)| (0..e.known_parts()).map(move |part| (entry, part, e)));
        let parts = parts.skip(first.part);
        let lines = parts.flat_map(|(entry, part, e)| {
            let lines = e.lines(part).unwrap_or_default().iter().enumerate();
            lines.map(move |(line, text)| (Position { entry, part, line }, text))
        });
        lines.skip(first.line)
    }

    /// The entry, part and line in a row of the window.
    pub fn at_row(&self, row: usize) -> Option<Position> {
        self.laid_out_from(self.top).nth(row).map(|(at, _)| at)
    }

    pub fn is_following(&self) -> bool {
        self.scroll == Scroll::Follow
    }

    /// Lines that came since the window left the end; 0 while it follows.
    pub fn new_lines(&self) -> usize {
        self.new_lines
    }

    fn anchor(&mut self, at: Position) {
        if self.is_following() {
            let last = self.entries.len().saturating_sub(1);
            // The last part is what stands under the text.
            let grows = Position { entry: last, part: self.parts(last).saturating_sub(2), line: 0 };
            self.left_at = Position { line: self.count_from(grows), ..grows };
        }
        self.scroll = Scroll::Anchored(at);
        let (columns, rows) = (self.columns, u16::try_from(self.rows).unwrap_or(u16::MAX));
        self.prepare(columns, rows);
    }

    /// Moves the window towards the beginning.
    pub fn up(&mut self, lines: usize) {
        let mut at = self.top;
        let mut left = lines;
        while at.line < left {
            left -= at.line;
            at.line = 0;
            let Some(before) = self.previous(at) else { break };
            at = Position { line: self.count(before), ..before };
        }
        at.line = at.line.saturating_sub(left);
        self.anchor(at);
    }

    /// Moves the window towards the end; once there, it follows.
    pub fn down(&mut self, lines: usize) {
        if self.is_following() {
            return;
        }
        let mut at = self.top;
        let mut left = lines;
        while at.entry < self.entries.len() {
            let here = self.count(at).saturating_sub(at.line);
            if left < here {
                at.line += left;
                break;
            }
            left -= here;
            at = self.next(at);
        }
        self.anchor(at);
    }

    pub fn page(&self) -> usize {
        self.rows.saturating_sub(2).max(1)
    }

    pub fn show_start(&mut self) {
        self.anchor(Position::default());
    }

    /// Back to the end, to stay there.
    pub fn follow(&mut self) {
        self.scroll = Scroll::Follow;
        self.new_lines = 0;
    }

    /// The text of fenced code block `number`, counted from 1 over all answers.
    pub fn code_block(&self, number: usize) -> Option<String> {
        let entry = self.entries.iter().rev().find(|e| e.code_before < number)?;
        entry.code_block(number - entry.code_before)
    }
}
