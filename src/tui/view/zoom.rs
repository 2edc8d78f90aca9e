//! One panel on the whole screen, with more to it.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{layers, memory, put_lines, speed};
use crate::engine::protocol::LayerState;
use crate::size::{format_budget, format_size};
use crate::tui::app::App;
use crate::tui::figures::{byte_rate, micros, rate};
use crate::tui::overlay::{Panel, SortBy};

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect, panel: Panel, layer: usize, sort: SortBy) {
    let body = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    let lines = match panel {
        Panel::Memory => memory_lines(app, body.width),
        Panel::Layers => layer_lines(app, body, layer, sort),
        Panel::Speed => speed_lines(app, body.width),
    };
    put_lines(frame, body, lines);
    frame.set_cursor_position((area.x, area.y));
}

fn held(app: &App) -> &'static str {
    if app.frozen { "  (held)" } else { "" }
}

fn memory_lines(app: &App, columns: u16) -> Vec<Line<'static>> {
    let m = &app.snapshot.memory;
    let t = &app.theme;
    let mut lines = vec![
        Line::from(vec![
            Span::styled("MEMORY", t.heading),
            Span::raw(format!("  {}  budget {}{}", memory::of_budget(m), format_budget(m.budget), held(app))),
        ]),
        memory::bar(app, columns),
        Line::default(),
    ];
    let mut sum = 0;
    for (name, bytes, style, sign) in memory::itemised(app) {
        sum += bytes;
        lines.push(Line::from(vec![
            Span::styled(format!("{sign} "), style),
            Span::raw(format!("{name:<28}{:>12}", format_size(bytes))),
        ]));
    }
    let row = |name: &str, bytes: u64| Line::raw(format!("  {name:<28}{:>12}", format_size(bytes)));
    lines.push(row("together", sum));
    lines.push(Line::default());
    for (name, bytes) in [
        ("held, says the kernel (rss)", m.rss_bytes),
        ("the most so far (peak rss)", m.peak_rss_bytes),
        ("budget", m.budget_bytes),
        ("least budget that runs", m.least_bytes),
        ("all in memory from", m.full_bytes),
        ("model in the file cache", m.file_cache_bytes),
        ("the machine has left", m.available_bytes),
    ] {
        lines.push(row(name, bytes));
    }
    lines
}

fn layer_lines(app: &App, body: Rect, cursor: usize, sort: SortBy) -> Vec<Line<'static>> {
    let t = &app.theme;
    let mut lines = vec![Line::from(vec![
        Span::styled("LAYERS", t.heading),
        Span::raw(format!("  {} resident{}", layers::resident(app), held(app))),
    ])];
    lines.extend(layers::map(app, body.width, Some(cursor)));
    lines.push(Line::default());
    if let Some(l) = app.snapshot.layers.get(cursor) {
        let doing = match l.state {
            LayerState::Cold => "at rest",
            LayerState::Loading => "being read",
            LayerState::Computing => "under the kernels",
        };
        let name = layers::name(app, cursor);
        lines.push(Line::styled(
            format!("layer {name}: {}, {} kept in memory, {doing}", format_size(l.bytes), format_size(l.pinned_bytes)),
            t.title,
        ));
    }
    lines.push(Line::default());
    let head = |by: SortBy, text: &'static str, width: usize| {
        let style = if sort == by && by != SortBy::Layer { t.title } else { t.dim };
        Span::styled(format!("{text:>width$}"), style)
    };
    lines.push(Line::from(vec![
        head(SortBy::Layer, "#", 5),
        head(SortBy::Layer, "bytes", 12),
        head(SortBy::Layer, "kept", 6),
        head(SortBy::Read, "read", 9),
        head(SortBy::Wait, "wait", 8),
        head(SortBy::Compute, "compute", 9),
        Span::styled("   mean read    wait compute", t.dim),
    ]));
    let rows = usize::from(body.height).saturating_sub(lines.len());
    let order = layers::sorted(app, sort);
    let at = order.iter().position(|i| *i == cursor).unwrap_or(0);
    let first = (at + 1).saturating_sub(rows.max(1));
    for i in order.into_iter().skip(first).take(rows) {
        let l = &app.snapshot.layers[i];
        let kept = (l.pinned_bytes.min(l.bytes) * 100).checked_div(l.bytes).unwrap_or(0);
        let text = format!(
            "{:>5}{:>12}{:>5}%{:>9}{:>8}{:>9}   {:>9}{:>8}{:>8}",
            layers::name(app, i),
            format_size(l.bytes),
            kept,
            micros(l.read_us),
            micros(l.wait_us),
            micros(l.compute_us),
            micros(l.mean_read_us),
            micros(l.mean_wait_us),
            micros(l.mean_compute_us),
        );
        lines.push(Line::styled(text, if i == cursor { t.selection } else { t.text }));
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
    for (name, value) in [
        ("now", format!("{} tok/s", rate(s.now_tok_s))),
        ("mean of this answer", format!("{} tok/s", rate(s.mean_tok_s))),
        ("reading prompts", format!("{} tok/s", rate(s.prefill_tok_s))),
        ("the bound", format!("{} tok/s, set by {}", rate(s.bound_tok_s), s.limiter.name())),
        ("reached", speed::bound(app)),
        ("disk", format!("{}{}", byte_rate(s.disk_bytes_s), share(s.disk_bytes_s, s.disk_calibrated_bytes_s))),
        ("streamed a token", format_size(s.streamed_bytes_per_token)),
        ("tokens of this answer", s.generated_tokens.to_string()),
    ] {
        lines.push(Line::from(vec![Span::styled(format!("{name:<24}"), t.dim), Span::raw(value)]));
    }
    lines.extend(speed::experts(app).map(Line::raw));
    lines
}
