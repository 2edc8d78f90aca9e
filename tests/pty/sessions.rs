//! Saved chats: chosen, renamed, deleted and brought back, exported and imported, searched.

use crate::terminal::{Terminal, data_dir, saved_chat};

fn with_chats() -> Terminal {
    let home = tempfile::tempdir().unwrap();
    saved_chat(&home, "20260101-000000", &["Where do whales sleep?", "In the sea, upright."]);
    saved_chat(&home, "20260102-000000", &["What is a fathom?", "Six feet."]);
    let terminal = Terminal::start(100, 30, &[], &[("SIPLLM_MAX_TOKENS", "4")], home);
    terminal.wait_ready();
    terminal
}

#[test]
fn a_chat_is_chosen_by_a_few_letters_with_its_last_words_in_sight() {
    let terminal = with_chats();
    terminal.line("/sessions");
    terminal.wait_for("What is a fathom?");
    terminal.keys("whal");
    terminal.wait_gone("fathom");
    terminal.wait_for("In the sea, upright.");
    terminal.keys("\r");
    terminal.wait_until("the chat", |s| s.contains("you") && s.contains("assistant") && s.contains("upright"));
}

#[test]
fn a_chat_is_deleted_in_the_list_and_brought_back() {
    let terminal = with_chats();
    terminal.line("/sessions");
    terminal.wait_for("fathom");
    terminal.keys("fath");
    terminal.wait_gone("whales");
    terminal.keys("\x1b[3~");
    terminal.wait_for("/delete undo");
    terminal.escape();
    terminal.line("/delete undo");
    terminal.wait_for("is back");
    terminal.line("/sessions");
    terminal.wait_for("fathom");
}

#[test]
fn a_chat_is_renamed_in_the_list() {
    let terminal = with_chats();
    terminal.line("/sessions");
    terminal.wait_for("fathom");
    terminal.keys("whal");
    terminal.wait_gone("fathom");
    terminal.keys("\x12");
    terminal.wait_for("New title  Where do whales sleep?");
    terminal.keys("\x15Cetacea\r");
    terminal.wait_for("that chat is called \"Cetacea\" now");
    // The filter stands: what no longer matches is out of the list.
    terminal.keys("\x15");
    terminal.wait_until("both chats", |s| s.contains("Cetacea") && s.contains("fathom"));
    let kept = data_dir(&terminal.home).join("chats/20260101-000000.jsonl");
    assert!(std::fs::read_to_string(kept).unwrap().ends_with("\"title\":\"Cetacea\"}\n"));
}

#[test]
fn a_chat_is_renamed_exported_and_imported() {
    let terminal = with_chats();
    terminal.line("/resume 20260101-000000");
    terminal.wait_for("upright");
    terminal.line("/rename Whales at rest");
    terminal.wait_for("this chat is called \"Whales at rest\" now");
    let path = terminal.home.path().join("chat");
    let path = path.to_str().unwrap();
    for ending in ["md", "json", "txt"] {
        terminal.line(&format!("/export {path}.{ending}"));
        terminal.wait_for(&format!("chat.{ending}"));
    }
    let read = |ending: &str| std::fs::read_to_string(format!("{path}.{ending}")).unwrap();
    assert!(read("md").starts_with("# Whales at rest\n\n## you\n"), "{}", read("md"));
    assert!(read("txt").contains("assistant:\nIn the sea, upright."), "{}", read("txt"));
    terminal.line("/clear");
    terminal.wait_gone("upright");
    terminal.line(&format!("/import {path}.json"));
    terminal.wait_for("upright");
    terminal.line("/sessions");
    terminal.wait_until("the chat and its copy", |s| s.matches("Whales at rest").count() >= 2);
}

#[test]
fn all_chats_are_searched() {
    let terminal = with_chats();
    terminal.line("/search UPRIGHT");
    terminal.wait_until("the place", |s| s.contains("20260101-000000") && s.contains("In the sea"));
    terminal.line("/search nowhere");
    terminal.wait_for("is in no saved chat");
}

#[test]
fn what_is_said_is_in_the_file_before_the_program_is_killed() {
    let terminal = with_chats();
    terminal.line("/set temp 0");
    terminal.line("hello");
    terminal.wait_for("first after");
    terminal.signal("KILL");
    let (_, _, _, home) = terminal.wait_end();
    let files = std::fs::read_dir(data_dir(&home).join("chats")).unwrap();
    let kept = files.filter_map(|f| std::fs::read_to_string(f.unwrap().path()).ok()).collect::<String>();
    assert!(kept.contains("\"content\":\"hello\"") && kept.contains("\"role\":\"assistant\",\"content\":\""), "{kept}");
}
