//! Draws the state; decides nothing.

mod activity;
mod budget;
mod chat;
mod composer;
mod header;
mod help;
mod hints;
pub(crate) mod hit;
pub(crate) mod layer_page;
pub(crate) mod layers;
mod memory;
mod pickers;
mod speed;
mod welcome;
mod zoom;

#[cfg(test)]
mod snapshots;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::app::App;
use super::overlay::{Overlay, Panel};
use super::wrap::{text_width, truncate};

/// Less than this is no place to chat in.
const LEAST: (u16, u16) = (24, 6);
/// From this width on the panels stand beside the chat.
const WIDE_COLUMNS: u16 = 100;
const WIDE_ROWS: u16 = 16;
/// Before the first row of the composer, and as blanks before the others.
const PROMPT_COLUMNS: u16 = 2;

/// Where everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Areas {
    pub header: Rect,
    /// The box around chat and panels; wide screens only.
    pub frame: Option<Rect>,
    pub chat: Rect,
    pub panel: Option<Rect>,
    /// What is going on, where there is no box to carry it.
    pub rule: Option<Rect>,
    pub composer: Rect,
    /// The figures in one line, where there is no panel.
    pub figures: Option<Rect>,
    pub hints: Option<Rect>,
}

/// Whether the screen is too small for anything but saying so.
pub fn is_too_small(app: &App) -> bool {
    app.size.0 < LEAST.0 || app.size.1 < LEAST.1
}

/// Columns of the composer's text.
pub fn composer_columns(app: &App) -> usize {
    // One more is kept for a cursor behind the last character.
    usize::from(app.size.0.saturating_sub(PROMPT_COLUMNS + 1)).max(1)
}

pub fn areas(app: &App) -> Areas {
    let (columns, rows) = app.size;
    let typed = super::composer::rows(app.composer.text(), composer_columns(app)).len();
    let composer_rows = u16::try_from(typed).unwrap_or(u16::MAX).clamp(1, (rows / 3).max(1));
    let at = |y: u16, height: u16| Rect::new(0, y, columns, height);
    let hint_rows = u16::from(rows >= 14);
    let hints = (hint_rows > 0).then(|| at(rows - 1, 1));
    let header = at(0, 1);
    let wide = columns >= WIDE_COLUMNS && rows >= WIDE_ROWS && app.panels().next().is_some();
    if wide {
        let frame = at(1, rows.saturating_sub(1 + hint_rows + composer_rows));
        let panel_columns = (columns / 4).clamp(30, 46);
        let inner = Rect::new(1, frame.y + 1, columns - 2, frame.height.saturating_sub(2));
        let chat = Rect { x: inner.x + 1, width: inner.width - panel_columns - 3, ..inner };
        let panel = Rect { x: columns - 1 - panel_columns, width: panel_columns, ..inner };
        let composer = at(frame.bottom(), composer_rows);
        return Areas {
            header,
            frame: Some(frame),
            chat,
            panel: Some(panel),
            rule: None,
            composer,
            figures: None,
            hints,
        };
    }
    let figures_rows = 1;
    let composer = at(rows.saturating_sub(hint_rows + figures_rows + composer_rows), composer_rows);
    let rule = at(composer.y.saturating_sub(1), 1);
    let chat = at(1, rule.y.saturating_sub(1));
    Areas {
        header,
        frame: None,
        chat,
        panel: None,
        rule: Some(rule),
        composer,
        figures: Some(at(composer.bottom(), figures_rows)),
        hints,
    }
}

/// Lays out what the next frame shows; before each [`draw`].
pub fn prepare(app: &mut App) {
    let chat = areas(app).chat;
    app.transcript.prepare(chat.width, chat.height);
}

/// Draws the whole screen.
pub fn draw(frame: &mut Frame, app: &App) {
    if is_too_small(app) {
        let text = truncate("too small", usize::from(app.size.0), app.glyphs.ellipsis);
        frame.render_widget(Line::from(text), frame.area());
        return;
    }
    let areas = areas(app);
    header::draw(frame, app, areas.header);
    match areas.frame {
        Some(outer) => {
            chat::draw_frame(frame, app, outer, &areas);
        }
        None => {
            if let Some(rule) = areas.rule {
                activity::draw_rule(frame, app, rule);
            }
        }
    }
    chat::draw(frame, app, areas.chat);
    if let Some(panel) = areas.panel {
        draw_panels(frame, app, panel);
    }
    composer::draw(frame, app, areas.composer, app.overlay.is_none());
    if let Some(figures) = areas.figures {
        memory::draw_line(frame, app, figures);
    }
    if let Some(hints) = areas.hints {
        hints::draw(frame, app, hints);
    }
    if app.overlay.is_none() {
        composer::draw_popup(frame, app, areas.composer);
    }
    draw_overlay(frame, app);
}

fn draw_overlay(frame: &mut Frame, app: &App) {
    let Some(overlay) = &app.overlay else { return };
    let area = overlay_area(app);
    frame.render_widget(Clear, area);
    match overlay {
        Overlay::Help { scroll } => help::draw(frame, app, area, *scroll),
        Overlay::Zoom { panel, layer, sort } => zoom::draw(frame, app, area, *panel, *layer, *sort),
        Overlay::Budget(editor) => budget::draw(frame, app, area, editor),
        Overlay::Models(picker) => pickers::draw_models(frame, app, area, picker),
        Overlay::Chats(picker) => pickers::draw_chats(frame, app, area, picker),
    }
}

/// All but the header and the hints.
fn overlay_area(app: &App) -> Rect {
    let hint_rows = u16::from(app.size.1 >= 14);
    Rect::new(0, 1, app.size.0, app.size.1.saturating_sub(1 + hint_rows))
}

/// The panels one below the other, each as high as it needs, the layers taking what is left.
fn panel_parts(app: &App, area: Rect) -> Vec<(Panel, Rect)> {
    let mut shown: Vec<Panel> = app.panels().collect();
    let fixed = |panel: &Panel| match panel {
        Panel::Memory => memory::ROWS,
        Panel::Speed => speed::ROWS,
        Panel::Layers => 0,
    };
    let needed = |shown: &[Panel]| shown.iter().map(fixed).sum::<u16>() + shown.len().saturating_sub(1) as u16;
    let left = area.height.saturating_sub(needed(&shown));
    if left < 2 {
        shown.retain(|p| *p != Panel::Layers);
    }
    let mut y = area.y;
    let last = shown.last().copied();
    let parts = shown.into_iter().map(|panel| {
        let wanted = if panel == Panel::Layers { left } else { fixed(&panel) };
        let below = area.bottom().saturating_sub(y);
        // The last one has the rest: nothing stands under it.
        let height = if Some(panel) == last { below } else { wanted.min(below) };
        let part = Rect::new(area.x, y, area.width, height);
        y = (y + height + 1).min(area.bottom());
        (panel, part)
    });
    parts.filter(|(_, part)| part.height > 0).collect()
}

fn draw_panels(frame: &mut Frame, app: &App, area: Rect) {
    for (panel, part) in panel_parts(app, area) {
        if part.y > area.y {
            separator(frame, app, area, part.y - 1);
        }
        match panel {
            Panel::Memory => memory::draw(frame, app, inside(part)),
            Panel::Layers => layers::draw(frame, app, inside(part)),
            Panel::Speed => speed::draw(frame, app, inside(part)),
        }
    }
}

fn inside(area: Rect) -> Rect {
    Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area }
}

fn separator(frame: &mut Frame, app: &App, area: Rect, y: u16) {
    let line = app.glyphs.horizontal.repeat(usize::from(area.width));
    put(frame, area.x, y, Line::styled(line, app.theme.border), area.width);
    frame.buffer_mut()[(area.x - 1, y)].set_symbol(app.glyphs.tee_left).set_style(app.theme.border);
    frame.buffer_mut()[(area.right(), y)].set_symbol(app.glyphs.tee_right).set_style(app.theme.border);
}

/// One line at a place, cut at `columns`.
fn put(frame: &mut Frame, x: u16, y: u16, line: Line, columns: u16) {
    let area = Rect::new(x, y, columns, 1).intersection(frame.area());
    if !area.is_empty() {
        frame.render_widget(line, area);
    }
}

/// Lines one below the other, as many as fit.
fn put_lines<'a>(frame: &mut Frame, area: Rect, lines: impl IntoIterator<Item = Line<'a>>) {
    for (y, line) in (area.y..area.bottom()).zip(lines) {
        put(frame, area.x, y, line, area.width);
    }
}

/// A title at the left and a figure at the right of one line.
fn titled<'a>(title: &'a str, title_style: Style, right: Vec<Span<'a>>, columns: u16) -> Line<'a> {
    let used: usize = right.iter().map(|s| text_width(&s.content)).sum();
    let gap = usize::from(columns).saturating_sub(text_width(title) + used).max(1);
    let mut spans = vec![Span::styled(title, title_style), Span::raw(" ".repeat(gap))];
    spans.extend(right);
    Line::from(spans)
}
