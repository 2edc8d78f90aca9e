//! Text to the terminal's clipboard by OSC 52, through tmux and screen where they are in between.

use base64::prelude::{BASE64_STANDARD, Engine};

/// Most bytes of a sequence inside of one of screen's.
const SCREEN_CHUNK: usize = 700;

/// What lies between the program and the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Between {
    Nothing,
    Tmux,
    Screen,
}

impl Between {
    pub fn from_environment(environment: impl Fn(&str) -> Option<String>) -> Between {
        if environment("TMUX").is_some_and(|v| !v.is_empty()) {
            Between::Tmux
        } else if environment("STY").is_some_and(|v| !v.is_empty()) {
            Between::Screen
        } else {
            Between::Nothing
        }
    }
}

/// The sequence that hands `text` to the terminal. The text itself is in base64: nothing in it can act.
pub fn sequence(text: &str, between: Between) -> Vec<u8> {
    let inner = format!("\x1b]52;c;{}\x07", BASE64_STANDARD.encode(text));
    match between {
        Between::Nothing => inner.into_bytes(),
        // Once for tmux itself (set-clipboard), once passed through to what tmux runs in.
        Between::Tmux => format!("{inner}\x1bPtmux;{}\x1b\\", inner.replace('\x1b', "\x1b\x1b")).into_bytes(),
        Between::Screen => {
            let chunks = inner.as_bytes().chunks(SCREEN_CHUNK);
            chunks.flat_map(|chunk| [b"\x1bP".as_slice(), chunk, b"\x1b\\".as_slice()].concat()).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_wrapped_for_what_lies_between() {
        assert_eq!(sequence("hi", Between::Nothing), b"\x1b]52;c;aGk=\x07");
        assert_eq!(sequence("hi", Between::Tmux), b"\x1b]52;c;aGk=\x07\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\");
        let long = sequence(&"x".repeat(2000), Between::Screen);
        assert!(long.starts_with(b"\x1bP\x1b]52;c;") && long.ends_with(b"\x1b\\"));
    }
}
