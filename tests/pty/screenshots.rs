//! The README's pictures, drawn from the real screen:
//! `SIPLLM_PTY_MODEL=MODEL.gguf cargo test --release --test pty -- --ignored screenshots`.

use std::fmt::Write;
use std::path::Path;

use crate::terminal::Terminal;

const COLUMN: f32 = 8.4;
const ROW: f32 = 18.0;

/// The sixteen colours, on a dark background.
const COLOURS: [&str; 16] = [
    "#1e1e2e", "#f38ba8", "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#94e2d5", "#bac2de", "#7f849c", "#f38ba8",
    "#a6e3a1", "#f9e2af", "#89b4fa", "#cba6f7", "#94e2d5", "#ffffff",
];
const TEXT: &str = "#cdd6f4";

fn colour(colour: vt100::Color, default: &'static str) -> &'static str {
    match colour {
        vt100::Color::Idx(n) => COLOURS.get(usize::from(n)).copied().unwrap_or(default),
        _ => default,
    }
}

fn svg(screen: &vt100::Screen) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let (width, height) = (f32::from(columns) * COLUMN + 16.0, f32::from(rows) * ROW + 16.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{}\"/>\n",
        COLOURS[0]
    );
    for row in 0..rows {
        for column in 0..columns {
            let Some(cell) = screen.cell(row, column).filter(|c| c.has_contents() && c.contents() != " ") else {
                continue;
            };
            let mut fill = colour(cell.fgcolor(), TEXT);
            let (x, y) = (f32::from(column) * COLUMN + 8.0, f32::from(row) * ROW + 8.0);
            if cell.inverse() {
                let _ =
                    writeln!(out, "<rect x=\"{x}\" y=\"{y}\" width=\"{COLUMN}\" height=\"{ROW}\" fill=\"{fill}\"/>");
                fill = COLOURS[0];
            }
            let weight = if cell.bold() { " font-weight=\"bold\"" } else { "" };
            let text = cell.contents().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
            let _ = writeln!(out, "<text x=\"{x}\" y=\"{}\" fill=\"{fill}\"{weight}>{text}</text>", y + 14.0);
        }
    }
    out + "</svg>\n"
}

fn keep(terminal: &Terminal, name: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("assets/screens");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(name).with_extension("svg"), svg(&terminal.cells())).unwrap();
}

#[test]
#[ignore = "writes the README's pictures"]
fn screenshots() {
    if std::env::var_os("SIPLLM_PTY_MODEL").is_none() {
        // Pictures of a toy would be no help to a reader.
        return;
    }
    let terminal = Terminal::chat(110, 32, &["--temp", "0", "--budget", "75%"]);
    terminal.wait_ready();
    terminal.line("What is the capital of France?");
    terminal.wait_for("first after");
    terminal.line("Write a short story about a lighthouse keeper.");
    terminal.wait_until("half a story", |s| s.contains("answering") && s.lines().filter(|l| l.len() > 60).count() > 16);
    keep(&terminal, "chat");
    terminal.keys("\x03");
    terminal.line("/layers");
    terminal.wait_for("mean read");
    keep(&terminal, "layers");
    terminal.keys("\x1b");
    terminal.line("/model");
    terminal.wait_for("Apache");
    keep(&terminal, "models");
}
