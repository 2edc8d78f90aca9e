//! However it ends, the terminal is as it was.

use crate::terminal::Terminal;

/// What undoes every mode that was set, in this order, at the end of all output.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l";

fn ends_well(terminal: Terminal, how: &str) {
    let before = terminal.before.clone();
    let (_, bytes, modes, _) = terminal.wait_end();
    assert_eq!(modes, before, "{how}");
    let at = bytes.windows(LEAVE.len()).rposition(|w| w == LEAVE);
    let at = at.unwrap_or_else(|| panic!("{how}: the modes are not undone"));
    let after = &bytes[at + LEAVE.len()..];
    assert!(!after.contains(&0x1b), "{how}: {:?}", String::from_utf8_lossy(after));
}

#[test]
fn every_way_out_gives_the_terminal_back() {
    for how in ["/quit", "ctrl-d", "ctrl-c twice", "TERM", "HUP", "INT", "QUIT"] {
        let terminal = Terminal::chat(80, 24, &[]);
        terminal.wait_ready();
        assert_ne!(terminal.modes(), terminal.before, "raw while it runs");
        match how {
            "/quit" => terminal.line("/quit"),
            "ctrl-d" => terminal.keys("\x04"),
            "ctrl-c twice" => {
                terminal.keys("\x03");
                terminal.wait_for("once more");
                terminal.keys("\x03");
            }
            signal => terminal.signal(signal),
        }
        ends_well(terminal, how);
    }
}

#[test]
fn leaving_in_mid_answer_is_as_clean() {
    for how in ["TERM", "HUP"] {
        let terminal = Terminal::chat(120, 40, &["--disk-limit", "400K", "--budget", "0", "--source", "buffered"]);
        terminal.wait_ready();
        terminal.line("hello");
        terminal.wait_for("assistant");
        terminal.signal(how);
        ends_well(terminal, how);
    }
}

#[test]
fn a_storm_of_sizes_down_to_too_small_is_survived() {
    let terminal = Terminal::chat(80, 24, &[]);
    terminal.wait_ready();
    for n in 0..60u16 {
        terminal.resize(20 + n * 3 % 120, 3 + n * 7 % 40);
    }
    terminal.resize(20, 5);
    terminal.wait_for("too small");
    terminal.resize(100, 30);
    terminal.wait_for("MEMORY");
    terminal.line("/help");
    terminal.wait_for("Keys");
}

#[test]
fn no_colour_is_written_where_none_is_wanted() {
    let home = tempfile::tempdir().unwrap();
    let terminal = Terminal::start(120, 40, &[], &[("NO_COLOR", "1")], home);
    terminal.wait_ready();
    let text = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    for sequence in text.split("\x1b[").skip(1) {
        let Some((codes, _)) = sequence.split_once('m') else { continue };
        if !codes.chars().all(|c| c.is_ascii_digit() || c == ';') {
            continue;
        }
        for code in codes.split(';').filter_map(|c| c.parse::<u32>().ok()) {
            assert!(!matches!(code, 30..=38 | 40..=48 | 90..=107), "colour {code} in {codes}");
        }
    }
}

#[test]
fn the_linux_console_gets_ascii() {
    let home = tempfile::tempdir().unwrap();
    let terminal = Terminal::start(120, 40, &[], &[("TERM", "linux")], home);
    let screen = terminal.wait_ready();
    assert!(screen.is_ascii(), "{screen}");
}
