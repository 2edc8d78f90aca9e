//! The first line: program, model, context and speed.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::put;
use crate::tui::app::{App, Model};
use crate::tui::figures;
use crate::tui::wrap::{text_width, truncate};
use crate::words::counted;

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect) {
    let mut right = Vec::new();
    if app.info().is_some() {
        right.push(context(app));
        right.push(Span::raw("   "));
        right.push(Span::styled(speed(app), app.theme.title));
        right.push(Span::raw(" "));
    }
    let used: usize = right.iter().map(|s| text_width(&s.content)).sum();
    let room = usize::from(area.width).saturating_sub(used + 2);
    let name = if room > 30 { " sipllm  " } else { " " };
    let model = truncate(&model(app), room.saturating_sub(name.len()), app.glyphs.ellipsis);
    let gap = room.saturating_sub(text_width(name) + text_width(&model)) + 2;
    let mut spans =
        vec![Span::styled(name, app.theme.title), Span::styled(model, app.theme.text), Span::raw(" ".repeat(gap))];
    spans.extend(right);
    put(frame, area.x, area.y, Line::from(spans), area.width);
}

fn model(app: &App) -> String {
    match &app.model {
        Model::None => "no model".to_owned(),
        Model::Loading { path, .. } => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
        Model::Ready(info) => {
            let dot = app.glyphs.dot;
            format!("{} {dot} {} {dot} {}", info.name, info.quantization, counted(info.layers, "layer"))
        }
    }
}

/// How full the context is; it warns before it is full.
fn context(app: &App) -> Span<'static> {
    let (used, all) = (app.snapshot.context_used, app.context());
    let full = all > 0 && u64::from(used) * 100 >= u64::from(all) * 85;
    let style = if full { app.theme.warn } else { app.theme.dim };
    Span::styled(format!("ctx {used}/{all}"), style)
}

/// The speed now, else of the last answer.
fn speed(app: &App) -> String {
    let s = &app.snapshot.speed;
    let rate = if s.now_tok_s > 0.0 && app.answer.is_some() { s.now_tok_s } else { s.mean_tok_s };
    format!("{} tok/s", figures::rate(rate))
}
