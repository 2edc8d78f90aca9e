//! Styled text into lines of a given width, by grapheme, so that wide and combined characters are never torn.

use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// A run of text in one style.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub text: String,
    pub style: Style,
}

impl Run {
    pub fn new(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

/// Where a line may be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    /// Between words; a word longer than the line is cut.
    Words,
    /// Anywhere: code, where every space counts.
    Anywhere,
}

/// More code points than this in one grapheme are a flood, not a letter: the rest is dropped.
const MAX_GRAPHEME_BYTES: usize = 64;

/// Columns a grapheme takes; a lone zero-width one takes none.
pub fn width(grapheme: &str) -> usize {
    match grapheme.as_bytes() {
        [b] if b.is_ascii() => 1,
        _ => UnicodeWidthStr::width(grapheme).min(2),
    }
}

/// Columns a text takes.
pub fn text_width(text: &str) -> usize {
    if text.is_ascii() { text.len() } else { text.graphemes(true).map(width).sum() }
}

/// A grapheme as it is drawn: tabs are four spaces, floods are cut short.
fn drawn(grapheme: &str) -> &str {
    if grapheme == "\t" {
        return "    ";
    }
    if grapheme.len() <= MAX_GRAPHEME_BYTES {
        return grapheme;
    }
    let mut end = MAX_GRAPHEME_BYTES;
    while !grapheme.is_char_boundary(end) {
        end -= 1;
    }
    &grapheme[..end]
}

/// The text cut to `columns`, with the ellipsis as its last column where something is missing.
pub fn truncate(text: &str, columns: usize, ellipsis: &str) -> String {
    if text_width(text) <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 0;
    for g in text.graphemes(true) {
        let g = drawn(g);
        let w = text_width(g);
        if used + w + 1 > columns {
            break;
        }
        out.push_str(g);
        used += w;
    }
    if columns > 0 {
        out.push_str(ellipsis);
    }
    out
}

/// Lays runs out in lines of at most `columns`; `first` begins the first line and `rest` the others, both counted.
/// `\n` in a run ends a line.
pub fn wrap(runs: &[Run], columns: usize, first: &[Run], rest: &[Run], at: Break) -> Vec<Line<'static>> {
    let mut out = Wrapper::new(columns, first, rest);
    for run in runs {
        for (i, part) in run.text.split('\n').enumerate() {
            if i > 0 {
                out.break_line();
            }
            match at {
                Break::Words => out.words(part, run.style),
                Break::Anywhere => out.graphemes(part, run.style),
            }
        }
    }
    out.finish()
}

struct Wrapper<'a> {
    columns: usize,
    rest: &'a [Run],
    rest_width: usize,
    lines: Vec<Line<'static>>,
    spans: Vec<Span<'static>>,
    used: usize,
    /// Columns of this line taken by its indent.
    indent: usize,
    /// A word that may still grow with the next run, and its columns.
    word: Vec<Run>,
    word_width: usize,
    /// Spaces seen since the last word; dropped where the line breaks.
    spaces: usize,
    space_style: Style,
}

impl<'a> Wrapper<'a> {
    fn new(columns: usize, first: &[Run], rest: &'a [Run]) -> Self {
        let run_width = |runs: &[Run]| runs.iter().map(|r| text_width(&r.text)).sum::<usize>();
        let indent = run_width(first);
        Self {
            columns: columns.max(indent.max(run_width(rest)) + 1),
            rest,
            rest_width: run_width(rest),
            lines: Vec::new(),
            spans: first.iter().map(|r| Span::styled(r.text.clone(), r.style)).collect(),
            used: indent,
            indent,
            word: Vec::new(),
            word_width: 0,
            spaces: 0,
            space_style: Style::new(),
        }
    }

    fn push(&mut self, text: &str, style: Style, columns: usize) {
        self.used += columns;
        match self.spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(text),
            _ => self.spans.push(Span::styled(text.to_owned(), style)),
        }
    }

    fn new_line(&mut self) {
        let spans = std::mem::replace(
            &mut self.spans,
            self.rest.iter().map(|r| Span::styled(r.text.clone(), r.style)).collect(),
        );
        self.lines.push(Line::from(spans));
        self.used = self.rest_width;
        self.indent = self.rest_width;
    }

    fn place_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let at_start = self.used == self.indent;
        let spaces = std::mem::take(&mut self.spaces);
        let fits = self.used + spaces + self.word_width <= self.columns;
        if !fits && !at_start {
            self.new_line();
        } else if fits && spaces > 0 {
            self.push(&" ".repeat(spaces), self.space_style, spaces);
        }
        let width = std::mem::take(&mut self.word_width);
        for run in std::mem::take(&mut self.word) {
            if width <= self.columns - self.indent {
                let w = text_width(&run.text);
                self.push(&run.text, run.style, w);
            } else {
                self.graphemes(&run.text, run.style);
            }
        }
    }

    fn words(&mut self, text: &str, style: Style) {
        for g in text.graphemes(true) {
            if g == " " || g == "\t" {
                self.place_word();
                if self.spaces == 0 {
                    self.space_style = style;
                }
                self.spaces += drawn(g).len();
                continue;
            }
            let w = width(g);
            if w == 2 {
                // Wide characters may be parted from their neighbours.
                self.place_word();
            }
            let g = drawn(g);
            match self.word.last_mut() {
                Some(last) if last.style == style => last.text.push_str(g),
                _ => self.word.push(Run::new(g, style)),
            }
            self.word_width += w;
            if w == 2 {
                self.place_word();
            }
        }
    }

    fn graphemes(&mut self, text: &str, style: Style) {
        if text.is_ascii() && !text.contains('\t') {
            let mut left = text;
            while !left.is_empty() {
                if self.used >= self.columns {
                    self.new_line();
                }
                let (now, later) = left.split_at(left.len().min(self.columns - self.used));
                self.push(now, style, now.len());
                left = later;
            }
            return;
        }
        for g in text.graphemes(true) {
            let g = drawn(g);
            let w = if g.len() == 4 && g == "    " { 4 } else { width(g) };
            if self.used + w > self.columns && self.used > self.indent {
                self.new_line();
            }
            self.push(g, style, w);
        }
    }

    fn break_line(&mut self) {
        self.place_word();
        self.spaces = 0;
        self.new_line();
    }

    fn finish(mut self) -> Vec<Line<'static>> {
        self.place_word();
        self.lines.push(Line::from(self.spans));
        self.lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plain(text: &str, columns: usize, at: Break) -> Vec<String> {
        let runs = [Run::new(text, Style::new())];
        wrap(&runs, columns, &[], &[], at).iter().map(|l| l.to_string()).collect()
    }

    #[test]
    fn words_stay_whole_and_spaces_vanish_at_the_break() {
        assert_eq!(plain("the quick brown fox", 10, Break::Words), ["the quick", "brown fox"]);
        assert_eq!(plain("a  b", 10, Break::Words), ["a  b"]);
        assert_eq!(plain("abcdefghijklm no", 5, Break::Words), ["abcde", "fghij", "klm", "no"]);
        assert_eq!(plain("one\n\ntwo", 9, Break::Words), ["one", "", "two"]);
    }

    #[test]
    fn wide_and_combined_characters_are_not_torn() {
        assert_eq!(plain("日本語です", 4, Break::Words), ["日本", "語で", "す"]);
        assert_eq!(plain("日本語", 5, Break::Anywhere), ["日本", "語"]);
        assert_eq!(plain("e\u{301}e\u{301}e\u{301}", 2, Break::Anywhere), ["e\u{301}e\u{301}", "e\u{301}"]);
        assert_eq!(plain("👩‍👩‍👧‍👦👩‍👩‍👧‍👦", 2, Break::Words), ["👩‍👩‍👧‍👦", "👩‍👩‍👧‍👦"]);
    }

    #[test]
    fn code_keeps_every_space() {
        assert_eq!(plain("  x =  1;", 6, Break::Anywhere), ["  x = ", " 1;"]);
        assert_eq!(plain("\tx", 8, Break::Anywhere), ["    x"]);
    }

    #[test]
    fn indents_begin_the_first_and_the_other_lines() {
        let runs = [Run::new("alpha beta", Style::new())];
        let lines = wrap(&runs, 8, &[Run::new("1. ", Style::new())], &[Run::new("   ", Style::new())], Break::Words);
        assert_eq!(lines.iter().map(|l| l.to_string()).collect::<Vec<_>>(), ["1. alpha", "   beta"]);
    }

    #[test]
    fn a_flood_of_combining_marks_is_cut() {
        let flood = format!("a{}", "\u{301}".repeat(100_000));
        let lines = plain(&flood, 10, Break::Words);
        assert!(lines.iter().map(|l| l.len()).sum::<usize>() < 200);
    }

    proptest! {
        #[test]
        fn no_line_is_wider_than_asked_and_no_letter_is_lost(text in "[a-z 日本é\n]{0,200}", columns in 4usize..40) {
            for at in [Break::Words, Break::Anywhere] {
                let lines = plain(&text, columns, at);
                for line in &lines {
                    prop_assert!(text_width(line) <= columns, "{line:?} in {columns}");
                }
                let letters = |s: &str| s.chars().filter(|c| !c.is_whitespace()).collect::<String>();
                prop_assert_eq!(letters(&lines.concat()), letters(&text));
            }
        }
    }
}
