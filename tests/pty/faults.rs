//! Faults, asked for: the terminal is given back, the chat survives what it can. An abort of the process is out of
//! reach of any program; `reset` mends the terminal then.

use crate::lifecycle::ends_well;
use crate::terminal::{Terminal, data_dir};

fn faulty(place: &str) -> Terminal {
    let variables = [("SIPLLM_FAULT", place), ("SIPLLM_MAX_TOKENS", "5")];
    let terminal = Terminal::start(100, 30, &[], &variables, tempfile::tempdir().unwrap());
    terminal.wait_ready();
    terminal.line("hello");
    terminal
}

#[test]
fn a_panic_of_the_screen_gives_the_terminal_back_before_it_is_told() {
    let terminal = faulty("screen");
    let said = ends_well(terminal, "a panic of the screen");
    assert!(said.contains("a fault that was asked for"), "{said:?}");
}

#[test]
fn a_panic_of_the_screen_in_mid_answer_keeps_what_was_answered() {
    let terminal = faulty("answer");
    let (_, _, _, home) = terminal.wait_end();
    let chats = std::fs::read_dir(data_dir(&home).join("chats")).unwrap();
    let said: String = chats.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
    assert!(said.contains("\"role\":\"assistant\"") && said.contains("\"reason\":\"cancelled\""), "{said}");
}

#[test]
fn an_error_of_the_screen_gives_the_terminal_back_before_it_is_told() {
    let terminal = faulty("error");
    let said = ends_well(terminal, "an error of the screen");
    assert!(said.contains("a fault that was asked for"), "{said:?}");
}

#[test]
fn a_panic_of_the_engine_is_told_in_the_chat_and_the_next_message_works() {
    let terminal = faulty("engine");
    terminal.wait_for("a defect in the engine: a fault that was asked for");
    terminal.line("again");
    terminal.wait_answers(1);
    terminal.line("/quit");
    ends_well(terminal, "an engine that panicked");
}
