//! The first screen: what to do, in five lines, and the model on offer where there is none.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::activity::fetching;
use super::put_lines;
use crate::size::format_size;
use crate::tui::app::{App, Model};
use crate::tui::forecast::outlook;
use crate::tui::keymap::Action;
use crate::tui::wrap::{Break, Run, text_width, wrap};

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect) {
    let mut lines = Vec::new();
    if area.height > 10 {
        lines.push(Line::default());
    }
    lines.extend(opening(app, area));
    lines.push(Line::default());
    lines.extend(lessons(app, area));
    put_lines(frame, area, lines);
}

fn opening(app: &App, area: Rect) -> Vec<Line<'static>> {
    let mut runs = Vec::new();
    let t = &app.theme;
    match (&app.model, app.offered()) {
        (Model::Ready(info), _) => {
            runs.push(Run::new(info.full_name(), t.title));
            let bytes = app.snapshot.memory.budget_bytes;
            let kept = match outlook(app, bytes) {
                Some(o) if o.resident >= 0.995 => ", all of it to be pinned".to_owned(),
                Some(o) => {
                    format!(
                        ", about {:.0}% to be pinned, less as the chat grows; the rest is streamed",
                        o.resident * 100.0
                    )
                }
                None => String::new(),
            };
            let (weights, budget) = (format_size(info.weights_bytes), format_size(bytes));
            runs.push(Run::new(format!(" is ready: {weights} of weights{kept}. The budget is {budget}."), t.text));
        }
        (Model::Loading { path, .. }, _) => {
            runs.push(Run::new(format!("Loading {}", crate::tui::shown_path(path)), t.text));
        }
        (Model::None, _) if app.pull.as_ref().is_some_and(|p| p.failed.is_none()) => {
            return fetch_lines(app, area);
        }
        (Model::None, Some(entry)) => {
            if let Some(failed) = app.pull.as_ref().and_then(|p| p.failed.as_ref()) {
                runs.push(Run::new(format!("{failed}\n"), t.error));
            }
            let installed = entry.installed.is_some();
            runs.push(Run::new(if installed { "Enter loads " } else { "No model yet. Enter fetches " }, t.text));
            runs.push(Run::new(entry.name.clone(), t.title));
            runs.push(Run::new(format!(" ({}, {})", format_size(entry.bytes), entry.licence), t.dim));
            runs.push(Run::new(
                format!("{}. /model shows others.", if installed { "" } else { " and begins" }),
                t.text,
            ));
        }
        (Model::None, None) => runs.push(Run::new("No model is loaded: /model PATH loads a GGUF file.", t.text)),
    }
    wrap(&runs, usize::from(area.width), &[], &[], Break::Words)
}

/// What is being fetched, with a bar.
fn fetch_lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let Some(pull) = app.pulling() else { return Vec::new() };
    let p = &pull.progress;
    let columns = usize::from(area.width).min(60);
    let share = if p.total_bytes > 0 { p.done_bytes as f64 / p.total_bytes as f64 } else { 0.0 };
    let filled = ((share * columns as f64) as usize).min(columns);
    vec![
        Line::raw(fetching(pull, app)),
        Line::from(vec![
            Span::styled(app.glyphs.filled.repeat(filled), app.theme.good),
            Span::styled(app.glyphs.empty.repeat(columns - filled), app.theme.dim),
        ]),
    ]
}

fn lessons(app: &App, area: Rect) -> Vec<Line<'static>> {
    let key = |action| app.keymap.key(action);
    let budget = format!("{} {}", key(Action::BudgetLess), key(Action::BudgetMore));
    let rows = [
        (format!("{} {}", key(Action::Send), key(Action::Newline)), "send, a new line"),
        (key(Action::Interrupt), "stop an answer; what is written stays"),
        (budget, "less or more memory, at any time, also in mid-answer"),
        (key(Action::Zoom), "figures: memory, layers, speed"),
        ("/".to_owned(), "commands: /model /budget /system /copy /sessions /help"),
    ];
    let columns = rows.iter().map(|(keys, _)| text_width(keys)).max().unwrap_or(0) + 2;
    rows.into_iter()
        .flat_map(|(keys, what)| {
            let first = [Run::new(format!("{keys:<columns$}"), app.theme.key)];
            let rest = [Run::new(" ".repeat(columns), app.theme.dim)];
            wrap(&[Run::new(what, app.theme.dim)], usize::from(area.width), &first, &rest, Break::Words)
        })
        .collect()
}
