//! How fast it goes, how fast it could, and who is in the way.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::{put_lines, titled};
use crate::engine::protocol::Limiter;
use crate::size::format_size;
use crate::tui::app::App;
use crate::tui::figures::{disk_rate, rate};

/// Rows of the panel.
pub(super) const ROWS: u16 = 5;

/// The last tokens' speed as a line of bars, newest at the right.
pub(super) fn sparkline(app: &App, columns: usize) -> String {
    let times = &app.snapshot.speed.recent_token_ms;
    let shown = &times[times.len().saturating_sub(columns)..];
    let speeds: Vec<f32> = shown.iter().map(|ms| if *ms > 0.0 { 1000.0 / ms } else { 0.0 }).collect();
    let top = speeds.iter().copied().fold(0.0f32, f32::max);
    speeds
        .iter()
        .map(|s| {
            let level = if top > 0.0 { (s / top * 8.0).ceil() as usize } else { 0 };
            app.glyphs.spark[level.clamp(1, 8) - 1]
        })
        .collect()
}

/// `92% of the bound (disk)`
pub(super) fn bound(app: &App) -> String {
    let s = &app.snapshot.speed;
    if s.bound_tok_s <= 0.0 || s.settled_tok_s <= 0.0 {
        return "bound not known yet".to_owned();
    }
    let share = format!("{:.0}% of the bound", s.settled_tok_s / s.bound_tok_s * 100.0);
    match s.limiter {
        Limiter::Unknown => share,
        limiter => format!("{share} ({})", limiter.name()),
    }
}

/// The routed experts that were in memory.
pub(super) fn experts(app: &App) -> Option<String> {
    let e = app.snapshot.experts.as_ref()?;
    Some(format!("experts {}/{} resident, {:.0}% hits", e.resident, e.total, e.hit_rate * 100.0))
}

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect) {
    let s = &app.snapshot.speed;
    let now = format!("{} tok/s", rate(if s.now_tok_s > 0.0 { s.now_tok_s } else { s.mean_tok_s }));
    let room = usize::from(area.width).saturating_sub("SPEED".len() + now.len() + 3);
    let spark = Span::styled(sparkline(app, room), app.theme.good);
    let mut lines = vec![
        titled("SPEED", app.theme.title, vec![spark, Span::raw("  "), Span::styled(now, app.theme.title)], area.width),
        Line::raw(format!("mean {}  prompt {}", rate(s.mean_tok_s), rate(s.prefill_tok_s))),
        Line::raw(disk_rate(&app.snapshot.speed)),
        Line::raw(bound(app)),
    ];
    lines.push(match experts(app) {
        Some(experts) => Line::raw(experts),
        None if app.info().is_none() => Line::raw("- streamed a token"),
        None => Line::raw(format!("{} streamed a token", format_size(s.streamed_bytes_per_token))),
    });
    put_lines(frame, area, lines);
}
