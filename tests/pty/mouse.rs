//! The mouse, once it is wanted.

use crate::terminal::{Terminal, saved_chat};

/// A click at a column and row of the screen, counted from 1.
fn click(terminal: &Terminal, column: usize, row: usize) {
    terminal.keys(&format!("\x1b[<0;{column};{row}M\x1b[<0;{column};{row}m"));
}

/// Clicks on the first place that shows this.
fn click_on(terminal: &Terminal, what: &str) {
    let screen = terminal.wait_for(what);
    let (row, line) = screen.lines().enumerate().find(|(_, l)| l.contains(what)).unwrap();
    let column = line[..line.find(what).unwrap()].chars().count();
    click(terminal, column + 1, row + 1);
}

#[test]
fn the_mouse_is_left_to_the_terminal_until_it_is_asked_for() {
    let terminal = Terminal::chat(100, 30, &[]);
    terminal.wait_ready();
    let asked = |t: &Terminal| String::from_utf8_lossy(&t.bytes()).contains("\x1b[?1000h");
    assert!(!asked(&terminal));
    terminal.line("/mouse");
    terminal.wait_for("mouse on");
    assert!(asked(&terminal));
    terminal.line("/mouse");
    terminal.wait_for("mouse off");
    assert!(String::from_utf8_lossy(&terminal.bytes()).contains("\x1b[?1000l"));
}

#[test]
fn clicks_zoom_panels_walk_layers_unfold_thoughts_and_copy_code() {
    let home = tempfile::tempdir().unwrap();
    saved_chat(&home, "20260101-000000", &["Why?", "<think>a secret</think>Because.\n\n```sh\nls\n```"]);
    let terminal = Terminal::start(120, 40, &["--resume"], &[("SIPLLM_MOUSE", "true")], home);
    terminal.wait_for("Because.");
    terminal.wait_for("answers from here on");
    click_on(&terminal, "thought, 2 words");
    terminal.wait_for("a secret");
    click_on(&terminal, "sh [1]");
    terminal.wait_for("sent 2 bytes");
    click_on(&terminal, "LAYERS");
    terminal.wait_for("layer 0:");
    // The map's second sign.
    click(&terminal, 3, 3);
    terminal.wait_for("layer 1:");
    click_on(&terminal, "kept   ");
    terminal.wait_for("↓kept");
    terminal.escape();
    terminal.keys("hello");
    terminal.wait_for("› hello");
    click(&terminal, 3, 39);
    terminal.keys("oh ");
    terminal.wait_for("› oh hello");
}

#[test]
fn the_wheel_scrolls_and_a_click_on_the_edge_goes_back_to_the_end() {
    let long = (0..200).map(|n| format!("line {n}\n\n")).collect::<String>();
    let home = tempfile::tempdir().unwrap();
    saved_chat(&home, "20260101-000000", &["Tell me", &long]);
    let terminal = Terminal::start(80, 24, &["--resume"], &[("SIPLLM_MOUSE", "true")], home);
    terminal.wait_for("line 199");
    for _ in 0..10 {
        terminal.keys("\x1b[<64;10;10M");
    }
    click_on(&terminal, "End to follow");
    terminal.wait_gone("to follow");
    terminal.wait_for("line 199");
}
