//! Lists to choose from: models and saved chats.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{put, put_lines};
use crate::size::{format_budget, format_size};
use crate::tui::app::App;
use crate::tui::figures::rate;
use crate::tui::options::CatalogEntry;
use crate::tui::overlay::Picker;
use crate::tui::picker;
use crate::tui::wrap::{Break, Run, text_width, truncate, wrap};
use crate::words::counted;

/// Rows say less on narrower screens.
const NARROW: u16 = 64;

/// Draws title, filter and rows; returns the area under them.
fn list(frame: &mut Frame, app: &App, area: Rect, title: &str, picker: &Picker, rows: &[String], height: u16) -> Rect {
    let body = Rect { x: area.x + 1, width: area.width.saturating_sub(2), ..area };
    let head = Line::from(vec![
        Span::styled(format!("{title}  "), app.theme.heading),
        Span::styled(picker.filter.clone(), app.theme.text),
    ]);
    put(frame, body.x, body.y, head, body.width);
    let x = body.x + (text_width(title) + 2 + text_width(&picker.filter)) as u16;
    frame.set_cursor_position((x.min(body.right()), body.y));
    let height = usize::from(height);
    let first = first_row(picker, height as u16);
    if picker.matches.is_empty() {
        put(frame, body.x, body.y + 1, Line::styled("nothing here", app.theme.dim), body.width);
    }
    for (y, (i, index)) in (body.y + 1..).zip(picker.matches.iter().enumerate().skip(first).take(height)) {
        let chosen = i == picker.selected;
        let mark = if chosen { app.glyphs.cursor } else { " " };
        let columns = usize::from(body.width);
        let mut text =
            truncate(&format!("{mark} {}", rows.get(*index).map_or("", String::as_str)), columns, app.glyphs.ellipsis);
        text.push_str(&" ".repeat(columns.saturating_sub(text_width(&text))));
        let style = if chosen { app.theme.selection } else { Style::new() };
        put(frame, body.x, y, Line::styled(text, style), body.width);
    }
    // What does not fit is said to be there.
    let (all, shown) = (picker.matches.len(), (first + height).min(picker.matches.len()));
    if all > height {
        let arrow = if shown < all { format!(" {}", app.glyphs.down) } else { String::new() };
        let text = format!(" {shown} of {all}{arrow}");
        let columns = text_width(&text) as u16;
        put(frame, body.right().saturating_sub(columns), body.y, Line::styled(text, app.theme.key), columns);
    }
    let used = 1 + height as u16;
    Rect { y: body.y + used, height: body.height.saturating_sub(used), ..body }
}

/// The first match shown in a list of so many rows.
pub(super) fn first_row(picker: &Picker, height: u16) -> usize {
    (picker.selected + 1).saturating_sub(usize::from(height))
}

/// Rows that the list of models has.
pub(super) fn model_rows(app: &App, area: Rect) -> u16 {
    (app.catalog.len() as u16).clamp(1, area.height.saturating_sub(6).max(1))
}

/// Rows that the list of chats has; its preview has the rest.
pub(super) fn chat_rows(app: &App, area: Rect) -> u16 {
    (app.chats.len() as u16).clamp(1, (area.height / 2).max(1))
}

pub(super) fn draw_models(frame: &mut Frame, app: &App, area: Rect, picker: &Picker) {
    let most_columns = if area.width < NARROW { usize::from(area.width / 2) } else { 44 };
    let name_columns = app.catalog.iter().map(|e| text_width(&e.name)).max().unwrap_or(0).min(most_columns);
    let rows: Vec<String> = app
        .catalog
        .iter()
        .map(|e| {
            let name = truncate(&e.name, name_columns, app.glyphs.ellipsis);
            let fits = match picker::fits(app, e) {
                Some(true) => "fits",
                Some(false) => "streams",
                None => "",
            };
            let size = format_size(e.bytes);
            if area.width < NARROW {
                // What can be done with it before what it is.
                let here = if e.installed.is_some() { "here" } else { "" };
                return format!("{name:name_columns$} {size:>9} {here}");
            }
            let state = state(app, e);
            format!("{name:name_columns$}  {:7} {size:>10}  {fits:8} {state:15} {}", e.quantization, e.licence)
        })
        .collect();
    let below = list(frame, app, area, "Models", picker, &rows, model_rows(app, area));
    if let Some(entry) = picker.chosen().and_then(|i| app.catalog.get(i)) {
        let runs = details(app, entry);
        put_lines(
            frame,
            Rect { y: below.y + 1, height: below.height.saturating_sub(1), ..below },
            wrap(&runs, usize::from(below.width), &[], &[], Break::Words),
        );
    }
}

/// What is here of a model.
fn state(app: &App, entry: &CatalogEntry) -> String {
    let share = |done: u64| (done * 100).checked_div(entry.bytes).unwrap_or(0).min(100);
    match app.pulling().filter(|p| p.name == entry.name) {
        Some(pull) => format!("{} {}%", pull.progress.what, share(pull.progress.done_bytes)),
        None if app.info().is_some_and(|i| Some(&i.path) == entry.installed.as_ref()) => "in use".to_owned(),
        None if entry.installed.is_some() => "installed".to_owned(),
        None if entry.part_bytes > 0 => format!("stopped at {}%", share(entry.part_bytes)),
        None => "to fetch".to_owned(),
    }
}

fn details(app: &App, entry: &CatalogEntry) -> Vec<Run> {
    let t = &app.theme;
    let mut runs = vec![Run::new(format!("{}\n", entry.title), t.title)];
    let Some(path) = &entry.installed else {
        let here = match picker::fits(app, entry) {
            Some(true) => "It fits into memory here".to_owned(),
            Some(false) if picker::too_small_budget(app, entry) => {
                format!("It streams at {}", format_budget(app.load.budget))
            }
            Some(false) => "It is larger than the memory that is left here, and streams".to_owned(),
            None => String::new(),
        };
        let speed = picker::rough_tok_s(app, entry).map_or_else(String::new, |r| {
            format!("{}about {} tok/s, judging by the model in use", if here.is_empty() { "" } else { ", " }, rate(r))
        });
        if !here.is_empty() || !speed.is_empty() {
            runs.push(Run::new(format!("{here}{speed}.\n"), t.text));
        }
        let words = if app.pulling().is_some_and(|p| p.name == entry.name) {
            "Ctrl-C stops the fetch and keeps what has come.".to_owned()
        } else if entry.part_bytes > 0 {
            format!("Enter goes on from {}; Del removes what has come.", format_size(entry.part_bytes))
        } else {
            format!("Enter fetches {}; Ctrl-C stops, Enter later goes on from there.", format_size(entry.bytes))
        };
        runs.push(Run::new(words, t.dim));
        return runs;
    };
    runs.push(Run::new(format!("{}\n", crate::tui::shown_path(path)), t.dim));
    match app.forecasts.iter().find(|f| f.0 == *path).and_then(|f| f.1) {
        Some(f) => {
            let how = match picker::fits(app, entry) {
                Some(true) => "fits into memory here".to_owned(),
                _ if picker::too_small_budget(app, entry) => format!("streams at {}", format_budget(app.load.budget)),
                _ => "streams here".to_owned(),
            };
            let speed = if f.tok_s > 0.0 { format!(", about {} tok/s", rate(f.tok_s)) } else { String::new() };
            runs.push(Run::new(
                format!(
                    "runs from {}, all in memory from {}; {how}{speed}",
                    format_size(f.least_bytes),
                    format_size(f.full_bytes)
                ),
                t.text,
            ));
        }
        None => runs.push(Run::new("Enter loads it; this chat goes on with it", t.dim)),
    }
    runs
}

/// When a chat was begun, from its id: `20260102-090000` is `2026-01-02 09:00`. Others stay as they are.
fn begun(id: &str) -> String {
    let digits = |range: std::ops::Range<usize>| id.get(range).filter(|d| d.bytes().all(|b| b.is_ascii_digit()));
    match (digits(0..4), digits(4..6), digits(6..8), id.get(8..9), digits(9..11), digits(11..13), digits(13..15)) {
        (Some(year), Some(month), Some(day), Some("-"), Some(hour), Some(minute), Some(_)) => {
            format!("{year}-{month}-{day} {hour}:{minute}")
        }
        _ => id.to_owned(),
    }
}

pub(super) fn draw_chats(frame: &mut Frame, app: &App, area: Rect, picker: &Picker) {
    let rows: Vec<String> = app
        .chats
        .iter()
        .map(|c| {
            let branch = c.branch_of.as_ref().map_or_else(String::new, |from| format!("  branch of {}", begun(from)));
            let begun = begun(&c.id);
            if area.width < NARROW {
                // Month, day and time tell chats apart; the preview has the rest.
                return format!("{} {}", begun.get(5..).unwrap_or(&begun), c.title);
            }
            format!("{begun}  {:>12}  {}{branch}", counted(c.messages, "message"), c.title)
        })
        .collect();
    let title = if app.renaming.is_some() { "New title" } else { "Chats" };
    let shown = match &app.renaming {
        Some(renaming) => &Picker { filter: renaming.title.clone(), ..picker.clone() },
        None => picker,
    };
    let below = list(frame, app, area, title, shown, &rows, chat_rows(app, area));
    if let Some(chat) = picker.chosen().and_then(|i| app.chats.get(i)) {
        let title = format!("{}\n", chat.title);
        let mut runs = vec![Run::new(title, app.theme.title)];
        if area.width < NARROW {
            runs.push(Run::new(format!("{}\n", counted(chat.messages, "message")), app.theme.dim));
        }
        runs.push(Run::new(chat.preview.clone(), app.theme.dim));
        let lines = wrap(&runs, usize::from(below.width), &[], &[], Break::Words);
        put_lines(frame, Rect { y: below.y + 1, height: below.height.saturating_sub(1), ..below }, lines);
    }
}
