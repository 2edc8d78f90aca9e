//! However it ends, the terminal is as it was.

use portable_pty::CommandBuilder;

use crate::terminal::{Terminal, at_home, data_dir};

/// What undoes every mode that was set, in this order, at the end of all output.
const LEAVE: &[u8] = b"\x1b[?2026l\x1b[?1006l\x1b[?1003l\x1b[?1002l\x1b[?1000l\x1b[?2004l\x1b[0m\x1b[?25h\x1b[?1049l";

/// Waits for the end; what was written after the terminal was given back.
pub fn ends_well(terminal: Terminal, how: &str) -> String {
    let before = terminal.before.clone();
    let (_, bytes, modes, _) = terminal.wait_end();
    assert_eq!(modes, before, "{how}");
    let at = bytes.windows(LEAVE.len()).rposition(|w| w == LEAVE);
    let at = at.unwrap_or_else(|| panic!("{how}: the modes are not undone"));
    let after = &bytes[at + LEAVE.len()..];
    let after = String::from_utf8_lossy(after).into_owned();
    assert!(!after.contains('\x1b'), "{how}: {after:?}");
    after
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
        terminal.wait_until("some of the answer", |s| s.contains("answering"));
        terminal.signal(how);
        let before = terminal.before.clone();
        let (code, bytes, modes, home) = terminal.wait_end();
        assert_eq!(code, 130, "{how}");
        assert_eq!(modes, before, "{how}");
        assert!(bytes.windows(LEAVE.len()).any(|w| w == LEAVE), "{how}");
        let chats = std::fs::read_dir(data_dir(&home).join("chats")).unwrap();
        let kept: String = chats.map(|f| std::fs::read_to_string(f.unwrap().path()).unwrap()).collect();
        assert!(kept.contains("hello") && kept.contains("\"reason\":\"cancelled\""), "{how}: {kept}");
    }
}

#[test]
fn it_stops_for_the_shell_and_goes_on_as_it_was() {
    let home = tempfile::tempdir().unwrap();
    // Only under a shell with job control does Ctrl-Z stop anything.
    let mut command = CommandBuilder::new("bash");
    command.args(["--norc", "--noprofile", "-i"]);
    at_home(&mut command, &home, &[("PS1", "shell> "), ("SIPLLM_MAX_TOKENS", "5")]);
    let terminal = Terminal::run(100, 30, command, home);
    terminal.wait_for("shell>");
    let model = crate::terminal::model();
    terminal.line(&format!("{} chat {} --threads 1", env!("CARGO_BIN_EXE_sipllm"), model.display()));
    terminal.wait_ready();
    terminal.keys("half a line");
    terminal.wait_for("› half a line");
    for _ in 0..3 {
        terminal.keys("\x1a");
        terminal.wait_for("Stopped");
        terminal.line("echo still $((40 + 2))");
        terminal.wait_for("still 42");
        terminal.line("fg");
        terminal.wait_for("› half a line");
    }
    terminal.keys("\x15");
    terminal.line("hello");
    terminal.wait_answers(1);
    terminal.line("/quit");
    terminal.wait_until("the shell", |s| s.contains("fg") && s.trim_end().ends_with("shell>"));
    terminal.line("stty -a | grep -c -- ' icanon'");
    terminal.wait_until("cooked again", |s| s.lines().any(|l| l.trim() == "1"));
    terminal.line("exit");
}

#[test]
fn twenty_columns_and_five_rows_are_said_to_be_too_small_and_still_work() {
    let terminal = Terminal::chat(20, 5, &["--temp", "0"]);
    terminal.wait_for("too small");
    terminal.keys("hello");
    terminal.resize(24, 6);
    terminal.wait_for("› hello");
    terminal.resize(20, 5);
    terminal.wait_for("too small");
    terminal.keys("\r");
    terminal.resize(100, 30);
    terminal.wait_answers(1);
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
fn a_window_that_claims_any_size_is_survived() {
    let terminal = Terminal::chat(80, 24, &[]);
    terminal.wait_ready();
    for (columns, rows) in [(65535, 65535), (65535, 1), (1, 65535), (0, 0), (5000, 5000)] {
        let before = terminal.byte_count();
        terminal.claim_size(columns, rows);
        terminal.signal("WINCH");
        terminal.keys("x");
        // Where it is too small there may be nothing to write.
        let since = std::time::Instant::now();
        while terminal.byte_count() == before && since.elapsed().as_millis() < 500 {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    terminal.resize(100, 30);
    terminal.wait_for("xxxxx");
    terminal.keys("\x15/quit\r");
    ends_well(terminal, "/quit");
}

#[test]
fn a_paste_without_an_end_is_ended_by_ctrl_c() {
    let terminal = Terminal::chat(80, 24, &[]);
    terminal.wait_ready();
    terminal.keys("\x1b[200~half a paste");
    // Apart from the paste, as a hand is.
    std::thread::sleep(std::time::Duration::from_millis(500));
    terminal.keys("\x03");
    terminal.wait_for("half a paste");
    terminal.keys("\x15/quit\r");
    ends_well(terminal, "/quit");
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
