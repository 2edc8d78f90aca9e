//! Writing a message.

use crate::terminal::{Terminal, script};

fn ready(columns: u16, rows: u16) -> Terminal {
    let terminal = Terminal::chat(columns, rows, &[]);
    terminal.wait_ready();
    terminal
}

#[test]
fn the_composer_grows_to_a_third_and_scrolls() {
    let terminal = ready(80, 24);
    for n in 0..20 {
        terminal.keys(&format!("row {n}\x0a"));
    }
    let screen = terminal.wait_for("row 19");
    assert!(screen.contains("row 13") && !screen.contains("row 12"), "{screen}");
    assert!(screen.contains("memory "), "the figures stay in sight:\n{screen}");
}

#[test]
fn the_line_is_edited_as_in_a_shell() {
    let terminal = ready(80, 24);
    terminal.keys("hello brave world\x17\x17");
    terminal.wait_for("› hello");
    terminal.keys("\x19");
    terminal.wait_for("› hello brave");
    terminal.keys("\x01oh \x05!");
    terminal.wait_for("› oh hello brave !");
    terminal.keys("\x1bb\x1bd");
    terminal.wait_for("› oh hello  !");
    terminal.keys("\x1f");
    terminal.wait_for("› oh hello brave !");
    terminal.keys("\x05\x15x");
    terminal.wait_until("only x", |s| s.lines().any(|l| l.trim_end() == "› x"));
}

#[test]
fn what_was_sent_is_found_again_by_the_next_run() {
    let terminal = ready(80, 24);
    terminal.line("/set temp 0");
    terminal.line("first message");
    terminal.wait_answers(1);
    terminal.keys("\x1b[A");
    terminal.wait_for("› first message");
    terminal.keys("\x1b[A");
    terminal.wait_for("› /set temp 0");
    terminal.keys("\x1b[B\x1b[B");
    terminal.wait_for("› ask something");
    terminal.line("/quit");
    let (_, _, _, home) = terminal.wait_end();
    let next = Terminal::start(80, 24, &[], &[], home);
    next.wait_ready();
    next.keys("\x10\x10");
    next.wait_for("› first message");
}

#[test]
fn a_message_is_written_in_the_editor_of_choice() {
    let home = tempfile::tempdir().unwrap();
    let editor = script(&home, "edit", "grep -q draft \"$1\" && printf 'written\\nelsewhere' > \"$1\"");
    let terminal = Terminal::start(80, 24, &[], &[("EDITOR", &editor)], home);
    terminal.wait_ready();
    terminal.keys("a draft\x07");
    terminal.wait_until("both lines", |s| s.contains("› written") && s.contains("  elsewhere"));
    // An editor that fails changes nothing.
    terminal.keys("\x07");
    terminal.wait_for("as it was");
    terminal.wait_for("› written");
    terminal.line("/quit");
}

#[test]
fn a_folded_paste_is_written_out_by_tab_and_a_huge_line_is_folded_too() {
    let terminal = ready(80, 24);
    let long: String = (0..12).map(|n| format!("line {n}\r")).collect();
    terminal.keys(&format!("\x1b[200~{long}\x1b[201~"));
    terminal.wait_for("[pasted 12 lines]");
    terminal.keys("\t");
    terminal.wait_for("line 11");
    terminal.keys("\x03");
    terminal.wait_gone("line 11");
    terminal.keys(&format!("\x1b[200~{}\x1b[201~", "y".repeat(100_000)));
    terminal.wait_for("[pasted 100000 characters]");
}

/// VmHWM, the most that the program ever held.
#[cfg(target_os = "linux")]
fn peak_kib(terminal: &Terminal) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", terminal.pid())).unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn ten_megabytes_pasted_are_refused_in_words_and_cost_neither_memory_nor_the_draft() {
    let terminal = ready(80, 24);
    terminal.line("before");
    terminal.wait_answers(1);
    terminal.keys("my draft");
    terminal.wait_for("my draft");
    let before = peak_kib(&terminal);
    let text = "all work and no play makes a long paste\r".repeat(250_000);
    terminal.keys(&format!("\x1b[200~{text}\x1b[201~ goes on"));
    let screen = terminal.wait_for("my draft goes on");
    assert!(screen.contains("A paste of 9.5 MiB was left out: a message takes 256.0 KiB"), "{screen}");
    assert!(screen.contains("before"), "{screen}");
    let grown = peak_kib(&terminal) - before;
    assert!(grown < 3 << 10, "{grown} KiB more");
    terminal.keys("\r");
    terminal.wait_gone("\u{203a} my draft");
}

#[test]
fn a_key_whose_sequence_a_slow_link_cuts_in_two_is_one_key() {
    let terminal = ready(80, 24);
    terminal.keys("ac\x1b");
    std::thread::sleep(std::time::Duration::from_millis(2));
    terminal.keys("[Db");
    terminal.wait_for("\u{203a} abc");
}

#[test]
fn files_are_offered_and_put_into_the_message() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("notes-of-mine.txt"), "some notes\n").unwrap();
    let terminal = Terminal::start(80, 24, &[], &[], home);
    terminal.wait_ready();
    terminal.keys("/read ~/no");
    terminal.wait_for("notes-of-mine.txt");
    terminal.keys("\t\r");
    terminal.wait_for("some notes");
}

#[test]
fn an_unknown_command_is_said_and_kept_for_mending() {
    let terminal = ready(80, 24);
    terminal.line("/budgte 80M");
    terminal.wait_for("is no command");
    terminal.wait_for("› /budgte 80M");
}
