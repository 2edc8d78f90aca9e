//! One panel on the whole screen, with more to it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{layer_page, memory, put_lines, speed};
use crate::size::{format_budget, format_size};
use crate::tui::app::App;
use crate::tui::figures::{byte_rate, rate};
use crate::tui::overlay::{Panel, SortBy};
use crate::tui::wrap::truncate;
use crate::words::counted;

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect, panel: Panel, layer: usize, sort: SortBy) {
    let body = body(area);
    let lines = match panel {
        Panel::Memory => memory_lines(app, body.width),
        Panel::Layers => return layer_page::draw(frame, app, body, layer, sort),
        Panel::Speed => speed_lines(app, body.width),
    };
    // Where not all fits, the gaps go first.
    let over = lines.len() > usize::from(body.height);
    put_lines(frame, body, lines.into_iter().filter(|line| !over || line.width() > 0));
}

/// Where the panel's lines stand.
pub(super) fn body(area: Rect) -> Rect {
    Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area }
}

pub(super) fn held(app: &App) -> &'static str {
    if app.frozen { "  (held)" } else { "" }
}

/// A name in front of a size, shortened where the screen is narrow.
fn name_cell(app: &App, name: &str, columns: u16) -> String {
    let width = usize::from(columns).saturating_sub(12).clamp(8, 30);
    let name = truncate(name, width - 1, app.glyphs.ellipsis);
    format!("{name:<width$}")
}

fn memory_lines(app: &App, columns: u16) -> Vec<Line<'static>> {
    let m = &app.snapshot.memory;
    let t = &app.theme;
    let mut lines = vec![
        Line::from(vec![
            Span::styled("MEMORY", t.heading),
            Span::raw(match columns {
                0..48 => format!("  {}{}", memory::of_budget(m), held(app)),
                _ => format!("  {}  budget {}{}", memory::of_budget(m), format_budget(m.budget), held(app)),
            }),
        ]),
        memory::bar(app, columns),
        Line::default(),
    ];
    let mut sum = 0;
    for (name, bytes, style, sign) in memory::itemised(app) {
        sum += bytes;
        lines.push(Line::from(vec![
            Span::styled(format!("{sign} "), style),
            Span::raw(format!("{}{:>10}", name_cell(app, name, columns), format_size(bytes))),
        ]));
    }
    // Without a model nothing is known of one.
    let figure = |bytes: u64| if app.info().is_some() { format_size(bytes) } else { memory::known(bytes, format_size) };
    let row = |name: &str, bytes: u64| Line::raw(format!("  {}{:>10}", name_cell(app, name, columns), figure(bytes)));
    lines.push(row("together", sum));
    let least = format!("least budget, {}", counted(m.least_context, "token"));
    lines.push(Line::default());
    for (name, bytes) in [
        ("held, says the kernel (rss)", m.rss_bytes),
        ("the most so far (peak rss)", m.peak_rss_bytes),
        ("budget", m.budget_bytes),
        (&least, m.least_bytes),
        ("all in memory from", m.full_bytes),
        ("model in the file cache", m.file_cache_bytes),
        ("the machine has left", m.available_bytes),
    ] {
        lines.push(row(name, bytes));
    }
    lines
}

fn speed_lines(app: &App, columns: u16) -> Vec<Line<'static>> {
    let s = &app.snapshot.speed;
    let t = &app.theme;
    let mut lines = vec![
        Line::from(vec![
            Span::styled("SPEED", t.heading),
            Span::raw(format!("  {} tok/s{}", rate(s.now_tok_s), held(app))),
        ]),
        Line::styled(speed::sparkline(app, usize::from(columns)), t.good),
        Line::default(),
    ];
    let share = |now: u64, best: u64| {
        if best > 0 {
            format!("  ({:.0}% of {})", now as f64 / best as f64 * 100.0, byte_rate(best))
        } else {
            String::new()
        }
    };
    let the_bound = match s.bound_tok_s {
        bound if bound > 0.0 => format!("{} tok/s ({})", rate(bound), s.limiter.name()),
        _ => "-".to_owned(),
    };
    for (name, value) in [
        ("now", format!("{} tok/s", rate(s.now_tok_s))),
        ("this answer", format!("{} tok/s", rate(s.mean_tok_s))),
        ("reading prompts", format!("{} tok/s", rate(s.prefill_tok_s))),
        ("the bound", the_bound),
        ("reached", speed::bound(app)),
        (
            "disk",
            format!("{}{}", memory::known(s.disk_bytes_s, byte_rate), share(s.disk_bytes_s, s.disk_calibrated_bytes_s)),
        ),
        ("streamed a token", format_size(s.streamed_bytes_per_token)),
        ("its tokens", s.generated_tokens.to_string()),
    ] {
        let width = if columns < 60 { 18 } else { 24 };
        let name = truncate(name, width - 1, app.glyphs.ellipsis);
        lines.push(Line::from(vec![Span::styled(format!("{name:<width$}"), t.dim), Span::raw(value)]));
    }
    lines.extend(speed::experts(app).map(Line::raw));
    lines
}
