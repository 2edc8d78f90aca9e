//! What a terminal sends, as keys, pastes and mouse events. The sequences are those of xterm (ctlseqs), of the Linux
//! console, of rxvt where they differ, and CSI u.
//!
//! Our own, because a paste is bounded while it comes: a reader that gathers it first has already spent the memory.
//!
//! Not responsible for reading (`keys`) or for what a key does (`keymap`, `update`).

use crate::sanitize::sanitize;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};

/// What came.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    Key(KeyEvent),
    /// A bracketed paste, as it came.
    Paste(String),
    /// A paste of more than what was allowed; nothing of it was kept.
    PasteTooLong {
        bytes: usize,
    },
    Mouse(MouseEvent),
}

/// Ends a bracketed paste.
const PASTE_END: &[u8] = b"\x1b[201~";
/// No sequence of a key is longer.
const MOST_SEQUENCE: usize = 64;

/// Puts sequences together from pieces that end anywhere.
#[derive(Debug, Default)]
pub struct Parser {
    /// The beginning of a sequence.
    held: Vec<u8>,
    paste: Option<Paste>,
}

#[derive(Debug, Default)]
struct Paste {
    text: Vec<u8>,
    bytes: usize,
    /// Bytes of [`PASTE_END`] that came last.
    ended: usize,
}

enum Parsed {
    More,
    /// A sequence that means nothing here.
    Nothing,
    PasteBegins,
    Input(Input),
}

impl Parser {
    /// Takes what was read. A paste of more than `most_pasted` bytes is let pass.
    pub fn feed(&mut self, bytes: &[u8], most_pasted: usize, mut emit: impl FnMut(Input)) {
        for byte in bytes {
            if let Some(paste) = &mut self.paste {
                if paste.push(*byte, most_pasted) {
                    emit(std::mem::take(paste).finish());
                    self.paste = None;
                }
                continue;
            }
            self.held.push(*byte);
            match parse(&self.held) {
                Parsed::More if self.held.len() < MOST_SEQUENCE => continue,
                Parsed::More | Parsed::Nothing => {}
                Parsed::PasteBegins => self.paste = Some(Paste::default()),
                Parsed::Input(input) => emit(input),
            }
            self.held.clear();
        }
    }

    /// Whether a sequence has begun that may also be a key of its own: Esc.
    pub fn is_waiting(&self) -> bool {
        !self.held.is_empty()
    }

    /// Takes a paste as ended whose end has not come.
    pub fn end_paste(&mut self) -> Option<Input> {
        self.paste.take().map(Paste::finish)
    }

    /// Nothing more has come: what has begun is all there is.
    pub fn settle(&mut self) -> Option<Input> {
        let held = std::mem::take(&mut self.held);
        match held.as_slice() {
            [0x1b] | [0x1b, 0x1b] => Some(key(KeyCode::Esc, KeyModifiers::NONE)),
            [0x1b, c @ (b'[' | b'O')] => Some(key(KeyCode::Char(char::from(*c)), KeyModifiers::ALT)),
            _ => None,
        }
    }
}

impl Paste {
    /// The next byte; `true` with the last one.
    fn push(&mut self, byte: u8, most: usize) -> bool {
        if byte == PASTE_END[self.ended] {
            self.ended += 1;
            return self.ended == PASTE_END.len();
        }
        // The end begins with the only Esc in it: what looked like it was text.
        let begun = std::mem::take(&mut self.ended);
        for text in PASTE_END[..begun].iter().chain((byte != 0x1b).then_some(&byte)) {
            self.bytes += 1;
            if self.bytes <= most {
                self.text.push(*text);
            } else {
                self.text = Vec::new();
            }
        }
        self.ended = usize::from(byte == 0x1b);
        false
    }

    fn finish(self) -> Input {
        if self.text.len() < self.bytes {
            return Input::PasteTooLong { bytes: self.bytes };
        }
        let lossy = |e: std::string::FromUtf8Error| String::from_utf8_lossy(e.as_bytes()).into_owned();
        Input::Paste(String::from_utf8(self.text).unwrap_or_else(lossy))
    }
}

fn key(code: KeyCode, modifiers: KeyModifiers) -> Input {
    Input::Key(KeyEvent::new(code, modifiers))
}

fn character(c: char, modifiers: KeyModifiers) -> Input {
    let shift = if c.is_uppercase() { KeyModifiers::SHIFT } else { KeyModifiers::NONE };
    key(KeyCode::Char(c), modifiers | shift)
}

/// Whether a character may go to the screen: no control, and none that turns or hides others.
fn is_shown(c: char) -> bool {
    let mut bytes = [0; 4];
    let text = c.encode_utf8(&mut bytes);
    !c.is_control() && *sanitize(text) == *text
}

fn parse(held: &[u8]) -> Parsed {
    match held {
        [] | [0x1b] => Parsed::More,
        [0x1b, b'[', rest @ ..] => csi(rest),
        [0x1b, b'O', rest @ ..] => match rest {
            [] => Parsed::More,
            [b'M', ..] => Parsed::Input(key(KeyCode::Enter, KeyModifiers::NONE)),
            [letter, ..] => letter_key(*letter, KeyModifiers::NONE),
        },
        // Esc before a key is Alt, also before one that is a sequence itself.
        [0x1b, rest @ ..] => match parse(rest) {
            Parsed::Input(Input::Key(mut event)) => {
                event.modifiers |= KeyModifiers::ALT;
                Parsed::Input(Input::Key(event))
            }
            other => other,
        },
        [byte, ..] => plain(*byte, held),
    }
}

/// A character, or a control character as the key that makes it.
fn plain(first: u8, held: &[u8]) -> Parsed {
    let control = |c: u8| Parsed::Input(key(KeyCode::Char(char::from(c)), KeyModifiers::CONTROL));
    match first {
        b'\r' => Parsed::Input(key(KeyCode::Enter, KeyModifiers::NONE)),
        b'\t' => Parsed::Input(key(KeyCode::Tab, KeyModifiers::NONE)),
        0x7f => Parsed::Input(key(KeyCode::Backspace, KeyModifiers::NONE)),
        0 => control(b' '),
        0x01..=0x1a => control(first - 1 + b'a'),
        0x1c..=0x1f => control(first - 0x1c + b'4'),
        _ => match std::str::from_utf8(held) {
            Ok(text) => {
                let shown = text.chars().next().filter(|c| is_shown(*c));
                shown.map_or(Parsed::Nothing, |c| Parsed::Input(character(c, KeyModifiers::NONE)))
            }
            // Its end may be still to come.
            Err(e) if e.error_len().is_none() => Parsed::More,
            Err(_) => Parsed::Nothing,
        },
    }
}

/// What follows `ESC [`.
fn csi(rest: &[u8]) -> Parsed {
    match rest {
        [] | [b'['] => return Parsed::More,
        // The Linux console's F1 to F5.
        [b'[', n @ b'A'..=b'E', ..] => return Parsed::Input(key(KeyCode::F(n - b'A' + 1), KeyModifiers::NONE)),
        [b'[', ..] => return Parsed::Nothing,
        [b'M', button, column, row, ..] => {
            let number = |byte: u8| u16::from(byte.saturating_sub(32));
            return mouse(number(*button), number(*column), number(*row), false);
        }
        [b'M', ..] => return Parsed::More,
        _ => {}
    }
    let Some((last, parameters)) = rest.split_last() else { return Parsed::More };
    if !(0x40..=0x7e).contains(last) {
        return Parsed::More;
    }
    if let [b'<', numbers @ ..] = parameters {
        let mut numbers = std::str::from_utf8(numbers).unwrap_or_default().split(';').map(|n| n.parse::<u16>());
        return match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(button)), Some(Ok(column)), Some(Ok(row))) => mouse(button, column, row, *last == b'm'),
            _ => Parsed::Nothing,
        };
    }
    let numbers = Numbers::parse(parameters);
    let modifiers = numbers.modifiers();
    match (last, numbers.first) {
        (b'~', 200) => Parsed::PasteBegins,
        // The other way of writing CSI u.
        (b'~', 27) => char_key(numbers.third, modifiers, KeyEventKind::Press),
        (b'~', n) => number_key(n, modifiers),
        (b'u', code) => char_key(code, modifiers, numbers.kind),
        // Anything else is what a terminal answers: a cursor's place ends like F3.
        (letter, 0 | 1) if numbers.modifiers <= 16 => letter_key(*letter, modifiers),
        _ => Parsed::Nothing,
    }
}

/// The numbers between `ESC [` and its last letter, as far as they mean something.
struct Numbers {
    first: u32,
    modifiers: u32,
    third: u32,
    kind: KeyEventKind,
}

impl Numbers {
    fn parse(parameters: &[u8]) -> Numbers {
        let text = std::str::from_utf8(parameters).unwrap_or_default();
        let mut groups = text.split(';');
        let mut next = || {
            let mut parts = groups.next().unwrap_or_default().split(':').map(|n| n.parse::<u32>().ok());
            (parts.next().flatten(), parts.next().flatten())
        };
        let (first, (modifiers, kind), third) = (next().0, next(), next().0);
        let kind = if kind == Some(3) { KeyEventKind::Release } else { KeyEventKind::Press };
        Numbers { first: first.unwrap_or(0), modifiers: modifiers.unwrap_or(1), third: third.unwrap_or(0), kind }
    }

    fn modifiers(&self) -> KeyModifiers {
        let bits = self.modifiers.saturating_sub(1);
        [(1, KeyModifiers::SHIFT), (2, KeyModifiers::ALT), (4, KeyModifiers::CONTROL)]
            .into_iter()
            .filter(|(bit, _)| bits & bit != 0)
            .fold(KeyModifiers::NONE, |all, (_, modifier)| all | modifier)
    }
}

fn letter_key(letter: u8, modifiers: KeyModifiers) -> Parsed {
    let code = match letter {
        b'A' => KeyCode::Up,
        b'B' => KeyCode::Down,
        b'C' => KeyCode::Right,
        b'D' => KeyCode::Left,
        b'H' => KeyCode::Home,
        b'F' => KeyCode::End,
        b'P'..=b'S' => KeyCode::F(letter - b'P' + 1),
        b'Z' => return Parsed::Input(key(KeyCode::BackTab, modifiers | KeyModifiers::SHIFT)),
        _ => return Parsed::Nothing,
    };
    Parsed::Input(key(code, modifiers))
}

fn number_key(number: u32, modifiers: KeyModifiers) -> Parsed {
    let code = match number {
        1 | 7 => KeyCode::Home,
        2 => KeyCode::Insert,
        3 => KeyCode::Delete,
        4 | 8 => KeyCode::End,
        5 => KeyCode::PageUp,
        6 => KeyCode::PageDown,
        n @ 11..=15 => KeyCode::F((n - 10) as u8),
        n @ 17..=21 => KeyCode::F((n - 11) as u8),
        n @ 23..=24 => KeyCode::F((n - 12) as u8),
        _ => return Parsed::Nothing,
    };
    Parsed::Input(key(code, modifiers))
}

/// A key by its character's number.
fn char_key(number: u32, modifiers: KeyModifiers, kind: KeyEventKind) -> Parsed {
    let code = match char::from_u32(number) {
        Some('\r') => KeyCode::Enter,
        Some('\t') => KeyCode::Tab,
        Some('\x1b') => KeyCode::Esc,
        Some('\x7f' | '\x08') => KeyCode::Backspace,
        Some(c) if is_shown(c) => KeyCode::Char(c),
        _ => return Parsed::Nothing,
    };
    Parsed::Input(Input::Key(KeyEvent::new_with_kind(code, modifiers, kind)))
}

/// A mouse event from its button's bits and its place, counted from 1.
fn mouse(bits: u16, column: u16, row: u16, released: bool) -> Parsed {
    let button = match bits & 3 {
        0 => MouseButton::Left,
        1 => MouseButton::Middle,
        _ => MouseButton::Right,
    };
    let kind = match (bits & 64 != 0, bits & 32 != 0, bits & 3) {
        (true, _, 0) => MouseEventKind::ScrollUp,
        (true, _, 1) => MouseEventKind::ScrollDown,
        (true, ..) => return Parsed::Nothing,
        (false, true, 3) => MouseEventKind::Moved,
        (false, true, _) => MouseEventKind::Drag(button),
        (false, false, 3) => MouseEventKind::Up(MouseButton::Left),
        (false, false, _) if released => MouseEventKind::Up(button),
        (false, false, _) => MouseEventKind::Down(button),
    };
    let modifiers = [(4, KeyModifiers::SHIFT), (8, KeyModifiers::ALT), (16, KeyModifiers::CONTROL)]
        .into_iter()
        .filter(|(bit, _)| bits & bit != 0)
        .fold(KeyModifiers::NONE, |all, (_, modifier)| all | modifier);
    let (column, row) = (column.saturating_sub(1), row.saturating_sub(1));
    Parsed::Input(Input::Mouse(MouseEvent { kind, column, row, modifiers }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tui::keymap::{Key, key_name};

    const PLENTY: usize = 1 << 20;

    fn inputs(pieces: &[&[u8]], most: usize) -> Vec<Input> {
        let mut parser = Parser::default();
        let mut out = Vec::new();
        for piece in pieces {
            parser.feed(piece, most, |input| out.push(input));
        }
        out.extend(parser.settle());
        out
    }

    fn names(bytes: &[u8]) -> Vec<String> {
        let name = |input: Input| match input {
            Input::Key(event) => key_name(Key::from(event)),
            other => format!("{other:?}"),
        };
        inputs(&[bytes], PLENTY).into_iter().map(name).collect()
    }

    #[test]
    fn a_paste_whose_end_was_lost_can_be_ended() {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        parser.feed(b"\x1b[200~abc", PLENTY, |input| out.push(input));
        assert_eq!((parser.end_paste(), parser.end_paste()), (Some(Input::Paste("abc".into())), None));
        parser.feed(b"x", PLENTY, |input| out.push(input));
        assert_eq!(out, [key(KeyCode::Char('x'), KeyModifiers::NONE)]);
    }

    #[test]
    fn a_character_that_turns_the_others_round_is_no_key() {
        for bytes in ["\u{202e}", "\x1b[8238u", "\u{2066}", "\x1b[27;1;8238~"] {
            assert_eq!(inputs(&[bytes.as_bytes()], PLENTY), [], "{bytes:?}");
        }
    }

    #[test]
    fn keys_are_read_as_xterm_the_linux_console_and_rxvt_send_them() {
        for (bytes, name) in [
            ("a", "a"),
            ("\u{4f60}", "\u{4f60}"),
            ("\r", "Enter"),
            ("\n", "^J"),
            ("\t", "Tab"),
            ("\x7f", "Backspace"),
            ("\x08", "^H"),
            ("\x03", "^C"),
            ("\x1f", "^7"),
            ("\x1b", "Esc"),
            ("\x1b[A", "Up"),
            ("\x1bOB", "Down"),
            ("\x1b[1;5C", "Ctrl-Right"),
            ("\x1b[1;3H", "Alt-Home"),
            ("\x1b[3~", "Delete"),
            ("\x1b[3;5~", "Ctrl-Delete"),
            ("\x1b[5~", "PgUp"),
            ("\x1b[7~", "Home"),
            ("\x1b[8~", "End"),
            ("\x1bOP", "F1"),
            ("\x1b[[A", "F1"),
            ("\x1b[11~", "F1"),
            ("\x1b[15~", "F5"),
            ("\x1b[17~", "F6"),
            ("\x1b[24~", "F12"),
            ("\x1b=", "Alt-="),
            ("\x1b-", "Alt-minus"),
            ("\x1b\r", "Alt-Enter"),
            ("\x1b\x7f", "Alt-Backspace"),
            ("\x1b\u{e9}", "Alt-\u{e9}"),
            ("\x1b\x1b[A", "Alt-Up"),
            ("\x1b[", "Alt-["),
            ("\x1b[13;2u", "Shift-Enter"),
            ("\x1b[27;2;13~", "Shift-Enter"),
            ("\x1b[99;5u", "^C"),
        ] {
            assert_eq!(names(bytes.as_bytes()), [name], "{bytes:?}");
        }
    }

    #[test]
    fn what_terminals_answer_and_what_is_not_known_types_nothing() {
        for bytes in
            ["\x1b[I", "\x1b[O", "\x1b[?62;c", "\x1b[24;80R", "\x1b[1;80R", "\x1b[99z", "\x1b[99~", "\x1b[1;2;3;4;5x"]
        {
            assert_eq!(names(format!("{bytes}z").as_bytes()), ["z"], "{bytes:?}");
        }
        assert_eq!(names(b"\xff\xfez"), ["z"]);
        assert_eq!(names(format!("\x1b[{}z", "1;".repeat(500)).as_bytes()).last().map(String::as_str), Some("z"));
    }

    #[test]
    fn sequences_may_be_cut_anywhere() {
        let bytes = "\x1b[1;5A\u{1f30d}\x1bx\x1b[200~two\r\nlines\x1b[201~\x1b[<0;3;4Mz".as_bytes();
        let whole = inputs(&[bytes], PLENTY);
        assert_eq!(whole.len(), 6);
        for at in 1..bytes.len() {
            assert_eq!(inputs(&[&bytes[..at], &bytes[at..]], PLENTY), whole, "cut at {at}");
        }
    }

    #[test]
    fn a_paste_is_text_whatever_it_holds() {
        let paste = "a\x1b[A\x03\x1b[20\x1b\x1b[201x\x1b";
        let sent = format!("\x1b[200~{paste}\x1b[201~");
        assert_eq!(inputs(&[sent.as_bytes()], PLENTY), [Input::Paste(paste.to_owned())]);
    }

    #[test]
    fn a_paste_beyond_the_limit_keeps_no_memory_and_the_next_keys_count() {
        let mut parser = Parser::default();
        let mut out = Vec::new();
        parser.feed(b"\x1b[200~", 1000, |input| out.push(input));
        for _ in 0..1000 {
            parser.feed(&[b'x'; 10_000], 1000, |input| out.push(input));
            assert!(parser.paste.as_ref().is_some_and(|p| p.text.capacity() <= 2000));
        }
        parser.feed(b"\x1b[201~q", 1000, |input| out.push(input));
        assert_eq!(out, [Input::PasteTooLong { bytes: 10_000_000 }, character('q', KeyModifiers::NONE)]);
        let exactly = format!("\x1b[200~{}\x1b[201~", "x".repeat(1000));
        assert_eq!(inputs(&[exactly.as_bytes()], 1000), [Input::Paste("x".repeat(1000))]);
    }

    #[test]
    fn the_mouse_is_read_in_both_ways_of_writing() {
        let at = |bytes: &str| match inputs(&[bytes.as_bytes()], PLENTY).as_slice() {
            [Input::Mouse(m)] => Some((m.kind, m.column, m.row, m.modifiers)),
            _ => None,
        };
        let none = KeyModifiers::NONE;
        assert_eq!(at("\x1b[<0;10;20M"), Some((MouseEventKind::Down(MouseButton::Left), 9, 19, none)));
        assert_eq!(at("\x1b[<0;10;20m"), Some((MouseEventKind::Up(MouseButton::Left), 9, 19, none)));
        assert_eq!(at("\x1b[<64;1;1M"), Some((MouseEventKind::ScrollUp, 0, 0, none)));
        assert_eq!(at("\x1b[<69;1;1M"), Some((MouseEventKind::ScrollDown, 0, 0, KeyModifiers::SHIFT)));
        assert_eq!(at("\x1b[M !!"), Some((MouseEventKind::Down(MouseButton::Left), 0, 0, none)));
    }
}
