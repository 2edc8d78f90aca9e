//! Markdown as models write it, cut into blocks so that a growing answer is laid out again only from its last one, and
//! drawn as styled lines.
//!
//! Not responsible for scrolling or caching (`transcript`).

mod render;
mod table;

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::glyphs::Glyphs;
use super::theme::Theme;
use super::wrap::{Break, Run, text_width, truncate, wrap};

/// What lines are drawn with.
#[derive(Clone, Copy)]
pub struct Look<'a> {
    pub theme: &'a Theme,
    pub glyphs: &'a Glyphs,
}

/// A stretch of a text that can be drawn by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// Anything but fenced code.
    Prose(&'a str),
    /// A fenced block: its info string and body, without the fences.
    Code { language: &'a str, body: &'a str, indent: usize },
}

/// One block and the bytes of the text it spans, blank lines after it included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    pub block: Block<'a>,
    pub end: usize,
    /// Nothing that is added to the text can change it.
    pub closed: bool,
}

/// What opens fenced code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    mark: char,
    length: usize,
    pub indent: usize,
}

impl Fence {
    /// Whether this line ends the code.
    pub fn is_closed_by(self, line: &str) -> bool {
        let content = line.trim();
        content.len() >= self.length && content.chars().all(|c| c == self.mark)
    }
}

/// The fence a line opens.
pub fn fence(line: &str) -> Option<Fence> {
    let body = line.trim_start();
    let mark = body.chars().next().filter(|c| matches!(c, '`' | '~'))?;
    let length = body.chars().take_while(|c| *c == mark).count();
    let info = &body[length..];
    (length >= 3 && !(mark == '`' && info.contains('`'))).then_some(Fence {
        mark,
        length,
        indent: line.len() - body.len(),
    })
}

/// The language that a line with a fence names.
pub fn language(line: &str) -> &str {
    line.trim_start().trim_start_matches(['`', '~']).split_whitespace().next().unwrap_or("")
}

/// The first block of `text`, which begins at the beginning of a line.
pub fn first_block(text: &str) -> Option<Piece<'_>> {
    if text.is_empty() {
        return None;
    }
    let mut at = 0;
    let mut prose_end = 0;
    let mut blank_seen = false;
    for line in text.split_inclusive('\n') {
        let whole = line.ends_with('\n');
        let content = line.trim_end_matches(['\n', '\r']);
        if let Some(fence) = fence(content) {
            if prose_end > 0 {
                return Some(Piece { block: Block::Prose(&text[..prose_end]), end: at, closed: true });
            }
            if at == 0 {
                return Some(code_block(text, line.len(), content, fence));
            }
            // Only blank lines before it: they belong to nothing.
            return Some(Piece { block: Block::Prose(""), end: at, closed: true });
        }
        if content.trim().is_empty() {
            blank_seen = true;
        } else {
            let continues = content.starts_with([' ', '\t']);
            if blank_seen && prose_end > 0 && !continues {
                return Some(Piece { block: Block::Prose(&text[..prose_end]), end: at, closed: true });
            }
            blank_seen = false;
            prose_end = at + content.len();
        }
        at += line.len();
        debug_assert!(whole || at == text.len());
    }
    Some(Piece { block: Block::Prose(&text[..prose_end]), end: text.len(), closed: false })
}

fn code_block<'a>(text: &'a str, opening: usize, line: &'a str, fence: Fence) -> Piece<'a> {
    let (language, indent) = (language(line), fence.indent);
    let mut at = opening;
    for line in text[opening..].split_inclusive('\n') {
        if fence.is_closed_by(line) {
            let body = text[opening..at].strip_suffix('\n').unwrap_or(&text[opening..at]);
            let end = at + line.len();
            return Piece { block: Block::Code { language, body, indent }, end, closed: line.ends_with('\n') };
        }
        at += line.len();
    }
    let body = &text[opening.min(text.len())..];
    Piece { block: Block::Code { language, body, indent }, end: text.len(), closed: false }
}

/// All blocks of a text.
pub fn blocks(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let mut piece = first_block(&text[at..])?;
        piece.end += at;
        at = piece.end;
        Some(piece)
    })
}

/// How many fenced code blocks a text has.
pub fn count_code(text: &str) -> usize {
    let mut open = None;
    let mut count = 0;
    for line in text.lines() {
        // The first byte that is no blank tells of nearly every line that it is no fence.
        if !matches!(line.trim_start().as_bytes().first(), Some(b'`' | b'~')) {
            continue;
        }
        match (open, fence(line.trim())) {
            (None, Some(fence)) => {
                open = Some(fence);
                count += 1;
            }
            (Some(opening), _) if opening.is_closed_by(line) => open = None,
            _ => {}
        }
    }
    count
}

/// The fenced code blocks of a text, without their fences and common indent.
pub fn code_blocks(text: &str) -> impl Iterator<Item = String> + '_ {
    blocks(text).filter_map(|piece| match piece.block {
        Block::Code { body, indent, .. } => Some(unindent(body, indent)),
        Block::Prose(_) => None,
    })
}

fn unindent(body: &str, indent: usize) -> String {
    let strip = |line: &str| {
        let spaces = line.bytes().take(indent).take_while(|b| matches!(b, b' ' | b'\t')).count();
        line[spaces..].to_owned()
    };
    body.lines().map(strip).collect::<Vec<_>>().join("\n")
}

/// Lines of one block. `number` is what a code block is copied by.
pub fn draw(block: &Block, number: usize, columns: usize, look: Look) -> Vec<Line<'static>> {
    match block {
        Block::Prose(text) => render::prose(text, columns, look),
        Block::Code { language, body, indent } => {
            let mut lines = vec![code_tag(language, number, columns, look)];
            lines.extend(code(body, *indent, columns, look));
            lines
        }
    }
}

/// The line over fenced code: its language and what it is copied by.
pub fn code_tag(language: &str, number: usize, columns: usize, look: Look) -> Line<'static> {
    let bar = format!("{} ", look.glyphs.code_bar);
    let tag = match language {
        "" => format!("[{number}]"),
        language => {
            format!("{} [{number}]", truncate(language, columns.saturating_sub(8).max(1), look.glyphs.ellipsis))
        }
    };
    let wide = columns.saturating_sub(text_width(&bar)).max(1);
    let tag = truncate(&tag, wide, look.glyphs.ellipsis);
    Line::from(vec![Span::styled(bar, look.theme.code_bar), Span::styled(tag, look.theme.dim)])
}

/// Lines of fenced code.
pub fn code(body: &str, indent: usize, columns: usize, look: Look) -> Vec<Line<'static>> {
    let bar = [Run::new(format!("{} ", look.glyphs.code_bar), look.theme.code_bar)];
    let mut lines = Vec::new();
    for line in unindent(body, indent).lines() {
        lines.extend(wrap(&[Run::new(line, look.theme.code)], columns, &bar, &bar, Break::Anywhere));
    }
    lines
}

/// Text as it is, words wrapped, an indent before each line.
pub fn plain(text: &str, style: Style, columns: usize, indent: &str) -> Vec<Line<'static>> {
    let indent = [Run::new(indent, style)];
    let runs = [Run::new(text, style)];
    let wide = columns.max(text_width(&indent[0].text) + 1);
    wrap(&runs, wide, &indent, &indent, Break::Words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::glyphs::{ASCII, UNICODE};

    fn lines(text: &str, columns: usize, glyphs: &Glyphs) -> Vec<String> {
        let theme = Theme::mono();
        let look = Look { theme: &theme, glyphs };
        blocks(text)
            .flat_map(|p| draw(&p.block, 1, columns, look))
            .map(|l| l.to_string().trim_end().to_owned())
            .collect()
    }

    #[test]
    fn a_text_is_cut_at_blank_lines_and_fences() {
        let text = "one\ntwo\n\nthree\n```rust\nfn x() {}\n\n```\nfour";
        let pieces: Vec<_> = blocks(text).map(|p| (p.block, p.closed)).collect();
        assert_eq!(
            pieces,
            [
                (Block::Prose("one\ntwo"), true),
                (Block::Prose("three"), true),
                (Block::Code { language: "rust", body: "fn x() {}\n", indent: 0 }, true),
                (Block::Prose("four"), false),
            ]
        );
    }

    #[test]
    fn what_continues_a_list_item_stays_with_it() {
        let text = "1. one\n\n   more of one\n\n2. two\n";
        let pieces: Vec<_> = blocks(text).map(|p| p.block).collect();
        assert_eq!(pieces, [Block::Prose("1. one\n\n   more of one"), Block::Prose("2. two")]);
    }

    #[test]
    fn cutting_a_prefix_gives_the_closed_blocks_of_the_whole() {
        let text = "# a\n\n- b\n- c\n\n```py\nx = 1\n```\n\n| d | e |\n|---|---|\n| 1 | 2 |\n\nend";
        let whole: Vec<_> = blocks(text).collect();
        for cut in 0..text.len() {
            for piece in blocks(&text[..cut]).filter(|p| p.closed) {
                assert!(whole.iter().any(|w| w.block == piece.block), "{piece:?} at {cut}");
            }
        }
    }

    #[test]
    fn code_blocks_are_counted_as_they_are_cut() {
        for text in ["", "```\na\n```\n~~~\n```\n~~~\n", "a\n  ```sh\nb", "`inline` and ``` in text", "````\n```\n````"]
        {
            assert_eq!(count_code(text), code_blocks(text).count(), "{text:?}");
        }
    }

    #[test]
    fn code_in_a_list_loses_the_lists_indent_and_can_be_copied() {
        let text = "1. Run:\n   ```sh\n   ls\n     -l\n   ```\n2. Look.";
        assert_eq!(code_blocks(text).collect::<Vec<_>>(), ["ls\n  -l"]);
    }

    #[test]
    fn code_is_drawn_with_a_bar_its_language_and_its_number() {
        assert_eq!(lines("```sh\nls -l\n```", 20, &UNICODE), ["▏ sh [1]", "▏ ls -l"]);
        assert_eq!(lines("```\nabcdefgh", 8, &ASCII), ["| [1]", "| abcdef", "| gh"]);
    }

    #[test]
    fn headings_lists_quotes_and_rules_are_drawn() {
        let text = "# Title\nA *b* **c** `d` [e](http://f).\n\n- one\n- two\n  - inner\n\n3. three\n\n> said\n\n---";
        assert_eq!(
            lines(text, 30, &UNICODE),
            [
                "Title",
                "",
                "A b c d e (http://f).",
                "• one",
                "• two",
                "  • inner",
                "3. three",
                "▌ said",
                "──────────────────────────────"
            ]
        );
    }

    #[test]
    fn tables_are_drawn_in_columns_and_squeezed_when_wide() {
        let text = "| name | size |\n|:--|--:|\n| a | 1 |\n| bcd | 22 |";
        assert_eq!(lines(text, 30, &ASCII), ["name | size", "-----+-----", "a    |    1", "bcd  |   22"]);
        let wide = "| a | b |\n|---|---|\n| alpha beta gamma | delta epsilon |";
        assert!(lines(wide, 16, &ASCII).iter().all(|l| text_width(l) <= 16), "{:?}", lines(wide, 16, &ASCII));
    }

    #[test]
    fn entities_do_not_bring_back_what_was_taken_out() {
        let text = "a&#27;[31m &#x202e;b&#x9b;31m [c&#27;](http://d&#x202e;)\n\n| &#27;e |\n|---|\n| &#x2066;f |";
        let shown = lines(text, 60, &UNICODE).concat();
        assert!(shown.contains("a[31m") && shown.contains('f'), "{shown:?}");
        assert!(!shown.contains(['\x1b', '\u{202e}', '\u{9b}', '\u{2066}']), "{shown:?}");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_drawn_within_its_columns(
            text in "[a-z #*`|>\\-\n\t~!\\[\\]()0-9._日é\u{301}]{0,300}",
            columns in 12usize..60,
        ) {
            for line in lines(&text, columns, &ASCII) {
                proptest::prop_assert!(text_width(&line) <= columns, "{line:?} in {columns}");
            }
        }
    }

    #[test]
    fn html_and_odd_marks_are_shown_as_they_are() {
        assert_eq!(lines("a <b>c</b> & d", 30, &UNICODE), ["a <b>c</b> & d"]);
        assert_eq!(lines("2 * 3 * 4 and snake_case_name", 30, &UNICODE), ["2 * 3 * 4 and snake_case_name"]);
    }
}
