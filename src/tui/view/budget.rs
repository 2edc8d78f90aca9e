//! The budget editor: a slider from the least to full residency, what is typed, and what would come of it.

use ratatui::Frame;
use ratatui::layout::{Position, Rect};
use ratatui::text::{Line, Span};

use super::put_lines;
use crate::engine::protocol::Budget;
use crate::size::format_size;
use crate::tui::app::App;
use crate::tui::figures::rate;
use crate::tui::forecast::outlook;
use crate::tui::overlay::BudgetEditor;
use crate::tui::update::{edited, edited_bytes, within};
use crate::tui::wrap::{Break, Run, text_width, wrap};
use crate::words::counted;

/// The slider's row, from the top.
const SLIDER_ROW: u16 = 3;

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect, editor: &BudgetEditor) {
    let m = &app.snapshot.memory;
    let t = &app.theme;
    let bytes = edited_bytes(app, editor);
    let columns = slider_columns(area);
    let range = m.full_bytes.saturating_sub(m.least_bytes).max(1) as f64;
    let at = |bytes: u64| {
        ((bytes.saturating_sub(m.least_bytes) as f64 / range).min(1.0) * (columns - 1) as f64).round() as usize
    };
    let (here, now) = (at(bytes), at(m.budget_bytes));
    let slider: Vec<Span> = (0..columns)
        .map(|i| match i {
            i if i == here => Span::styled(app.glyphs.layer_full, t.computing),
            i if i == now => Span::styled(app.glyphs.tick, t.title),
            i if i < here => Span::styled(app.glyphs.filled, t.pinned),
            _ => Span::styled(app.glyphs.free, t.dim),
        })
        .collect();
    let (least, full) = (format_size(m.least_bytes), format_size(m.full_bytes));
    let gap = columns.saturating_sub(least.len() + full.len()).max(1);
    let in_use = if area.width < 48 { String::new() } else { format!(", in use {}", format_size(m.rss_bytes)) };
    let mut lines = vec![
        Line::default(),
        Line::from(vec![
            Span::styled("Budget  ", t.heading),
            Span::styled(format_size(bytes), t.title),
            Span::styled(format!("   now {}{in_use}", format_size(m.budget_bytes)), t.dim),
        ]),
        Line::default(),
        Line::from(slider),
        Line::styled(format!("{least}{}{full}", " ".repeat(gap)), t.dim),
        Line::default(),
    ];
    let body = Rect { x: area.x + 2, width: area.width.saturating_sub(4), ..area };
    for line in forecast(app, edited(app, editor), bytes) {
        let runs = line.spans.iter().map(|s| Run::new(s.content.clone(), line.style)).collect::<Vec<_>>();
        lines.extend(wrap(&runs, usize::from(body.width), &[], &[], Break::Words));
    }
    lines.push(Line::default());
    let ask = if body.width < 48 { "80M, 60%, auto, +10%: " } else { "type 80M, 60%, auto, 0 or +10%: " };
    lines.push(Line::from(vec![Span::styled(ask, t.dim), Span::styled(editor.typed.clone(), t.text)]));
    if let Some(error) = &editor.error {
        lines.push(Line::styled(error.clone(), t.error));
    }
    // The slider stays where the mouse finds it; below it the gaps go first, then the outlook, but not what is typed.
    let room = usize::from(body.height);
    let slider = usize::from(SLIDER_ROW) + 2;
    while lines.len() > room
        && let Some(gap) = lines.iter().skip(slider).position(|line| line.width() == 0)
    {
        lines.remove(slider + gap);
    }
    let typed_rows = 1 + usize::from(editor.error.is_some());
    while lines.len() > room && lines.len() > slider + typed_rows {
        lines.remove(lines.len() - typed_rows - 1);
    }
    let typed_row = lines.len() - typed_rows;
    put_lines(frame, body, lines);
    let x = body.x + text_width(ask) as u16 + editor.typed.chars().count() as u16;
    frame.set_cursor_position((x.min(body.right()), (body.y + typed_row as u16).min(body.bottom().saturating_sub(1))));
}

/// Columns of the slider.
fn slider_columns(area: Rect) -> usize {
    usize::from(area.width).saturating_sub(4).clamp(2, 100)
}

/// The budget at a place on the slider.
pub(super) fn slider_budget(app: &App, area: Rect, at: Position) -> Option<Budget> {
    let m = &app.snapshot.memory;
    let column = usize::from(at.x.checked_sub(area.x + 2)?);
    if at.y != area.y + SLIDER_ROW || column >= slider_columns(area) {
        return None;
    }
    let share = column as f64 / (slider_columns(area) - 1) as f64;
    Some(within(m.least_bytes + (m.full_bytes.saturating_sub(m.least_bytes) as f64 * share) as u64, m))
}

fn forecast(app: &App, budget: Budget, bytes: u64) -> Vec<Line<'static>> {
    let m = &app.snapshot.memory;
    let t = &app.theme;
    let Some(context) = app.context_with(bytes) else {
        let in_use = counted(app.snapshot.context_used.max(1), "token");
        let why = match app.load.context {
            Some(_) => format!("under the least that runs, {}", format_size(m.least_bytes)),
            None => format!("under the least for the {in_use} in use"),
        };
        return vec![Line::styled(format!("{why}: it would be refused"), t.warn)];
    };
    let Some(o) = outlook(app, bytes) else {
        return vec![Line::styled("no forecast: the model's full size is not known yet", t.dim)];
    };
    let speed = o.tok_s.map_or_else(
        || "speed not known before the first answer".to_owned(),
        |r| format!("about {} tok/s at best", rate(r)),
    );
    let mut lines = vec![Line::raw(format!(
        "forecast: {:.0}% of the weights kept, {} streamed a token, {speed}",
        o.resident * 100.0,
        format_size(o.streamed_bytes_per_token)
    ))];
    if app.load.context.is_none() {
        lines.push(context_line(app, budget, bytes, context));
    }
    // Beyond full residency nothing more is taken.
    let spare = (m.available_bytes + m.rss_bytes).saturating_sub(bytes.min(m.full_bytes));
    if m.available_bytes > 0 {
        let text = format!("the machine would have {} left", format_size(spare));
        lines.push(Line::styled(text, if spare == 0 { t.warn } else { t.dim }));
    }
    lines
}

/// What the budget leaves of the context.
fn context_line(app: &App, budget: Budget, bytes: u64, context: u32) -> Line<'static> {
    let most = app.info().map_or(0, |info| info.context_most);
    match budget {
        Budget::Least => Line::raw(format!("context: up to {}, and the budget grows with it", counted(most, "token"))),
        _ if context < most => {
            let held = counted(context, "token");
            // With less than the least begins with, a chat is soon full.
            let style = if bytes < app.snapshot.memory.least_bytes { app.theme.warn } else { app.theme.text };
            Line::styled(format!("context: {held}, of {most} with more"), style)
        }
        _ => Line::raw(format!("context: {}", counted(most, "token"))),
    }
}
