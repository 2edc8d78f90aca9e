//! The transcript's window, and the box around it and the panels.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders};

use super::{Areas, activity, put, welcome};
use crate::tui::app::App;
use crate::tui::transcript::find_in;

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect) {
    if app.transcript.entries().is_empty() {
        return welcome::draw(frame, app, area);
    }
    for (y, line) in (area.y..area.bottom()).zip(app.transcript.window()) {
        match &app.transcript.find {
            Some(wanted) => put(frame, area.x, y, marked(line, wanted, app.theme.found), area.width),
            None => frame.render_widget(line, Rect::new(area.x, y, area.width, 1)),
        }
    }
}

/// The line with each occurrence of what is looked for marked.
fn marked(line: &Line<'static>, wanted: &str, style: Style) -> Line<'static> {
    let mut spans = Vec::new();
    for span in &line.spans {
        let mut rest: &str = &span.content;
        while let Some(at) = find_in(rest, wanted) {
            let end = at + wanted.len();
            // A match inside of a character of several bytes is none.
            let (Some(before), Some(found), Some(after)) = (rest.get(..at), rest.get(at..end), rest.get(end..)) else {
                break;
            };
            spans.push(Span::styled(before.to_owned(), span.style));
            spans.push(Span::styled(found.to_owned(), span.style.patch(style)));
            rest = after;
        }
        spans.push(Span::styled(rest.to_owned(), span.style));
    }
    Line::from(spans).style(line.style)
}

/// The box, its joint with the panels, and what is going on in its lower edge.
pub(super) fn draw_frame(frame: &mut Frame, app: &App, outer: Rect, areas: &Areas) {
    let block = Block::new().borders(Borders::ALL).border_set(app.glyphs.border).border_style(app.theme.border);
    frame.render_widget(block, outer);
    let Some(panel) = areas.panel else { return };
    let x = panel.x - 1;
    let bottom = outer.bottom() - 1;
    let buffer = frame.buffer_mut();
    for y in outer.y..outer.bottom() {
        let symbol = match y {
            y if y == outer.y => app.glyphs.tee_top,
            y if y == bottom => app.glyphs.tee_bottom,
            _ => app.glyphs.vertical,
        };
        buffer[(x, y)].set_symbol(symbol).set_style(app.theme.border);
    }
    activity::draw_edge(frame, app, Rect::new(outer.x + 1, bottom, x - outer.x - 1, 1));
}
