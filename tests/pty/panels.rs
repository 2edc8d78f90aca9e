//! Memory, layers and speed: zoomed, walked, sorted, hidden, held; the budget and its forecast.

use crate::terminal::Terminal;

fn answered(columns: u16, rows: u16) -> Terminal {
    let terminal =
        Terminal::start(columns, rows, &["--temp", "0"], &[("SIPLLM_MAX_TOKENS", "6")], tempfile::tempdir().unwrap());
    terminal.wait_ready();
    terminal.line("hello");
    terminal.wait_for("first after");
    terminal
}

#[test]
fn the_layers_are_walked_with_their_tensors_and_sorted() {
    let terminal = answered(120, 40);
    terminal.line("/layers");
    terminal
        .wait_until("the first layer", |s| s.contains("layer 0:") && s.contains("attn_q.weight") && s.contains("Q8_0"));
    terminal.keys("\x1b[C\x1b[C");
    terminal.wait_for("layer 2:");
    terminal.keys("\x1b[C");
    terminal.wait_until("the head", |s| s.contains("head:") && s.contains("output_norm.weight"));
    terminal.keys("sss");
    terminal.wait_until("sorted by waiting", |s| s.contains("↓wait"));
    terminal.keys("s");
    terminal.wait_for("↓compute");
    terminal.keys("S");
    terminal.wait_for("↓wait");
    terminal.keys("\t");
    terminal.wait_for("the bound");
    terminal.keys("q");
    terminal.wait_for("ask something");
}

#[test]
fn panels_are_hidden_one_by_one_and_together() {
    let terminal = answered(120, 40);
    terminal.line("/panel layers");
    terminal.wait_gone("LAYERS");
    assert!(terminal.screen().contains("MEMORY") && terminal.screen().contains("SPEED"));
    terminal.keys("\x1bp");
    terminal.wait_gone("MEMORY");
    terminal.line("/panel layers");
    terminal.wait_for("LAYERS");
    terminal.line("/panel nonsense");
    terminal.wait_for("memory, layers or speed");
}

#[test]
fn figures_are_held_still() {
    // Wide enough for the title beside figures of any length.
    let terminal = answered(200, 50);
    terminal.keys("\x1bx");
    terminal.wait_for("MEMORY (held)");
    terminal.line("/freeze");
    terminal.wait_gone("(held)");
}

#[test]
fn a_budget_is_forecast_before_it_is_asked_for() {
    let terminal = answered(100, 30);
    terminal.line("/budget");
    terminal.wait_for("forecast:");
    terminal.keys("1K");
    terminal.wait_for("it would be refused");
    terminal.keys("\x7f\x7fnonsense\r");
    terminal.wait_until("what is wrong", |s| s.contains("nonsense") && s.contains("type 80M"));
    for _ in 0.."nonsense".len() {
        terminal.keys("\x7f");
    }
    terminal.keys("100M");
    terminal.wait_for("100% of the weights kept");
    terminal.keys("\r");
    terminal.wait_for("budget 100.0 MiB");
}

#[test]
fn reading_a_prompt_shows_how_far_it_is() {
    let slow = ["--disk-limit", "200K", "--budget", "0", "--source", "buffered", "--prefill-batch", "8"];
    let terminal = Terminal::chat(100, 30, &slow);
    terminal.wait_ready();
    terminal.line(&"a prompt of some length ".repeat(6));
    terminal.wait_until("progress", |s| s.contains("reading prompt ") && s.contains("layer ") && s.contains(" left"));
    terminal.keys("\x03");
    terminal.wait_for("stopped before the first word");
}
