//! The last line: what was just said, else the keys that matter now.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::put;
use crate::tui::app::App;
use crate::tui::keymap::Action;
use crate::tui::overlay::{Overlay, Panel};
use crate::tui::wrap::{text_width, truncate};

pub(super) fn draw(frame: &mut Frame, app: &App, area: Rect) {
    let room = usize::from(area.width).saturating_sub(2);
    if let Some(said) = app.said() {
        let text = truncate(&said, room, app.glyphs.ellipsis);
        return put(frame, area.x + 1, area.y, Line::styled(text, app.theme.notice), area.width - 1);
    }
    let mut spans = Vec::new();
    let mut used = 0;
    for (key, what) in hints(app) {
        let columns = text_width(&key) + 1 + what.len() + if used > 0 { 3 } else { 0 };
        if key.is_empty() || used + columns > room {
            continue;
        }
        if used > 0 {
            spans.push(Span::raw("   "));
        }
        spans.push(Span::styled(key, app.theme.key));
        spans.push(Span::styled(format!(" {what}"), app.theme.dim));
        used += columns;
    }
    put(frame, area.x + 1, area.y, Line::from(spans), area.width - 1);
}

fn hints(app: &App) -> Vec<(String, &'static str)> {
    let key = |action| app.keymap.key(action);
    let word = |text: &str| text.to_owned();
    match &app.overlay {
        Some(Overlay::Help { .. }) => vec![(word("Esc"), "back"), (word("Up Down Space"), "scroll")],
        Some(Overlay::Zoom { panel: Panel::Layers, .. }) => vec![
            (word("Esc"), "back"),
            (word("Arrows"), "walk the layers"),
            (word("s"), "sort"),
            (word("Tab"), "next panel"),
            (key(Action::Freeze), "freeze"),
        ],
        Some(Overlay::Zoom { .. }) => {
            vec![(word("Esc"), "back"), (word("Tab"), "next panel"), (key(Action::Freeze), "freeze")]
        }
        Some(Overlay::Budget(_)) => vec![
            (word("Enter"), "apply"),
            (word("Left Right"), "slide"),
            (word("Home End"), "least, all"),
            (word("Esc"), "leave it"),
        ],
        Some(Overlay::Models(_)) => {
            vec![
                (word("Enter"), "load or fetch"),
                (word("type"), "filter"),
                (word("Del"), "remove a stopped fetch"),
                (word("Esc"), "back"),
            ]
        }
        Some(Overlay::Chats(_)) if app.renaming.is_some() => {
            vec![(word("Enter"), "take this title"), (word("^U"), "clear"), (word("Esc"), "leave it")]
        }
        Some(Overlay::Chats(_)) => {
            vec![
                (word("Enter"), "open"),
                (word("type"), "filter"),
                (word("^R"), "rename"),
                (word("Del"), "delete"),
                (word("Esc"), "back"),
            ]
        }
        None if app.popup.is_some() => {
            vec![(word("Tab"), "complete"), (word("Up Down"), "choose"), (word("Esc"), "close")]
        }
        None => {
            let stop = if app.answer.is_some() || app.pulling().is_some() { "stop" } else { "twice leaves" };
            let budget = format!("{}/{}", key(Action::BudgetLess), key(Action::BudgetMore));
            vec![
                (key(Action::Send), "send"),
                (key(Action::Newline), "newline"),
                (key(Action::Interrupt), stop),
                (budget, "budget"),
                (key(Action::Help), "help"),
                (key(Action::Zoom), "figures"),
                (key(Action::Models), "models"),
                (key(Action::Sessions), "chats"),
            ]
        }
    }
}
