//! What was said, on the screen: Markdown, following and staying, finding, folding.

use crate::terminal::{Terminal, saved_chat};

const ANSWER: &str = "# Lighthouses\n\nA **bold** word, `code` and [a link](http://example.org).\n\n\
    - one\n- two\n\n> quoted\n\n| name | height |\n|---|--:|\n| Pharos | 100 |\n\n```rust\nfn main() {}\n```\n\n日本語 e\u{301}";

fn with(columns: u16, rows: u16, said: &[&str]) -> Terminal {
    let home = tempfile::tempdir().unwrap();
    saved_chat(&home, "20260101-000000", said);
    Terminal::start(columns, rows, &["--resume"], &[], home)
}

#[test]
fn markdown_is_drawn_not_shown() {
    let terminal = with(80, 40, &["Tell me", ANSWER]);
    let screen = terminal.wait_for("日本語");
    for drawn in [
        "Lighthouses",
        "A bold word, code and a link (http://example.org).",
        "• one",
        "▌ quoted",
        "rust [1]",
        "▏ fn main() {}",
    ] {
        assert!(screen.contains(drawn), "{drawn} is missing:\n{screen}");
    }
    assert!(screen.contains("Pharos │    100") && !screen.contains("```") && !screen.contains("**"), "{screen}");
}

#[test]
fn a_window_that_is_scrolled_back_stays_while_text_comes() {
    let long = (0..200).map(|n| format!("line {n}\n\n")).collect::<String>();
    let home = tempfile::tempdir().unwrap();
    saved_chat(&home, "20260101-000000", &["Tell me", &long]);
    let slow = ["--resume", "--disk-limit", "4M", "--budget", "0", "--source", "buffered", "--temp", "0"];
    let terminal = Terminal::start(40, 24, &slow, &[], home);
    terminal.wait_for("answers from here on");
    // Sending goes to the end.
    terminal.keys("\x1b[5~");
    terminal.wait_for("End to follow");
    terminal.line("hello");
    terminal.wait_gone("to follow");
    terminal.wait_for("answering");
    terminal.keys("\x1b[5~");
    let window = |screen: &str| screen.lines().skip(1).take(18).map(str::to_owned).collect::<Vec<_>>();
    let before = window(&terminal.wait_for("to follow"));
    let after = terminal.wait_until("new lines", |s| s.contains("new line"));
    assert_eq!(window(&after), before, "the window moved");
    terminal.keys("\x1b[F");
    terminal.wait_gone("to follow");
}

#[test]
fn words_are_found_from_the_end_and_n_goes_further_back() {
    let said: Vec<String> =
        (0..40).map(|n| if n % 10 == 1 { format!("the keeper number {n}") } else { format!("message {n}") }).collect();
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let terminal = with(80, 24, &said);
    terminal.wait_for("message 39");
    terminal.line("/find KEEPER");
    terminal.wait_for("keeper number 31");
    terminal.keys("n");
    terminal.wait_for("keeper number 21");
    terminal.keys("nn");
    terminal.wait_for("keeper number 1");
    terminal.keys("N");
    terminal.wait_for("keeper number 11");
    terminal.keys("NNN");
    terminal.wait_for("around");
    terminal.line("/find nowhere at all");
    terminal.wait_for("not found");
}

#[test]
fn what_was_thought_is_folded_until_it_is_wanted() {
    let terminal = with(80, 24, &["Why?", "<think>a secret reason of five</think>Because."]);
    let screen = terminal.wait_for("Because.");
    assert!(screen.contains("thought, 5 words") && !screen.contains("secret"), "{screen}");
    terminal.keys("\x1bt");
    terminal.wait_for("a secret reason");
    terminal.line("/think");
    terminal.wait_gone("secret");
}

#[test]
fn ten_megabytes_are_opened_and_walked() {
    let part = "Some words of an answer that goes on.\n\n- one\n- two\n\n```rust\nfn main() {}\n```\n\n".repeat(130);
    let said: Vec<String> =
        (0..2000).map(|n| if n % 2 == 0 { format!("question {n}") } else { part.clone() }).collect();
    assert!(said.iter().map(String::len).sum::<usize>() > 10_000_000);
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let terminal = with(100, 40, &said);
    terminal.wait_for("fn main()");
    terminal.keys("\x1b[1;5H");
    terminal.wait_for("question 0");
    for _ in 0..50 {
        terminal.keys("\x1b[6~");
    }
    terminal.wait_gone("question 0");
    terminal.keys("\x1b[F");
    terminal.wait_gone("to follow");
}
