//! Out of the program: the terminal's clipboard, a file, a pager.

use crate::terminal::{Terminal, data_dir, saved_chat, script};

fn with(variables: &[(&str, &str)], home: tempfile::TempDir) -> Terminal {
    saved_chat(&home, "20260101-000000", &["Tell me", "Some code:\n\n```sh\nls -l\n```\n\nand\n\n```sh\npwd\n```"]);
    let terminal = Terminal::start(100, 30, &["--resume"], variables, home);
    terminal.wait_for("pwd");
    terminal
}

fn said(terminal: &Terminal) -> String {
    String::from_utf8_lossy(&terminal.bytes()).into_owned()
}

#[test]
fn answers_and_code_blocks_go_to_the_clipboard_and_into_a_file() {
    let terminal = with(&[], tempfile::tempdir().unwrap());
    terminal.line("/copy 2");
    terminal.wait_for("copied.txt");
    // It is pwd.
    assert!(said(&terminal).contains("\x1b]52;c;cHdk\x07"), "{:?}", said(&terminal));
    let file = data_dir(&terminal.home).join("chats/copied.txt");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "pwd");
    terminal.line("/copy all");
    terminal.wait_until("the file holds all", |_| {
        std::fs::read_to_string(&file).is_ok_and(|t| t.contains("you:\nTell me"))
    });
    terminal.line("/copy 7");
    terminal.wait_for("nothing of that number");
}

#[test]
fn the_clipboard_is_reached_through_tmux() {
    let terminal = with(&[("TMUX", "/tmp/tmux-0/default,1,0")], tempfile::tempdir().unwrap());
    terminal.line("/copy 2");
    terminal.wait_for("sent 3 bytes");
    assert!(said(&terminal).contains("\x1bPtmux;\x1b\x1b]52;c;cHdk\x07\x1b\\"), "{:?}", said(&terminal));
}

#[test]
fn the_chat_is_shown_in_the_pager_of_choice() {
    let home = tempfile::tempdir().unwrap();
    let pager = script(&home, "page", "cat > \"$HOME/paged.txt\"");
    let terminal = with(&[("PAGER", &pager)], home);
    let paged = terminal.home.path().join("paged.txt");
    for how in ["/pager\r", "\x1bv", "/find code\rv"] {
        let _ = std::fs::remove_file(&paged);
        terminal.keys(how);
        terminal.wait_until(how, |_| std::fs::read_to_string(&paged).is_ok_and(|t| t.contains("ls -l")));
        terminal.wait_for("pwd");
    }
    // The screen works as before.
    terminal.keys("\x1b");
    std::thread::sleep(std::time::Duration::from_millis(300));
    terminal.keys("still here");
    terminal.wait_for("› still here");
}
