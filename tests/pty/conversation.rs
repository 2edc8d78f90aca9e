//! Turns taken again, carried on, taken back, branched off; settings; a full context.

use crate::terminal::Terminal;

fn brief(arguments: &[&str]) -> Terminal {
    let terminal = Terminal::start(100, 40, arguments, &[("SIPLLM_MAX_TOKENS", "6")], tempfile::tempdir().unwrap());
    terminal.wait_ready();
    terminal
}

fn say(terminal: &Terminal, text: &str, answers: usize) {
    terminal.line(text);
    terminal.wait_answers(answers);
}

#[test]
fn an_answer_is_made_again_and_carried_on() {
    let terminal = brief(&["--temp", "0"]);
    say(&terminal, "hello", 1);
    let before = terminal.wait_for("length limit reached").matches("hello").count();
    terminal.line("/continue");
    terminal.wait_until("the same answer, longer", |s| {
        s.matches("assistant").count() == 1 && s.contains("ask something") && s.contains("ctx 3")
    });
    assert!(before >= 1);
    terminal.line("/regen");
    terminal.wait_for("ask something");
    say(&terminal, "again", 2);
    let screen = terminal.screen();
    assert_eq!(screen.lines().filter(|l| l.contains(" you  ")).count(), 2, "{screen}");
}

#[test]
fn messages_are_taken_back_edited_and_branched_off() {
    let terminal = brief(&["--temp", "0"]);
    say(&terminal, "alpha", 1);
    say(&terminal, "beta", 2);
    terminal.line("/undo");
    terminal.wait_gone("beta");
    say(&terminal, "gamma", 2);
    terminal.line("/edit 1");
    terminal.wait_for("› alpha");
    terminal.wait_gone("gamma");
    terminal.keys(" and omega");
    say(&terminal, "", 1);
    terminal.wait_for("alpha and omega");
    terminal.line("/fork");
    terminal.wait_for("in a branch of its own");
    terminal.line("/sessions");
    terminal.wait_until("both branches", |s| s.matches("branch of 2").count() == 2);
}

#[test]
fn settings_are_shown_and_changed_and_the_system_prompt_too() {
    let terminal = brief(&[]);
    terminal.line("/set temp 0.25");
    terminal.line("/set");
    terminal.wait_until("the list", |s| s.contains("0.25") && s.contains("repeat-penalty"));
    terminal.line("/set temp hot");
    terminal.wait_for("not \"hot\"");
    terminal.keys("\x03");
    terminal.line("/system Answer as a pirate.");
    terminal.wait_for("system prompt from the next message on: Answer as a pirate.");
}

#[test]
fn a_full_context_drops_the_oldest_and_says_so() {
    let terminal = brief(&["--ctx", "96", "--temp", "0"]);
    for n in 0..6 {
        terminal.line(&format!("message number {n} of several"));
        let said = format!("number {n} of");
        terminal.wait_until("an answer", |s| s.contains(&said) && s.contains("ask something"));
    }
    // The last note stands alone: what was dropped in steps is said once.
    terminal.wait_until("the note", |s| s.contains("oldest messages are no") && s.contains("They stay in this chat"));
    terminal.line(&"far too long for it ".repeat(30));
    terminal.wait_for("alone is longer than");
}

#[test]
fn what_is_sent_during_an_answer_waits_its_turn() {
    let home = tempfile::tempdir().unwrap();
    let slow = ["--disk-limit", "80K", "--budget", "0", "--source", "buffered", "--temp", "0"];
    let terminal = Terminal::start(100, 40, &slow, &[("SIPLLM_MAX_TOKENS", "2")], home);
    terminal.wait_ready();
    terminal.line("hello");
    terminal.wait_for("assistant");
    terminal.line("two");
    terminal.wait_for("1 message waits");
    assert!(terminal.wait_answers(2).contains("two"));
}
