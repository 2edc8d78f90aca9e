//! Themes, characters, keys and their mistakes, help.

use crate::terminal::{Terminal, sipllm};

#[test]
fn themes_are_changed_and_a_wrong_one_is_refused() {
    let terminal = Terminal::chat(100, 30, &[]);
    terminal.wait_ready();
    for theme in ["light", "high-contrast", "mono", "default"] {
        terminal.line(&format!("/theme {theme}"));
        terminal.wait_for(&format!("theme {theme}"));
    }
    terminal.line("/theme nonsense");
    terminal.wait_for("not one of default, light");
}

#[test]
fn a_theme_of_the_users_own_is_read_from_a_file() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("mine.toml"), "base = \"mono\"\nuser = \"bold magenta\"\n").unwrap();
    let terminal = Terminal::start(100, 30, &[], &[("SIPLLM_THEME", "~/mine.toml")], home);
    terminal.wait_ready();
    let bytes = String::from_utf8_lossy(&terminal.bytes()).into_owned();
    // The mark before the message is the user's colour.
    assert!(bytes.contains("38;5;5") || bytes.contains("\x1b[35m"), "{bytes:?}");
}

#[test]
fn ascii_is_all_there_is_when_asked_for() {
    let terminal = Terminal::start(120, 40, &["--ascii"], &[("LANG", "C.UTF-8")], tempfile::tempdir().unwrap());
    terminal.wait_ready();
    for view in ["/memory", "/layers", "/speed", "/help", "/model", "/sessions", "/budget"] {
        terminal.line(view);
        let screen = terminal.wait_gone("ask something");
        assert!(screen.is_ascii(), "{view}:\n{screen}");
        terminal.escape();
    }
}

#[test]
fn keys_come_from_the_configuration_and_help_shows_them_as_they_are() {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.toml");
    std::fs::write(&config, "[keymap]\nhelp = \"f9\"\n").unwrap();
    let terminal = Terminal::start(100, 30, &[], &[("SIPLLM_CONFIG", config.to_str().unwrap())], home);
    terminal.wait_ready();
    terminal.keys("\x1b[20~");
    let screen = terminal.wait_for("send the message");
    assert!(!screen.contains("F1 "), "{screen}");
    terminal.keys("\x1b[F");
    terminal.wait_for("F9");
}

/// What the program says when its configuration is wrong, and that the terminal was not touched.
fn refused(keymap: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let config = home.path().join("config.toml");
    std::fs::write(&config, format!("[keymap]\n{keymap}\n")).unwrap();
    let mut command = sipllm(&home, &[("SIPLLM_CONFIG", config.to_str().unwrap())]);
    command.arg("chat");
    command.arg(crate::terminal::model());
    let terminal = Terminal::run(100, 30, command, home);
    let before = terminal.before.clone();
    let (code, bytes, modes, _) = terminal.wait_end();
    assert_ne!(code, 0);
    assert_eq!(modes, before);
    let said = String::from_utf8_lossy(&bytes).into_owned();
    assert!(!said.contains('\x1b'), "{said:?}");
    said
}

#[test]
fn keys_that_cannot_be_are_refused_in_words_before_the_screen_is_touched() {
    assert!(refused("zoom = \"alt-m\"").contains("bound to both models and zoom"));
    assert!(refused("zoom = \"f77\"").contains("not a key"));
    assert!(refused("zoom = \"ctrl-a\"").contains("needs that key"));
    assert!(refused("zoon = \"f5\"").contains("is no action"));
}
