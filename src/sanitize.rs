//! Makes text from models and files safe to show on a terminal.
//!
//! Whatever a model says or a file's metadata holds is data, not instructions to the terminal. What is left out:
//!
//! * control characters (C0, DEL, C1) but line feed and tab, so that no escape sequence begins and no line is overwritten;
//! * what turns the direction of text around (overrides, embeddings, isolates), so that it reads as it is written;
//! * characters that are never seen and carry text along (tags, annotations, deprecated format characters,
//!   noncharacters);
//! * characters of no width beyond [`MOST_ZERO_WIDTH`] in a row, so that no stack of accents covers other lines.
//!
//! Line and paragraph separators become line feeds. Everything else is left as it is.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar;

/// Accents, joiners, variation selectors and other characters of no width that may follow one another.
pub const MOST_ZERO_WIDTH: u32 = 10;

/// `text` without anything that could drive a terminal or deceive a reader. For text that comes in pieces see
/// [`Sanitizer`].
pub fn sanitize(text: &str) -> Cow<'_, str> {
    Sanitizer::default().push(text)
}

/// `text` as one line of at most so many characters, for messages that quote what a stranger wrote.
pub fn line(text: &str, characters: usize) -> String {
    let mut words = String::new();
    for word in sanitize(text).split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
        if words.len() > characters.saturating_mul(4) {
            break;
        }
    }
    match words.char_indices().nth(characters) {
        Some((at, _)) => format!("{}...", words[..at].trim_end()),
        None => words,
    }
}

/// Sanitises text that comes in pieces: the pieces together are what [`sanitize`] makes of the whole.
#[derive(Clone, Debug, Default)]
pub struct Sanitizer {
    /// Characters of no width that came last.
    zero_width: u32,
}

impl Sanitizer {
    /// The next piece, made safe.
    pub fn push<'a>(&mut self, piece: &'a str) -> Cow<'a, str> {
        let mut kept = piece.char_indices();
        let Some((at, first)) = kept.find_map(|(at, c)| self.replace(c).map(|new| (at, new))) else {
            return Cow::Borrowed(piece);
        };
        let mut safe = String::with_capacity(piece.len());
        safe.push_str(&piece[..at]);
        safe.extend(first);
        for (_, c) in kept {
            match self.replace(c) {
                Some(new) => safe.extend(new),
                None => safe.push(c),
            }
        }
        Cow::Owned(safe)
    }

    /// What stands for `c`, perhaps nothing; `None` when it may stay.
    fn replace(&mut self, c: char) -> Option<Option<char>> {
        match c {
            '\n' | '\t' | ' '..='~' => {
                self.zero_width = 0;
                return None;
            }
            '\u{85}' | '\u{2028}' | '\u{2029}' => {
                self.zero_width = 0;
                return Some(Some('\n'));
            }
            '\0'..='\u{1F}' | '\u{7F}'..='\u{9F}' => return Some(None),
            // Embeddings, overrides, isolates.
            '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}' => return Some(None),
            // Deprecated format characters, annotations, musical format characters, tags.
            '\u{206A}'..='\u{206F}'
            | '\u{FFF9}'..='\u{FFFB}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E007F}' => {
                return Some(None);
            }
            '\u{FDD0}'..='\u{FDEF}' => return Some(None),
            _ if c as u32 & 0xFFFE == 0xFFFE => return Some(None),
            _ => {}
        }
        if c.width() == Some(0) {
            if self.zero_width == MOST_ZERO_WIDTH {
                return Some(None);
            }
            self.zero_width += 1;
        } else {
            self.zero_width = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ordinary_text_stays_as_it_is_and_where_it_is() {
        for text in [
            "",
            "Hello, world!\n\tfn main() {}\n",
            "Grüße, 漢字, 한국어, العربية, עברית, हिन्दी, ภาษาไทย",
            "👩‍👩‍👧 ❤️ 🇫🇷 👍🏽 e\u{301} می\u{200C}خواهم \u{200F}",
        ] {
            assert!(matches!(sanitize(text), Cow::Borrowed(same) if same == text), "{text:?}");
        }
    }

    #[test]
    fn nothing_that_drives_a_terminal_is_left() {
        for (text, safe) in [
            ("\x1b[31mred\x1b[0m", "[31mred[0m"),
            ("\x1b]0;title\x07", "]0;title"),
            ("\u{9b}31m", "31m"),
            ("a\rb\r\nc", "ab\nc"),
            ("a\x08\x08\x7fb", "ab"),
            ("\0\x0e\x0f\u{90}q", "q"),
            ("a\u{85}b\u{2028}c\u{2029}d", "a\nb\nc\nd"),
        ] {
            assert_eq!(sanitize(text), safe);
        }
    }

    #[test]
    fn nothing_that_deceives_a_reader_is_left() {
        for (text, safe) in [
            ("user\u{202E}txt.exe", "usertxt.exe"),
            ("a\u{2066}b\u{2069}c", "abc"),
            ("hi\u{E0068}\u{E0069}\u{E007F}", "hi"),
            ("a\u{FFF9}b\u{FFFA}c\u{FFFB}", "abc"),
            ("a\u{FFFF}b\u{FDD0}c\u{10FFFE}", "abc"),
        ] {
            assert_eq!(sanitize(text), safe);
        }
    }

    #[test]
    fn stacks_of_accents_are_cut_down() {
        let text = format!("a{}b{}", "\u{301}".repeat(1000), "\u{200B}".repeat(3));
        let safe = format!("a{}b{}", "\u{301}".repeat(10), "\u{200B}".repeat(3));
        assert_eq!(sanitize(&text), safe);
        // What is left out between them makes no room for more.
        let hidden = "\u{301}\u{202E}\x1b".repeat(50);
        assert_eq!(sanitize(&hidden), "\u{301}".repeat(10));
    }

    #[test]
    fn a_line_is_one_and_short_whatever_it_is_made_of() {
        assert_eq!(line("a\x1b[31m\r\n\tb\u{202E}\u{2028}c\x07", 20), "a[31m b c");
        assert_eq!(line(&"x".repeat(5000), 10), "xxxxxxxxxx...");
        assert_eq!(line("one two three", 8), "one two...");
    }

    fn awkward() -> impl Strategy<Value = String> {
        let special = "[a-z \\n\\t\\r\\x00-\\x1f\\x7f-\\x9f\u{301}\u{200B}-\u{200F}\u{2028}-\u{202E}\u{2060}-\u{206F}\u{E0000}-\u{E007F}é漢🚀]{0,60}";
        prop_oneof![any::<String>(), special]
    }

    proptest! {
        #[test]
        fn what_is_left_is_safe_and_stays_the_same(text in awkward()) {
            let safe = sanitize(&text);
            let unsafe_char = |c: char| {
                (c.is_control() && c != '\n' && c != '\t')
                    || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{206F}' | '\u{2028}' | '\u{2029}' | '\u{E0000}'..='\u{E007F}')
            };
            prop_assert_eq!(safe.chars().find(|&c| unsafe_char(c)), None);
            prop_assert_eq!(sanitize(&safe), &*safe);
        }

        #[test]
        fn pieces_together_are_what_the_whole_is(text in awkward(), cuts in proptest::collection::vec(0_usize..200, 0..6)) {
            let mut ends: Vec<usize> = cuts.into_iter().filter(|&cut| text.is_char_boundary(cut)).collect();
            ends.push(text.len());
            ends.sort_unstable();
            let mut sanitizer = Sanitizer::default();
            let mut start = 0;
            let mut pieces = String::new();
            for end in ends {
                pieces += &sanitizer.push(&text[start..end]);
                start = end;
            }
            prop_assert_eq!(pieces, &*sanitize(&text));
        }
    }
}
