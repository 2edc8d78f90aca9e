//! What has been said, laid out for the screen: each entry's lines are kept until its text or the width changes, and
//! only entries near the window are laid out at all.
//!
//! Not responsible for what is sent to the model (`conversation` in `app`) or for drawing (`view::transcript`).

use std::sync::Arc;

use ratatui::text::Line;

use super::entry::{Body, Entry, NoteKind};
use super::glyphs::Glyphs;
use super::theme::Theme;

/// Beyond this many laid-out entries, those far from the window are forgotten.
const KEPT_LAYOUTS: usize = 192;
/// Text is laid out no wider than this: longer lines are hard to read.
const MAX_TEXT_COLUMNS: u16 = 112;

/// A line of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Position {
    pub entry: usize,
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
    /// Entries and lines of the last one when the window left the end: what came since is new.
    left_at: Position,
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

    /// Adds an entry before the last one, which is still being written.
    pub fn insert_before_last(&mut self, entry: Entry) {
        let Some(last) = self.entries.pop() else { return self.push(entry) };
        self.push(entry);
        self.push(last);
    }

    /// Replaces a note before the last entry that begins with `beginning`; `false` where there is none.
    pub fn replace_note_before_last(&mut self, beginning: &str, text: &str) -> bool {
        let at = self.entries.len().wrapping_sub(2);
        match self.entries.get_mut(at) {
            Some(entry) if matches!(&entry.body, Body::Note(NoteKind::Notice, note) if note.starts_with(beginning)) => {
                entry.body = Body::Note(NoteKind::Notice, text.to_owned());
                entry.forget_layout();
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

    fn lines(&mut self, entry: usize) -> usize {
        let Some(e) = self.entries.get_mut(entry) else { return 0 };
        if e.lines().is_none() {
            self.laid_out += 1;
        }
        e.lay_out(self.columns.min(MAX_TEXT_COLUMNS), &self.theme, &self.glyphs, self.unfold_thinking)
    }

    /// Sets the window's size and lays out what it shows.
    pub fn prepare(&mut self, columns: u16, rows: u16) {
        if columns != self.columns {
            self.rescale(columns);
        }
        self.rows = usize::from(rows);
        match self.scroll {
            Scroll::Follow => self.top = self.back_from_end(self.rows),
            Scroll::Anchored(at) => {
                let end = self.back_from_end(self.rows);
                if at >= end {
                    self.scroll = Scroll::Follow;
                    self.top = end;
                } else {
                    self.top = Position { line: at.line.min(self.lines(at.entry).saturating_sub(1)), ..at };
                    let mut rows = 0;
                    let mut entry = at.entry;
                    while rows < self.rows + at.line && entry < self.entries.len() {
                        rows += self.lines(entry);
                        entry += 1;
                    }
                }
            }
        }
        self.forget_distant();
    }

    /// Keeps the same part of the anchored entry at the top when lines become longer or shorter.
    fn rescale(&mut self, columns: u16) {
        let anchor = match self.scroll {
            Scroll::Anchored(at) => Some((at, self.lines(at.entry).max(1))),
            Scroll::Follow => None,
        };
        self.columns = columns;
        self.forget_layouts();
        if let Some((at, before)) = anchor {
            let after = self.lines(at.entry);
            self.scroll = Scroll::Anchored(Position { line: at.line * after / before, ..at });
        }
    }

    /// The position `lines` above the end.
    fn back_from_end(&mut self, lines: usize) -> Position {
        let mut left = lines;
        for entry in (0..self.entries.len()).rev() {
            let here = self.lines(entry);
            if here >= left {
                return Position { entry, line: here - left };
            }
            left -= here;
        }
        Position::default()
    }

    fn forget_distant(&mut self) {
        if self.laid_out <= KEPT_LAYOUTS {
            return;
        }
        let near = self.top.entry.saturating_sub(KEPT_LAYOUTS / 4)..self.top.entry + self.rows + KEPT_LAYOUTS / 4;
        let tail = self.entries.len().saturating_sub(self.rows + 1);
        let mut kept = 0;
        for (i, entry) in self.entries.iter_mut().enumerate() {
            if near.contains(&i) || i >= tail {
                kept += usize::from(entry.lines().is_some());
            } else {
                entry.forget_layout();
            }
        }
        self.laid_out = kept;
    }

    /// The lines in the window, after [`Transcript::prepare`].
    pub fn window(&self) -> impl Iterator<Item = &Line<'static>> {
        let first = self.top;
        self.entries[first.entry.min(self.entries.len())..]
            .iter()
            .enumerate()
            .flat_map(move |(i, entry)| {
                entry.lines().unwrap_or_default().iter().skip(if i == 0 { first.line } else { 0 })
            })
            .take(self.rows)
    }

    /// The entry and line in a row of the window.
    pub fn at_row(&self, row: usize) -> Option<Position> {
        let mut left = self.top.line + row;
        for (entry, e) in self.entries.iter().enumerate().skip(self.top.entry) {
            let here = e.lines().map_or(0, <[_]>::len);
            if left < here {
                return Some(Position { entry, line: left });
            }
            left -= here;
        }
        None
    }

    pub fn is_following(&self) -> bool {
        self.scroll == Scroll::Follow
    }

    /// Lines that came since the window left the end; 0 while it follows.
    pub fn new_lines(&self) -> usize {
        if self.is_following() {
            return 0;
        }
        let lines = |e: &Entry| e.lines().map_or(0, <[_]>::len);
        let since = self.entries.get(self.left_at.entry).map_or(0, |e| lines(e).saturating_sub(self.left_at.line));
        since + self.entries.iter().skip(self.left_at.entry + 1).map(lines).sum::<usize>()
    }

    fn anchor(&mut self, at: Position) {
        if self.is_following() {
            let last = self.entries.len().saturating_sub(1);
            self.left_at = Position { entry: last, line: self.lines(last) };
        }
        self.scroll = Scroll::Anchored(at);
        let (columns, rows) = (self.columns, u16::try_from(self.rows).unwrap_or(u16::MAX));
        self.prepare(columns, rows);
    }

    /// Moves the window towards the beginning.
    pub fn up(&mut self, lines: usize) {
        let mut at = self.top;
        let mut left = lines;
        loop {
            if at.line >= left {
                at.line -= left;
                break;
            }
            left -= at.line;
            if at.entry == 0 {
                at.line = 0;
                break;
            }
            at.entry -= 1;
            at.line = self.lines(at.entry);
        }
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
            let here = self.lines(at.entry) - at.line;
            if left < here {
                at.line += left;
                break;
            }
            left -= here;
            at = Position { entry: at.entry + 1, line: 0 };
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
    }

    /// Brings the next line with the text looked for into the window, from its top on (or before it). `false` when
    /// there is none.
    pub fn find_next(&mut self, forward: bool) -> bool {
        let Some(wanted) = self.find.clone().filter(|w| !w.is_empty()) else { return false };
        let third = self.rows / 3;
        let count = self.entries.len();
        let from = self.found_line();
        for step in 0..=count {
            let entry = if forward { from.entry + step } else { from.entry + count - step } % count.max(1);
            if !self.entries.get(entry).is_some_and(|e| contains(e.text(), &wanted)) {
                continue;
            }
            self.lines(entry);
            let Some(lines) = self.entries[entry].lines() else { continue };
            let mut matching =
                lines.iter().enumerate().filter(|(_, l)| contains(&l.to_string(), &wanted)).map(|(i, _)| i);
            let line = match (step, forward) {
                (0, true) => matching.find(|i| *i > from.line),
                (0, false) => matching.rfind(|i| *i < from.line),
                (_, true) => matching.next(),
                (_, false) => matching.next_back(),
            };
            if let Some(line) = line {
                let at = Position { entry, line };
                self.around = self.found.is_some_and(|before| if forward { at <= before } else { at >= before });
                self.found = Some(at);
                self.top = Position { entry, line };
                self.up(third);
                return true;
            }
        }
        false
    }

    /// Whether the last step of the search went around the end.
    pub fn found_around(&self) -> bool {
        self.around
    }

    /// The next search begins at the end.
    pub fn forget_found(&mut self) {
        self.found = None;
    }

    fn found_line(&self) -> Position {
        self.found.unwrap_or(Position { entry: self.entries.len().saturating_sub(1), line: usize::MAX })
    }

    /// The text of fenced code block `number`, counted from 1 over all answers.
    pub fn code_block(&self, number: usize) -> Option<String> {
        let entry = self.entries.iter().rev().find(|e| e.code_before < number)?;
        entry.code_block(number - entry.code_before)
    }
}

/// Whether `text` contains `wanted`, letters' case aside.
pub fn contains(text: &str, wanted: &str) -> bool {
    find_in(text, wanted).is_some()
}

/// Where `wanted` begins in `text`, ASCII letters' case aside.
pub fn find_in(text: &str, wanted: &str) -> Option<usize> {
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    if wanted.is_empty() || wanted.len() > text.len() {
        return None;
    }
    text.windows(wanted.len()).position(|w| w.eq_ignore_ascii_case(wanted))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::time::{Duration, Instant};

    use super::*;
    use crate::engine::protocol::Role;
    use crate::session::ChatMessage;
    use crate::tui::glyphs::UNICODE;

    fn transcript() -> Transcript {
        Transcript::new(Arc::new(Theme::mono()), UNICODE)
    }

    fn said(transcript: &mut Transcript, role: Role, text: &str) {
        transcript.push(Entry::message(ChatMessage::new(role, text)));
    }

    fn top(transcript: &Transcript) -> String {
        transcript.window().next().map(ToString::to_string).unwrap_or_default()
    }

    /// Ten megabytes of questions and answers with lists and code.
    fn long() -> Transcript {
        let mut transcript = transcript();
        let answer =
            "Some words of an answer that goes on.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n\n".repeat(26);
        for n in 0..5000 {
            said(&mut transcript, Role::User, &format!("question {n}"));
            said(&mut transcript, Role::Assistant, &answer);
        }
        transcript
    }

    #[test]
    fn ten_megabytes_open_scroll_and_grow_without_being_laid_out_whole() {
        let since = Instant::now();
        let mut transcript = long();
        transcript.prepare(100, 40);
        let opened = since.elapsed();
        let bytes: usize = transcript.entries().iter().map(|e| e.text().len()).sum();
        assert!(bytes > 10_000_000, "{bytes}");
        let mut steps = Vec::new();
        for _ in 0..300 {
            let since = Instant::now();
            transcript.up(38);
            steps.push(since.elapsed());
        }
        transcript.follow();
        said(&mut transcript, Role::Assistant, "");
        let mut tokens = Vec::new();
        for n in 0..300 {
            let since = Instant::now();
            transcript.change_last(|e| {
                if let crate::tui::entry::Body::Message(m) = &mut e.body {
                    m.content.push_str(if n % 20 == 0 { "\n\n" } else { "word " });
                }
            });
            transcript.prepare(100, 40);
            tokens.push(since.elapsed());
        }
        let laid_out = transcript.entries().iter().filter(|e| e.lines().is_some()).count();
        assert!(laid_out < 400, "{laid_out} entries are laid out");
        // What is aimed at is a small part of this, and `benches/screen.rs` measures it; test machines are shared.
        let median = |times: &mut Vec<Duration>| {
            times.sort();
            times[times.len() / 2]
        };
        assert!(opened < Duration::from_secs(10), "opening took {opened:?}");
        assert!(median(&mut steps) < Duration::from_millis(100), "a step took {steps:?}");
        assert!(median(&mut tokens) < Duration::from_millis(100), "a token took {tokens:?}");
    }

    #[test]
    fn another_width_keeps_the_same_part_at_the_top() {
        let mut transcript = transcript();
        for n in 0..100 {
            said(&mut transcript, Role::User, &format!("message {n} {}", "and more ".repeat(20)));
        }
        transcript.prepare(80, 20);
        transcript.up(150);
        let before = transcript.top.entry;
        for columns in [40, 120, 33, 80] {
            transcript.prepare(columns, 20);
            assert_eq!(transcript.top.entry, before, "{columns}");
        }
    }

    #[test]
    fn scrolling_down_to_the_end_follows_again() {
        let mut transcript = transcript();
        (0..50).for_each(|n| said(&mut transcript, Role::User, &format!("message {n}")));
        transcript.prepare(80, 20);
        transcript.up(30);
        assert!(!transcript.is_following());
        transcript.down(10);
        assert!(!transcript.is_following());
        transcript.down(20);
        assert!(transcript.is_following());
        transcript.show_start();
        assert_eq!(top(&transcript), "you");
        transcript.up(5);
        assert_eq!(transcript.top, Position::default());
    }

    #[test]
    fn code_blocks_are_numbered_over_all_answers() {
        let mut transcript = transcript();
        for n in 0..3 {
            said(&mut transcript, Role::User, "```\nnot counted\n```");
            said(&mut transcript, Role::Assistant, &format!("```\nfirst of {n}\n```\n\n```\nsecond of {n}\n```"));
        }
        assert_eq!(transcript.code_block(1).as_deref(), Some("first of 0"));
        assert_eq!(transcript.code_block(4).as_deref(), Some("second of 1"));
        assert_eq!(transcript.code_block(7), None);
    }
}
