//! Keys as they are bound and commands as they are offered.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::{put, put_lines};
use crate::tui::app::App;
use crate::tui::keymap::Action;
use crate::tui::slash::Slash;
use crate::tui::wrap::{Break, Run, wrap};

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect, scroll: u16) {
    let body = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    let lines = lines(app, body.width);
    let most = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_sub(body.height);
    let first = usize::from(scroll.min(most));
    let below = lines.len().saturating_sub(first + usize::from(body.height));
    put_lines(frame, body, lines.into_iter().skip(first));
    if below > 0 {
        let more = format!(" {below} more {} ", app.glyphs.down);
        let columns = crate::tui::wrap::text_width(&more) as u16;
        put(frame, body.right().saturating_sub(columns), body.bottom() - 1, Line::styled(more, app.theme.key), columns);
    }
    frame.set_cursor_position((area.x, area.y));
}

/// Columns of keys and commands, and from where on what they do stands beside them.
const KEY_COLUMNS: usize = 25;
const BESIDE_COLUMNS: u16 = 64;

/// Everything there is to say, nothing of it cut off.
pub(super) fn lines(app: &App, columns: u16) -> Vec<Line<'static>> {
    let title = |text: &'static str| Line::styled(text, app.theme.heading);
    let row = |keys: String, what: &'static str| {
        let what = [Run::new(what, app.theme.text)];
        let columns = usize::from(columns);
        if columns < usize::from(BESIDE_COLUMNS) {
            let indent = [Run::new("  ", app.theme.text)];
            let mut lines = wrap(&[Run::new(keys, app.theme.key)], columns, &[], &indent, Break::Words);
            lines.extend(wrap(&what, columns, &indent, &indent, Break::Words));
            return lines;
        }
        let first = [Run::new(format!("{keys:<width$} ", width = KEY_COLUMNS - 1), app.theme.key)];
        let rest = [Run::new(" ".repeat(KEY_COLUMNS), app.theme.text)];
        wrap(&what, columns, &first, &rest, Break::Words)
    };
    let mut lines = vec![title("Keys")];
    lines.extend(Action::ALL.iter().flat_map(|a| row(app.keymap.keys(*a), a.description())));
    lines.push(Line::default());
    lines.push(title("In the message, as in a shell"));
    for (keys, what) in [
        ("^A ^E  ^B ^F", "beginning and end of the line, a character back and on"),
        ("Alt-b Alt-f", "a word back and on"),
        ("^W ^U ^K  Alt-d", "cut a word, to the beginning, to the end, the next word"),
        ("^Y ^_", "put back what was cut; undo"),
        ("Up Down  ^P ^N", "earlier and later messages, from the first and last row"),
        ("Tab", "take the offer; write a folded paste out"),
    ] {
        lines.extend(row(keys.to_owned(), what));
    }
    lines.push(Line::default());
    lines.push(title("Commands, also during an answer"));
    lines.extend(Slash::ALL.iter().flat_map(|s| row(format!("/{} {}", s.name(), s.arguments()), s.description())));
    lines.push(Line::default());
    lines.push(title("Signs"));
    let g = &app.glyphs;
    for (sign, what) in [
        (g.layer_full, "layer wholly in memory"),
        (g.layer_part, "layer partly in memory, the rest streamed"),
        (g.layer_cold, "layer on disk"),
        (g.layer_loading, "being read"),
        (g.layer_computing, "under the kernels"),
        (g.tick, "the budget, on the memory bar"),
    ] {
        lines.extend(row(sign.to_owned(), what));
    }
    lines
}
