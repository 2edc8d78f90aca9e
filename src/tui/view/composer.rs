//! The input with its cursor, and the offers above it.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::{PROMPT_COLUMNS, composer_columns, put};
use crate::tui::app::App;
use crate::tui::completion::Popup;
use crate::tui::composer::rows;
use crate::tui::wrap::{text_width, truncate};

const MOST_OFFERS: usize = 8;

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect, focused: bool) {
    let columns = composer_columns(app);
    let text = app.composer.text();
    let all = rows(text, columns);
    let (row, column) = app.composer.cursor_at(columns);
    let height = usize::from(area.height);
    let first = first_row(row, all.len(), height);
    for (i, r) in all.iter().enumerate().skip(first).take(height) {
        let y = area.y + (i - first) as u16;
        let mark = if i == 0 { format!("{} ", app.glyphs.cursor) } else { "  ".to_owned() };
        let shown = text[r.start..r.end].trim_end_matches('\n').replace('\t', "    ");
        let line = Line::from(vec![Span::styled(mark, app.theme.user), Span::styled(shown, app.theme.text)]);
        put(frame, area.x, y, line, area.width);
    }
    if text.is_empty() {
        let words =
            truncate(placeholder(app), usize::from(area.width.saturating_sub(PROMPT_COLUMNS)), app.glyphs.ellipsis);
        put(frame, area.x + PROMPT_COLUMNS, area.y, Line::styled(words, app.theme.dim), area.width - PROMPT_COLUMNS);
    }
    if focused {
        let x = area.x + PROMPT_COLUMNS + u16::try_from(column).unwrap_or(0);
        let y = area.y + u16::try_from(row - first).unwrap_or(0);
        frame.set_cursor_position(Position::new(x.min(area.right().saturating_sub(1)), y));
    }
}

/// The first row shown: the cursor's row is always in sight.
pub(super) fn first_row(cursor_row: usize, rows: usize, height: usize) -> usize {
    (cursor_row + 1).saturating_sub(height).min(rows.saturating_sub(height))
}

/// Where the offers stand, and the first of them shown.
pub(super) fn popup_area(app: &App, composer: Rect) -> Option<(Rect, usize)> {
    let popup = app.popup.as_ref()?;
    let height = popup.offers.len().min(MOST_OFFERS).min(usize::from(composer.y.saturating_sub(2)));
    let first = (popup.selected + 1).saturating_sub(height);
    // The whole width, so that no rest of a line shows at its sides.
    Some((Rect::new(composer.x, composer.y - height as u16, composer.width, height as u16), first))
}

fn placeholder(app: &App) -> &'static str {
    if app.is_offering() {
        return if app.pulling().is_some() { "" } else { "Enter fetches the model and begins" };
    }
    if app.answer.is_some() {
        "the next message waits until this answer is done"
    } else {
        "ask something, or / for commands"
    }
}

/// The offers, over the lines above the composer.
pub(super) fn draw_popup(frame: &mut Frame, app: &App, composer: Rect) {
    let (Some(popup), Some((area, first))) = (&app.popup, popup_area(app, composer)) else { return };
    let shown = popup.offers.iter().enumerate().skip(first).take(usize::from(area.height));
    let name_columns = popup.offers.iter().map(|o| text_width(&o.text)).max().unwrap_or(0);
    let columns = usize::from(area.width);
    frame.render_widget(Clear, area);
    for (y, (i, offer)) in (area.y..area.bottom()).zip(shown) {
        let padded = format!("  {:name_columns$}  {}", offer.text, offer.note);
        let more =
            if y + 1 == area.bottom() { more(popup, first + usize::from(area.height), app) } else { String::new() };
        let room = columns.saturating_sub(1 + text_width(&more));
        let mut text = truncate(&padded, room, app.glyphs.ellipsis);
        text.push_str(&" ".repeat(columns.saturating_sub(text_width(&text) + text_width(&more))));
        text.push_str(&more);
        let style = if i == popup.selected { app.theme.selection } else { app.theme.text };
        put(frame, area.x, y, Line::styled(text, style), area.width);
    }
}

/// How many offers stand outside of the rows shown.
fn more(popup: &Popup, end: usize, app: &App) -> String {
    let (all, below) = (popup.offers.len(), popup.offers.len().saturating_sub(end));
    match below {
        _ if all <= MOST_OFFERS => String::new(),
        0 => format!("  {all} of {all} "),
        _ => format!("  {end} of {all} {} ", app.glyphs.down),
    }
}
