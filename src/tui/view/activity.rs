//! What is going on, in the line under the chat: loading, reading the prompt, answering, fetching.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Clear;

use super::put;
use crate::engine::protocol::Phase;
use crate::size::format_size;
use crate::tui::app::{App, Model, Pull};
use crate::tui::figures::{byte_rate, duration};
use crate::tui::keymap::Action;
use crate::tui::wrap::{text_width, truncate};
use crate::words::counted;

/// In the edge of the box.
pub(super) fn draw_edge(frame: &mut Frame, app: &App, area: Rect) {
    put_activity(frame, app, area);
}

/// In a line of its own.
pub(super) fn draw_rule(frame: &mut Frame, app: &App, area: Rect) {
    let line = app.glyphs.horizontal.repeat(usize::from(area.width));
    put(frame, area.x, area.y, Line::styled(line, app.theme.border), area.width);
    put_activity(frame, app, area);
}

fn put_activity(frame: &mut Frame, app: &App, area: Rect) {
    let mut room = usize::from(area.width).saturating_sub(4);
    if let Some(scrolled) = scrolled(app) {
        let text = format!(" {scrolled} ");
        let columns = text_width(&text).min(room);
        let x = area.right().saturating_sub(columns as u16 + 1);
        put_over(frame, x, area.y, Line::from(Span::styled(text, app.theme.key)), columns as u16);
        room = room.saturating_sub(columns + 2);
    }
    if let Some((text, warns)) = activity(app) {
        let style = if warns { app.theme.warn } else { app.theme.title };
        let text = format!(" {} ", truncate(&text, room.saturating_sub(2), app.glyphs.ellipsis));
        put_over(frame, area.x + 1, area.y, Line::from(Span::styled(text.clone(), style)), text_width(&text) as u16);
    }
}

/// A line in place of the edge, not in the edge's colour.
fn put_over(frame: &mut Frame, x: u16, y: u16, line: Line, columns: u16) {
    frame.render_widget(Clear, Rect::new(x, y, columns, 1).intersection(frame.area()));
    put(frame, x, y, line, columns);
}

/// Where the window is when it does not follow the end.
fn scrolled(app: &App) -> Option<String> {
    if app.transcript.is_following() {
        return None;
    }
    let end = if app.composer.is_empty() { "End".to_owned() } else { app.keymap.key(Action::Bottom) };
    Some(match app.transcript.new_lines() {
        0 => format!("{end} to follow {}", app.glyphs.down),
        1 => format!("1 new line, {end} to follow {}", app.glyphs.down),
        n => format!("{n} new lines, {end} to follow {}", app.glyphs.down),
    })
}

/// The words, and whether they are a warning.
fn activity(app: &App) -> Option<(String, bool)> {
    let dot = app.glyphs.dot;
    if let Some(pull) = app.pulling() {
        return Some((fetching(pull, app), false));
    }
    if let Model::Loading { what, fraction, .. } = &app.model {
        return Some((format!("loading {dot} {what} {:.0}%", fraction * 100.0), false));
    }
    let answer = app.answer.as_ref()?;
    if answer.stopping {
        return Some(("stopping".to_owned(), true));
    }
    let queued = if app.queued.is_some() { format!(" {dot} 1 message waits") } else { String::new() };
    let ours = app.snapshot.generation == Some(answer.id);
    let text = match app.snapshot.phase {
        Phase::Prefill { done_tokens, total_tokens, layer, left_s } if ours => {
            let layers = app.info().map_or(0, |i| i.layers);
            let left =
                if left_s > 0.0 { format!(" {dot} {} left", duration(f64::from(left_s))) } else { String::new() };
            format!("reading prompt {done_tokens}/{total_tokens} {dot} layer {layer}/{layers}{left}")
        }
        Phase::Decode if ours => {
            format!("answering {dot} {}", counted(app.snapshot.speed.generated_tokens, "token"))
        }
        _ => match answer.prompt_tokens {
            Some((tokens, 0)) => format!("reading prompt of {}", counted(tokens, "token")),
            Some((tokens, reused)) => {
                format!("reading prompt of {}, {reused} known already", counted(tokens, "token"))
            }
            None => "preparing the prompt".to_owned(),
        },
    };
    let seconds = app.now.saturating_duration_since(answer.since).as_secs();
    let time = if seconds > 0 { format!(" {dot} {}", duration(seconds as f64)) } else { String::new() };
    Some((text + &time + &queued, false))
}

/// How far a fetch is, how fast, how long still.
pub(super) fn fetching(pull: &Pull, app: &App) -> String {
    let dot = app.glyphs.dot;
    let p = &pull.progress;
    if p.done_bytes == 0 {
        return format!("{} {dot} {}", pull.name, p.what);
    }
    let seconds = app.now.saturating_duration_since(pull.since).as_secs_f64();
    let here = p.done_bytes.saturating_sub(pull.resumed_bytes.unwrap_or(0));
    let rate = if seconds > 0.5 { here as f64 / seconds } else { 0.0 };
    let mut text = format!("{} {dot} {} {}", pull.name, p.what, format_size(p.done_bytes));
    if p.total_bytes > 0 {
        text.push_str(&format!(" of {} {dot} {}%", format_size(p.total_bytes), p.done_bytes * 100 / p.total_bytes));
    }
    if rate > 0.0 && p.what == "fetching" {
        text.push_str(&format!(" {dot} {}", byte_rate(rate as u64)));
        if p.total_bytes > p.done_bytes {
            text.push_str(&format!(" {dot} {} left", duration((p.total_bytes - p.done_bytes) as f64 / rate)));
        }
    }
    text
}
