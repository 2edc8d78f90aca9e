//! The composer's text as rows of a given width, with offsets into it.

use unicode_segmentation::UnicodeSegmentation;

use crate::tui::wrap::width;

/// A row: bytes of the text, its line end or the spaces at its break not shown but counted in `next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub start: usize,
    pub end: usize,
}

/// The rows of a text wrapped to `columns` at words; never empty.
pub fn rows(text: &str, columns: usize) -> Vec<Row> {
    let columns = columns.max(2);
    let mut out = Vec::new();
    let mut offset = 0;
    for line in text.split('\n') {
        let mut start = 0;
        let mut used = 0;
        // Where the row may end: after the last space.
        let mut space = None;
        for (at, g) in line.grapheme_indices(true) {
            let w = shown_width(g);
            if used + w > columns && at > start {
                let cut = space.filter(|s| *s > start).unwrap_or(at);
                out.push(Row { start: offset + start, end: offset + cut });
                used = line[cut..at].graphemes(true).map(shown_width).sum();
                start = cut;
                space = None;
            }
            used += w;
            if g == " " {
                space = Some(at + 1);
            }
        }
        out.push(Row { start: offset + start, end: offset + line.len() });
        offset += line.len() + 1;
    }
    out
}

/// Tabs are drawn as four spaces.
fn shown_width(g: &str) -> usize {
    if g == "\t" { 4 } else { width(g) }
}

/// Row and column of a byte offset.
pub(super) fn locate(text: &str, rows: &[Row], cursor: usize) -> (usize, usize) {
    let row = rows.iter().rposition(|r| r.start <= cursor).unwrap_or(0);
    let start = rows.get(row).map_or(0, |r| r.start);
    (row, text[start..cursor].graphemes(true).map(shown_width).sum())
}

/// The byte offset in a row nearest to a column.
pub(super) fn at_column(text: &str, row: Row, column: usize) -> usize {
    let mut used = 0;
    for (at, g) in text[row.start..row.end].grapheme_indices(true) {
        if used >= column {
            return row.start + at;
        }
        used += shown_width(g);
    }
    row.end
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str, columns: usize) -> Vec<&str> {
        rows(text, columns).iter().map(|r| &text[r.start..r.end]).collect()
    }

    #[test]
    fn rows_break_after_spaces_and_cover_the_whole_text() {
        assert_eq!(texts("one two three", 8), ["one two ", "three"]);
        assert_eq!(texts("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(texts("a\n\nb", 5), ["a", "", "b"]);
        assert_eq!(texts("", 5), [""]);
        assert_eq!(texts("日本語", 4), ["日本", "語"]);
    }
}
