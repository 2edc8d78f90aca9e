//! Keys as they are bound and commands as they are offered.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{put, put_lines};
use crate::tui::app::App;
use crate::tui::keymap::Action;
use crate::tui::slash::Slash;

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect, scroll: u16) {
    let lines = lines(app);
    let body = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
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

/// Everything there is to say.
pub(super) fn lines(app: &App) -> Vec<Line<'static>> {
    let title = |text: &'static str| Line::styled(text, app.theme.heading);
    let row = |keys: String, what: &'static str| {
        Line::from(vec![Span::styled(format!("{keys:<24} "), app.theme.key), Span::styled(what, app.theme.text)])
    };
    let mut lines = vec![title("Keys")];
    lines.extend(Action::ALL.iter().map(|a| row(app.keymap.keys(*a), a.description())));
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
        lines.push(row(keys.to_owned(), what));
    }
    lines.push(Line::default());
    lines.push(title("Commands, also during an answer"));
    lines.extend(Slash::ALL.iter().map(|s| row(format!("/{} {}", s.name(), s.arguments()), s.description())));
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
        lines.push(row(sign.to_owned(), what));
    }
    lines
}
