//! Talking, scrolling, pasting, changing the budget.

use crate::terminal::Terminal;

/// Slow enough to be watched: the golden model's weights at this rate.
const SLOW: &[&str] = &["--disk-limit", "400K", "--budget", "0", "--source", "buffered"];

#[test]
fn an_answer_appears_with_memory_layers_and_speed_beside_it() {
    let terminal = Terminal::chat(120, 40, &["--temp", "0"]);
    terminal.wait_ready();
    terminal.line("hello");
    let screen = terminal.wait_for("first after");
    for word in ["you", "hello", "assistant", "MEMORY", "LAYERS", "SPEED", "tok/s", "pinned"] {
        assert!(screen.contains(word), "{word} is missing:\n{screen}");
    }
}

#[test]
fn a_narrow_screen_has_the_figures_in_one_line() {
    let terminal = Terminal::chat(80, 24, &["--temp", "0"]);
    terminal.wait_ready();
    terminal.line("hello");
    let screen = terminal.wait_for("first after");
    assert!(screen.contains("memory ") && screen.contains("tok/s"), "{screen}");
}

#[test]
fn an_answer_is_stopped_and_kept_and_the_next_one_comes() {
    let terminal = Terminal::chat(120, 40, SLOW);
    terminal.wait_ready();
    terminal.line("hello");
    terminal.wait_for("answering");
    terminal.keys("\x03");
    terminal.wait_for("stopped");
    terminal.line("again");
    terminal.wait_until("a second answer", |s| s.contains("again") && s.matches("assistant").count() == 2);
}

#[test]
fn the_budget_is_changed_in_mid_answer_and_refused_with_a_list() {
    let terminal = Terminal::chat(120, 40, SLOW);
    terminal.wait_ready();
    terminal.line("hello");
    terminal.wait_for("answering");
    terminal.line("/budget 1G");
    terminal.wait_for("1.00 GiB");
    terminal.line("/budget 1K");
    let screen = terminal.wait_for("least");
    assert!(screen.contains("asked"), "{screen}");
}

#[test]
fn a_paste_is_not_sent_line_by_line_and_a_long_one_is_folded() {
    let terminal = Terminal::chat(80, 24, &[]);
    terminal.wait_ready();
    terminal.keys("\x1b[200~first\rsecond\x1b[201~");
    terminal.wait_until("both lines", |s| s.contains("\u{203a} first") && s.contains("\n  second"));
    let long: String = (0..214).map(|n| format!("line {n}\r")).collect();
    terminal.keys(&format!("\x1b[200~{long}\x1b[201~"));
    terminal.wait_for("[pasted 214 lines]");
}

#[test]
fn commands_are_offered_while_they_are_typed() {
    let terminal = Terminal::chat(80, 24, &[]);
    terminal.wait_ready();
    terminal.keys("/bu");
    terminal.wait_for("/budget");
    terminal.keys("\t");
    terminal.keys("auto\r");
    terminal.wait_for("(auto)");
}

#[test]
fn a_chat_is_taken_up_again_by_the_next_run() {
    let terminal = Terminal::chat(80, 24, &["--temp", "0"]);
    terminal.wait_ready();
    terminal.line("remember the lighthouse");
    terminal.wait_for("first after");
    terminal.signal("HUP");
    let (_, _, _, home) = terminal.wait_end();
    let next = Terminal::start(80, 24, &["--resume"], &[], home);
    next.wait_for("remember the lighthouse");
}
