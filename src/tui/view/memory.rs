//! Where the bytes are: a stacked bar with the budget's mark, and the figures.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{put, put_lines, titled};
use crate::engine::protocol::MemoryFigures;
use crate::size::{format_size, mebibytes, scale};
use crate::tui::app::App;
use crate::tui::figures::byte_rate;
use crate::tui::wrap::text_width;

/// Rows of the panel.
pub(super) const ROWS: u16 = 6;

/// Columns of one entry under the bar.
const LEGEND_COLUMNS: usize = 14;

/// The parts of the bar: bytes, sign, style, name.
fn parts(app: &App) -> [(u64, &'static str, Style, &'static str); 4] {
    let (m, g, t) = (&app.snapshot.memory, &app.glyphs, &app.theme);
    [
        (m.pinned_bytes, g.pinned, t.pinned, "pinned"),
        (m.ring_bytes, g.ring, t.ring, "ring"),
        (m.kv_bytes, g.kv, t.kv, "kv"),
        (m.base_bytes + m.scratch_bytes, g.base, t.base, "base"),
    ]
}

/// The bar over `columns`; its whole length is a little more than the budget, so that what is over it can be seen.
pub(super) fn bar(app: &App, columns: u16) -> Line<'static> {
    let m = &app.snapshot.memory;
    let parts = parts(app);
    let used: u64 = parts.iter().map(|p| p.0).sum();
    // A budget beyond full residency is never reached: the bar ends where nothing more would be kept.
    let budget = if m.full_bytes > 0 { m.budget_bytes.min(m.full_bytes) } else { m.budget_bytes };
    let whole = (budget + budget / 10).max(used).max(1);
    let columns = usize::from(columns);
    let column = |bytes: u64| (bytes as f64 / whole as f64 * columns as f64).round() as usize;
    let reachable = budget == m.budget_bytes && budget > 0;
    let tick = if reachable { column(budget).min(columns.saturating_sub(1)) } else { columns };
    let mut cells: Vec<(&str, Style)> = Vec::with_capacity(columns);
    let mut sum = 0;
    for (bytes, sign, style, _) in parts {
        sum += bytes;
        cells.resize(column(sum).min(columns).max(cells.len()), (sign, style));
    }
    cells.resize(columns, (app.glyphs.free, app.theme.dim));
    if let Some(cell) = cells.get_mut(tick) {
        *cell = (app.glyphs.tick, app.theme.title);
    }
    let mut spans: Vec<Span<'static>> = Vec::new();
    for (sign, style) in cells {
        match spans.last_mut() {
            Some(last) if last.style == style => last.content.to_mut().push_str(sign),
            _ => spans.push(Span::styled(sign.to_owned(), style)),
        }
    }
    Line::from(spans)
}

/// A figure; `-` where nothing is known yet.
pub(super) fn known(value: u64, write: impl Fn(u64) -> String) -> String {
    if value == 0 { "-".to_owned() } else { write(value) }
}

/// `61.8 / 96.0 MiB`, `106.9 MiB / 18.6 GiB`
pub(super) fn of_budget(m: &MemoryFigures) -> String {
    if m.budget_bytes == 0 {
        return "-".to_owned();
    }
    match (scale(m.rss_bytes), scale(m.budget_bytes)) {
        ((held, unit), (budget, same)) if unit == same => format!("{held} / {budget} {unit}"),
        ((held, unit), (budget, other)) => format!("{held} {unit} / {budget} {other}"),
    }
}

fn legend(app: &App, which: std::ops::Range<usize>) -> Line<'static> {
    let mut spans = Vec::new();
    for (bytes, sign, style, name) in &parts(app)[which] {
        spans.push(Span::styled(format!("{sign} "), *style));
        spans.push(Span::styled(format!("{name} "), app.theme.dim));
        let columns = LEGEND_COLUMNS.saturating_sub(3 + name.len());
        // Four figures, so that the next entry stands apart.
        let figure = if *bytes < 100 << 20 { mebibytes(*bytes) } else { (*bytes >> 20).to_string() };
        spans.push(Span::styled(format!("{figure:<columns$}"), app.theme.text));
    }
    Line::from(spans)
}

fn pair(app: &App, items: &[(&'static str, String)]) -> Line<'static> {
    let mut spans = Vec::new();
    for (i, (name, value)) in items.iter().enumerate() {
        let gap = if i > 0 { "  " } else { "" };
        spans.push(Span::styled(format!("{gap}{name} "), app.theme.dim));
        spans.push(Span::styled(value.clone(), app.theme.text));
    }
    Line::from(spans)
}

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect) {
    let m = &app.snapshot.memory;
    let over = m.budget_bytes > 0 && m.rss_bytes > m.budget_bytes + (1 << 20);
    let style = if over { app.theme.error } else { app.theme.text };
    let figures = of_budget(m);
    // Where both do not fit, that the figures stand still is what must be known.
    let roomy = usize::from(area.width) > text_width("MEMORY (held)") + text_width(&figures);
    let title = match (app.frozen, roomy) {
        (false, _) => "MEMORY",
        (true, true) => "MEMORY (held)",
        (true, false) => "HELD",
    };
    let left = if m.available_bytes > 0 { m.available_bytes } else { app.available_bytes };
    // None of the model there is a figure once there are any.
    let file_cache = if m.rss_bytes == 0 { "-".to_owned() } else { mebibytes(m.file_cache_bytes) };
    put_lines(
        frame,
        area,
        [
            titled(title, app.theme.title, vec![Span::styled(figures, style)], area.width),
            bar(app, area.width),
            legend(app, 0..2),
            legend(app, 2..4),
            pair(app, &[("rss", known(m.rss_bytes, mebibytes)), ("file cache", file_cache)]),
            pair(app, &[("machine has left", known(left, format_size))]),
        ],
    );
}

/// Everything in one line, for narrow screens.
pub(super) fn draw_line(frame: &mut Frame, app: &App, area: Rect) {
    let m = &app.snapshot.memory;
    if app.info().is_none() {
        return;
    }
    let bar_columns = (area.width / 4).clamp(6, 24);
    let mut spans = vec![Span::styled(" memory ", app.theme.dim)];
    spans.extend(bar(app, bar_columns).spans);
    spans.push(Span::styled(format!(" {}", of_budget(m)), app.theme.text));
    let mut used: usize = spans.iter().map(|s| text_width(&s.content)).sum();
    let speed = &app.snapshot.speed;
    let mut more = vec![format!("  layers {}", super::layers::resident(app))];
    if speed.disk_bytes_s > 0 {
        more.push(format!("  disk {}", byte_rate(speed.disk_bytes_s)));
    }
    for text in more {
        if used + text.len() < usize::from(area.width) {
            used += text.len();
            spans.push(Span::styled(text, app.theme.dim));
        }
    }
    put(frame, area.x, area.y, Line::from(spans), area.width);
}

/// The rows of the zoomed panel.
pub(super) fn itemised(app: &App) -> Vec<(&'static str, u64, Style, &'static str)> {
    let m = &app.snapshot.memory;
    let (g, t) = (&app.glyphs, &app.theme);
    vec![
        ("weights pinned", m.pinned_bytes, t.pinned, g.pinned),
        ("weights in the ring", m.ring_bytes, t.ring, g.ring),
        ("kv cache", m.kv_bytes, t.kv, g.kv),
        ("scratch of a pass", m.scratch_bytes, t.base, g.base),
        ("program, tokenizer, screen", m.base_bytes, t.base, g.base),
    ]
}
