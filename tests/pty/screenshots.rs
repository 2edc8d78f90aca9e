//! The README's pictures, drawn from the real screen:
//! `SIPLLM_SCREENSHOTS=assets/screenshots SIPLLM_PTY_MODEL=MODEL.gguf cargo test --release --test pty -- --ignored screenshots`.

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

/// One line of text a run of cells of the same style, each glyph in its own column.
fn svg(screen: &vt100::Screen) -> String {
    let (rows, columns) = screen.size();
    let (rows, columns) = (rows.get(), columns.get());
    let (width, height) = (f32::from(columns) * COLUMN + 16.0, f32::from(rows) * ROW + 16.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" font-size=\"14\" xml:space=\"preserve\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{}\"/>\n",
        COLOURS[0]
    );
    for row in 0..rows {
        let y = f32::from(row) * ROW + 8.0;
        let mut run: Option<(u16, u16, String, &str, bool)> = None;
        for column in 0..=columns {
            let cell = (column < columns).then(|| screen.cell(row, column)).flatten();
            let style = cell.map(|c| {
                let fill = colour(c.fgcolor(), TEXT);
                if c.inverse() {
                    let x = f32::from(column) * COLUMN + 8.0;
                    let _ = writeln!(
                        out,
                        "<rect x=\"{x:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{ROW}\" fill=\"{fill}\"/>",
                        COLUMN + 0.3
                    );
                    return (COLOURS[0], c.bold());
                }
                (fill, c.bold())
            });
            let text = cell.map_or("", |c| if c.has_contents() { c.contents() } else { " " });
            match (&mut run, style) {
                (Some((_, cells, so_far, fill, bold)), Some(style)) if style == (*fill, *bold) => {
                    *cells += 1;
                    so_far.push_str(text);
                }
                (_, style) => {
                    if let Some((first, cells, text, fill, bold)) = run.take().filter(|r| !r.2.trim().is_empty()) {
                        let x = f32::from(first) * COLUMN + 8.0;
                        let weight = if bold { " font-weight=\"bold\"" } else { "" };
                        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                        // The length keeps columns in line whatever the font's own advance is.
                        let _ = writeln!(
                            out,
                            "<text x=\"{x:.1}\" y=\"{:.0}\" textLength=\"{:.1}\" fill=\"{fill}\"{weight}>{text}</text>",
                            y + 14.0,
                            f32::from(cells) * COLUMN
                        );
                    }
                    run = style.map(|(fill, bold)| (column, 1, text.to_owned(), fill, bold));
                }
            }
        }
    }
    out + "</svg>\n"
}

fn keep(terminal: &Terminal, folder: &Path, name: &str) {
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(name).with_extension("svg"), svg(&terminal.cells())).unwrap();
}

#[test]
#[ignore = "draws the README's pictures, where SIPLLM_SCREENSHOTS says"]
fn screenshots() {
    let Some(folder) = std::env::var_os("SIPLLM_SCREENSHOTS") else { return };
    assert!(std::env::var_os("SIPLLM_PTY_MODEL").is_some(), "pictures of a toy would be no help to a reader");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let terminal = Terminal::chat(110, 32, &["--temp", "0", "--budget", "80M"]);
    terminal.wait_ready();
    terminal.line("What is the capital of France?");
    terminal.wait_for("first after");
    terminal.line("Write a long story about a lighthouse keeper.");
    terminal.wait_until("some of a story", |s| {
        let words = |l: &str| l.chars().take(70).filter(|c| c.is_alphabetic()).count();
        s.contains("answering") && s.lines().filter(|l| words(l) > 40).count() > 6
    });
    keep(&terminal, &folder, "chat");
    terminal.line("/layers");
    terminal.wait_for("mean read");
    terminal.keys("\x1b[C\x1b[C\x1b[C\x1b[C");
    terminal.wait_for("layer 4:");
    keep(&terminal, &folder, "layers");
    terminal.keys("\x1b");
    terminal.wait_gone("mean read");
    if !terminal.screen().contains("ask something") {
        terminal.keys("\x03");
    }
    terminal.wait_for("ask something");
    terminal.line("/model");
    terminal.wait_for("Apache");
    terminal.keys("\x1b[B\x1b[B\x1b[B");
    terminal.wait_for("about");
    keep(&terminal, &folder, "models");
}
