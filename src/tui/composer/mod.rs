//! The input: text with a cursor, readline editing, undo, folded pastes and history.
//!
//! Not responsible for keys (`keymap`, `update`) or completion (`completion`).

use crate::words::counted;
mod history;
mod rows;

pub use history::History;
pub use rows::rows;

use unicode_segmentation::UnicodeSegmentation;

/// A paste of more lines than this is folded.
const FOLD_LINES: usize = 10;
/// As is one of more characters, lines or not.
const FOLD_CHARS: usize = 4000;
/// Folded pastes that are kept for undo after their marks are gone.
const FOLDS_KEPT: usize = 4;
/// Most steps that undo remembers.
const UNDO_STEPS: usize = 200;
/// And most bytes in all, but for the last step.
const UNDO_BYTES: usize = 1 << 20;

/// What an edit was, so that a run of typing is undone at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Edit {
    Typing,
    Other,
}

#[derive(Clone, Debug, Default)]
pub struct Composer {
    text: String,
    /// A byte offset on a grapheme's boundary.
    cursor: usize,
    undo: Vec<(String, usize)>,
    last_edit: Option<Edit>,
    killed: String,
    /// Folded pastes: what stands in the text, and what it stands for.
    folds: Vec<(String, String)>,
    pub history: History,
}

impl Composer {
    pub fn text(&self) -> &str {
        &self.text
    }

    pub fn cursor(&self) -> usize {
        self.cursor
    }

    pub fn is_empty(&self) -> bool {
        self.text.is_empty()
    }

    /// Bytes of the text with folded pastes written out.
    pub fn expanded_bytes(&self) -> usize {
        let folded = self.folds.iter().filter(|f| self.text.contains(&f.0));
        folded.fold(self.text.len(), |bytes, (mark, content)| bytes - mark.len() + content.len())
    }

    /// The text with folded pastes written out.
    pub fn expanded(&self) -> String {
        let mut text = self.text.clone();
        for (mark, content) in &self.folds {
            text = text.replacen(mark, content, 1);
        }
        text
    }

    /// Takes the whole text out, folded pastes written out.
    pub fn take(&mut self) -> String {
        let text = self.expanded();
        *self = Self {
            history: std::mem::take(&mut self.history),
            killed: std::mem::take(&mut self.killed),
            ..Self::default()
        };
        self.history.leave();
        text
    }

    /// Replaces the whole text; the cursor goes to its end.
    pub fn set(&mut self, text: &str) {
        self.remember(Edit::Other);
        self.text = text.to_owned();
        self.cursor = self.text.len();
    }

    /// Replaces a range of bytes; the cursor goes after it.
    pub fn replace(&mut self, range: std::ops::Range<usize>, with: &str) {
        self.remember(Edit::Other);
        self.text.replace_range(range.clone(), with);
        self.cursor = range.start + with.len();
    }

    fn remember(&mut self, edit: Edit) {
        let joins = edit == Edit::Typing && self.last_edit == Some(Edit::Typing);
        self.last_edit = Some(edit);
        if !joins {
            let mut bytes: usize = self.undo.iter().map(|(text, _)| text.len()).sum();
            while self.undo.len() >= UNDO_STEPS || (bytes > UNDO_BYTES && !self.undo.is_empty()) {
                bytes -= self.undo.remove(0).0.len();
            }
            self.undo.push((self.text.clone(), self.cursor));
        }
    }

    pub fn undo(&mut self) {
        if let Some((text, cursor)) = self.undo.pop() {
            self.text = text;
            self.cursor = cursor;
        }
        self.last_edit = None;
    }

    pub fn insert_char(&mut self, c: char) {
        // A new word is a new step of undo.
        if c.is_whitespace() {
            self.last_edit = None;
        }
        self.remember(Edit::Typing);
        self.text.insert(self.cursor, c);
        self.cursor += c.len_utf8();
        self.settle();
    }

    pub fn insert(&mut self, text: &str) {
        self.remember(Edit::Other);
        self.text.insert_str(self.cursor, text);
        self.cursor += text.len();
        self.settle();
    }

    /// A paste, its line ends `\n`; folded to a mark when long.
    pub fn paste(&mut self, text: String) {
        let lines = text.lines().count();
        let what = if lines > FOLD_LINES {
            counted(lines, "line")
        } else if text.len() > FOLD_CHARS {
            counted(text.chars().count(), "character")
        } else {
            return self.insert(&text);
        };
        self.forget_old_folds();
        let marks = std::iter::once(format!("[pasted {what}]")).chain((2..).map(|n| format!("[pasted {what}, {n}]")));
        let mark = marks.into_iter().find(|mark| self.folds.iter().all(|f| f.0 != *mark)).unwrap_or_default();
        self.insert(&mark);
        self.folds.push((mark, text));
    }

    /// Folded pastes whose marks are gone wait for undo, but not all of them: they are large.
    fn forget_old_folds(&mut self) {
        let text = &self.text;
        let gone = |mark: &str| !text.contains(mark);
        let mut surplus = self.folds.iter().filter(|f| gone(&f.0)).count().saturating_sub(FOLDS_KEPT);
        self.folds.retain(|(mark, _)| {
            let goes = surplus > 0 && gone(mark);
            surplus -= usize::from(goes);
            !goes
        });
    }

    /// Writes folded pastes out in place. `false` when there is none.
    pub fn unfold(&mut self) -> bool {
        let any = self.folds.iter().any(|f| self.text.contains(&f.0));
        if any {
            let text = self.expanded();
            self.set(&text);
        }
        any
    }

    /// Keeps the cursor on a grapheme's boundary after what it stands behind combined with what follows.
    fn settle(&mut self) {
        if self.text[self.cursor..].chars().next().is_some_and(|c| !c.is_ascii()) {
            let cursor = self.cursor;
            self.cursor =
                self.text.grapheme_indices(true).map(|(at, _)| at).find(|at| *at >= cursor).unwrap_or(self.text.len());
        }
    }

    fn before(&self) -> usize {
        let line = self.line_start();
        if self.cursor == line {
            return self.cursor.saturating_sub(1);
        }
        self.text[line..self.cursor].grapheme_indices(true).next_back().map_or(line, |(at, _)| line + at)
    }

    fn after(&self) -> usize {
        self.cursor + self.text[self.cursor..].graphemes(true).next().map_or(0, str::len)
    }

    fn line_start(&self) -> usize {
        self.text[..self.cursor].rfind('\n').map_or(0, |at| at + 1)
    }

    fn line_end(&self) -> usize {
        self.text[self.cursor..].find('\n').map_or(self.text.len(), |at| self.cursor + at)
    }

    fn word_before(&self) -> usize {
        let head = &self.text[..self.cursor];
        let trimmed = head.trim_end_matches(|c: char| !c.is_alphanumeric());
        trimmed.char_indices().rev().take_while(|(_, c)| c.is_alphanumeric()).last().map_or(0, |(at, _)| at)
    }

    fn word_after(&self) -> usize {
        let tail = &self.text[self.cursor..];
        let skipped = tail.len() - tail.trim_start_matches(|c: char| !c.is_alphanumeric()).len();
        let word = tail[skipped..].find(|c: char| !c.is_alphanumeric()).unwrap_or(tail.len() - skipped);
        self.cursor + skipped + word
    }

    fn space_before(&self) -> usize {
        let head = self.text[..self.cursor].trim_end();
        head.rfind(char::is_whitespace).map_or(0, |at| at + head[at..].chars().next().map_or(1, char::len_utf8))
    }

    pub fn left(&mut self) {
        self.go(self.before());
    }

    pub fn right(&mut self) {
        self.go(self.after());
    }

    pub fn word_left(&mut self) {
        self.go(self.word_before());
    }

    pub fn word_right(&mut self) {
        self.go(self.word_after());
    }

    pub fn home(&mut self) {
        self.go(self.line_start());
    }

    pub fn end(&mut self) {
        self.go(self.line_end());
    }

    fn go(&mut self, to: usize) {
        self.cursor = to;
        self.last_edit = None;
    }

    /// A row up as the text is wrapped; `false` on the first.
    pub fn row_up(&mut self, columns: usize) -> bool {
        self.row_by(columns, -1)
    }

    pub fn row_down(&mut self, columns: usize) -> bool {
        self.row_by(columns, 1)
    }

    fn row_by(&mut self, columns: usize, step: isize) -> bool {
        let all = rows(&self.text, columns);
        let (row, column) = rows::locate(&self.text, &all, self.cursor);
        match row.checked_add_signed(step).and_then(|r| all.get(r)) {
            Some(target) => {
                self.cursor = rows::at_column(&self.text, *target, column);
                self.last_edit = None;
                true
            }
            None => false,
        }
    }

    /// Puts the cursor at a row and column of the text as it is wrapped, or as near as there is text.
    pub fn place(&mut self, columns: usize, row: usize, column: usize) {
        let all = rows(&self.text, columns);
        if let Some(row) = all.get(row.min(all.len() - 1)) {
            self.cursor = rows::at_column(&self.text, *row, column);
            self.last_edit = None;
        }
    }

    /// Where the cursor is as the text is wrapped: row and column.
    pub fn cursor_at(&self, columns: usize) -> (usize, usize) {
        rows::locate(&self.text, &rows(&self.text, columns), self.cursor)
    }

    pub fn backspace(&mut self) {
        let mark = self.folds.iter().map(|f| f.0.as_str()).find(|mark| self.text[..self.cursor].ends_with(mark));
        let from = mark.map_or_else(|| self.before(), |mark| self.cursor - mark.len());
        self.cut(from..self.cursor, false);
    }

    pub fn delete(&mut self) {
        self.cut(self.cursor..self.after(), false);
    }

    pub fn kill_word_before(&mut self) {
        self.cut(self.word_before()..self.cursor, true);
    }

    pub fn kill_to_space_before(&mut self) {
        self.cut(self.space_before()..self.cursor, true);
    }

    pub fn kill_word_after(&mut self) {
        self.cut(self.cursor..self.word_after(), true);
    }

    pub fn kill_to_line_start(&mut self) {
        self.cut(self.line_start()..self.cursor, true);
    }

    pub fn kill_to_line_end(&mut self) {
        let end = self.line_end();
        // At the end of a line its end itself goes.
        let end = if end == self.cursor { self.after() } else { end };
        self.cut(self.cursor..end, true);
    }

    pub fn yank(&mut self) {
        let killed = self.killed.clone();
        self.insert(&killed);
    }

    fn cut(&mut self, range: std::ops::Range<usize>, keep: bool) {
        if range.is_empty() {
            return;
        }
        self.remember(Edit::Other);
        let gone: String = self.text.drain(range.clone()).collect();
        self.cursor = range.start;
        if keep {
            self.killed = gone;
        }
    }

    pub fn history_previous(&mut self) {
        if let Some(text) = self.history.previous(&self.text) {
            self.set(&text);
        }
    }

    pub fn history_next(&mut self) {
        if let Some(text) = self.history.next() {
            self.set(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str) -> Composer {
        let mut c = Composer::default();
        c.insert(text);
        c
    }

    #[test]
    fn graphemes_are_crossed_and_deleted_whole() {
        let mut c = with("a👩‍👩‍👧‍👦e\u{301}");
        c.backspace();
        assert_eq!(c.text(), "a👩‍👩‍👧‍👦");
        c.left();
        assert_eq!(c.cursor(), 1);
        c.delete();
        assert_eq!(c.text(), "a");
    }

    #[test]
    fn words_are_killed_and_yanked_as_readline_does() {
        let mut c = with("one two-three four");
        c.kill_word_before();
        assert_eq!(c.text(), "one two-three ");
        c.kill_to_space_before();
        assert_eq!(c.text(), "one ");
        c.yank();
        assert_eq!(c.text(), "one two-three ");
        c.home();
        c.word_right();
        c.kill_to_line_end();
        assert_eq!(c.text(), "one");
    }

    #[test]
    fn undo_takes_back_a_word_of_typing_and_other_edits_one_by_one() {
        let mut c = Composer::default();
        "hello world".chars().for_each(|ch| c.insert_char(ch));
        c.kill_to_line_start();
        c.undo();
        assert_eq!(c.text(), "hello world");
        c.undo();
        assert_eq!(c.text(), "hello");
        c.undo();
        assert_eq!(c.text(), "");
    }

    #[test]
    fn a_long_paste_is_folded_sent_whole_and_deleted_at_once() {
        let paste = (0..214).map(|i| format!("line {i}\n")).collect::<String>();
        let mut c = with("see: ");
        c.paste(paste);
        assert_eq!(c.text(), "see: [pasted 214 lines]");
        assert_eq!(c.expanded().lines().count(), 214);
        let mut other = c.clone();
        other.backspace();
        assert_eq!(other.text(), "see: ");
        assert!(c.unfold());
        assert!(c.text().ends_with("line 213\n"));
    }

    #[test]
    fn a_single_line_that_fills_the_screen_is_folded_too() {
        let mut c = Composer::default();
        c.paste("x".repeat(100_000));
        assert_eq!(c.text(), "[pasted 100000 characters]");
        assert_eq!(c.take().len(), 100_000);
    }

    #[test]
    fn a_short_paste_is_not_folded() {
        let mut c = Composer::default();
        c.paste("a\nb\nc".to_owned());
        assert_eq!(c.text(), "a\nb\nc");
    }

    #[test]
    fn undo_brings_a_deleted_paste_back_whole_and_marks_stay_apart() {
        let mut c = Composer::default();
        c.paste("first\n".repeat(20));
        c.backspace();
        assert_eq!((c.text(), c.expanded_bytes()), ("", 0));
        c.undo();
        assert_eq!(c.expanded(), "first\n".repeat(20));
        c.backspace();
        c.paste("other\n".repeat(20));
        assert_eq!((c.expanded(), c.expanded_bytes()), ("other\n".repeat(20), 120));
    }

    #[test]
    fn undo_of_a_large_text_remembers_fewer_steps() {
        let mut c = Composer::default();
        c.set(&"x".repeat(UNDO_BYTES / 8));
        for _ in 0..100 {
            c.insert("word ");
        }
        let bytes: usize = c.undo.iter().map(|(text, _)| text.len()).sum();
        assert!(bytes <= 2 * UNDO_BYTES && c.undo.len() >= 8, "{bytes} bytes, {} steps", c.undo.len());
    }

    #[test]
    fn deleted_pastes_are_not_kept_without_end() {
        let mut c = Composer::default();
        for _ in 0..50 {
            c.paste("x".repeat(10_000));
            c.backspace();
        }
        assert!(c.folds.len() <= FOLDS_KEPT + 1);
    }

    #[test]
    fn the_cursor_goes_up_and_down_over_wrapped_rows() {
        let mut c = with("aaaa bbbb cccc\nd");
        assert!(c.row_up(5));
        assert!(c.row_up(5));
        assert_eq!(c.cursor_at(5), (1, 1));
        assert!(c.row_up(5));
        assert!(!c.row_up(5));
    }
}
