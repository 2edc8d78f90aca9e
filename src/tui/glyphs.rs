//! The signs the screen is drawn with: one set for Unicode terminals, one of ASCII.

use ratatui::symbols::border;

/// Signs for borders, bars, layers and marks; each is one column wide.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Glyphs {
    pub border: border::Set<'static>,
    /// Tees that join a panel to its frame.
    pub tee_left: &'static str,
    pub tee_right: &'static str,
    pub tee_top: &'static str,
    pub tee_bottom: &'static str,
    pub horizontal: &'static str,
    pub vertical: &'static str,
    pub pinned: &'static str,
    pub ring: &'static str,
    pub kv: &'static str,
    pub base: &'static str,
    pub free: &'static str,
    /// The budget's mark on the memory bar.
    pub tick: &'static str,
    pub layer_full: &'static str,
    pub layer_part: &'static str,
    pub layer_cold: &'static str,
    pub layer_loading: &'static str,
    pub layer_computing: &'static str,
    /// Eight heights, lowest first.
    pub spark: [&'static str; 8],
    pub filled: &'static str,
    pub empty: &'static str,
    pub bullet: &'static str,
    pub quote: &'static str,
    pub code_bar: &'static str,
    pub folded: &'static str,
    pub unfolded: &'static str,
    pub dot: &'static str,
    pub ellipsis: &'static str,
    pub down: &'static str,
    pub cursor: &'static str,
}

pub const UNICODE: Glyphs = Glyphs {
    border: border::PLAIN,
    tee_left: "├",
    tee_right: "┤",
    tee_top: "┬",
    tee_bottom: "┴",
    horizontal: "─",
    vertical: "│",
    pinned: "█",
    ring: "▓",
    kv: "▒",
    base: "░",
    free: "·",
    tick: "│",
    layer_full: "■",
    layer_part: "▣",
    layer_cold: "□",
    layer_loading: "◇",
    layer_computing: "▶",
    spark: ["▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"],
    filled: "█",
    empty: "░",
    bullet: "•",
    quote: "▌",
    code_bar: "▏",
    folded: "▸",
    unfolded: "▾",
    dot: "·",
    ellipsis: "…",
    down: "↓",
    cursor: "›",
};

pub const ASCII: Glyphs = Glyphs {
    border: border::Set {
        top_left: "+",
        top_right: "+",
        bottom_left: "+",
        bottom_right: "+",
        vertical_left: "|",
        vertical_right: "|",
        horizontal_top: "-",
        horizontal_bottom: "-",
    },
    tee_left: "+",
    tee_right: "+",
    tee_top: "+",
    tee_bottom: "+",
    horizontal: "-",
    vertical: "|",
    pinned: "#",
    ring: "=",
    kv: "+",
    base: ":",
    free: ".",
    tick: "|",
    layer_full: "#",
    layer_part: "+",
    layer_cold: ".",
    layer_loading: "o",
    layer_computing: ">",
    spark: ["_", ".", ",", "-", "=", "+", "*", "#"],
    filled: "#",
    empty: ".",
    bullet: "*",
    quote: "|",
    code_bar: "|",
    folded: ">",
    unfolded: "v",
    dot: "-",
    ellipsis: "~",
    down: "v",
    cursor: ">",
};

impl Glyphs {
    /// The set for this terminal: ASCII when asked for, on the Linux console and in an explicit C locale.
    pub fn for_terminal(ascii: bool, environment: impl Fn(&str) -> Option<String>) -> Glyphs {
        let set = |name: &str| environment(name).filter(|v| !v.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG"));
        let plain_locale = matches!(locale.as_deref(), Some("C" | "POSIX"));
        let console = matches!(set("TERM").as_deref(), Some("linux" | "dumb" | "vt100" | "vt220" | "ansi"));
        if ascii || console || plain_locale { ASCII } else { UNICODE }
    }

    pub fn is_ascii(&self) -> bool {
        self.bullet.is_ascii()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linux_console_and_the_c_locale_get_ascii() {
        let with = |pairs: &'static [(&str, &str)]| {
            Glyphs::for_terminal(false, |n| pairs.iter().find(|p| p.0 == n).map(|p| p.1.to_owned()))
        };
        assert_eq!(with(&[("TERM", "linux")]), ASCII);
        assert_eq!(with(&[("TERM", "xterm"), ("LANG", "C")]), ASCII);
        assert_eq!(with(&[("TERM", "xterm"), ("LANG", "C"), ("LC_ALL", "en_US.UTF-8")]), UNICODE);
        assert_eq!(with(&[("TERM", "tmux-256color")]), UNICODE);
        assert_eq!(Glyphs::for_terminal(true, |_| None), ASCII);
    }
}
