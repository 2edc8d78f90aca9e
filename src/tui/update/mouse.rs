//! The mouse, where it is wanted: the wheel scrolls, a click does what the thing under it is for.

use crossterm::event::{KeyCode, KeyEvent, MouseButton, MouseEvent, MouseEventKind};

use super::{Effects, commands, keys, overlays};
use crate::tui::app::App;
use crate::tui::completion;
use crate::tui::overlay::Overlay;
use crate::tui::slash::Slash;
use crate::tui::view::hit::{Hit, hit};

/// Lines a turn of the wheel scrolls.
const WHEEL_LINES: usize = 3;

pub(super) fn event(app: &mut App, event: MouseEvent) -> Effects {
    match event.kind {
        MouseEventKind::ScrollUp => wheel(app, true),
        MouseEventKind::ScrollDown => wheel(app, false),
        MouseEventKind::Down(MouseButton::Left) => click(app, event.column, event.row),
        _ => Vec::new(),
    }
}

fn wheel(app: &mut App, up: bool) -> Effects {
    match (&app.overlay, up) {
        // What lies over the chat moves as by its keys.
        (Some(_), _) => return keys::key(app, KeyEvent::from(if up { KeyCode::Up } else { KeyCode::Down })),
        (None, true) => app.transcript.up(WHEEL_LINES),
        (None, false) => app.transcript.down(WHEEL_LINES),
    }
    Vec::new()
}

fn click(app: &mut App, x: u16, y: u16) -> Effects {
    app.unsay();
    match hit(app, x, y) {
        Some(Hit::Offer(index)) => {
            if let Some(popup) = &mut app.popup {
                popup.selected = index;
            }
            return keys::complete(app);
        }
        Some(Hit::Composer { row, column }) => {
            app.composer.place(crate::tui::view::composer_columns(app), row, column);
            return completion::refresh(app);
        }
        Some(Hit::End) => app.transcript.follow(),
        Some(Hit::Chat(row)) => return in_chat(app, row),
        Some(Hit::Panel(panel)) => keys::zoom(app, panel),
        Some(Hit::Model) => return commands::run(app, Slash::Model, ""),
        Some(Hit::Row(index)) => return row(app, index),
        Some(Hit::Layer(to)) => {
            if let Some(Overlay::Zoom { layer, .. }) = &mut app.overlay {
                *layer = to;
            }
        }
        Some(Hit::Sort(by)) => {
            if let Some(Overlay::Zoom { sort, .. }) = &mut app.overlay {
                *sort = by;
            }
        }
        Some(Hit::Slider(budget)) => {
            if let Some(Overlay::Budget(editor)) = &mut app.overlay {
                editor.typed.clear();
                editor.chosen = budget;
            }
        }
        None => {}
    }
    Vec::new()
}

/// A fold opens or closes, the tag of a code block copies it.
fn in_chat(app: &mut App, row: usize) -> Effects {
    let Some(at) = app.transcript.at_row(row) else { return Vec::new() };
    let entry = &app.transcript.entries()[at.entry];
    if entry.is_fold(at.part, at.line) {
        let unfold = !app.transcript.unfold_thinking;
        app.transcript.set_unfold_thinking(unfold);
    } else if let Some(number) = entry.code_tag(at.part, at.line, &app.glyphs) {
        return commands::run(app, Slash::Copy, &number.to_string());
    }
    Vec::new()
}

/// The first click on a row of a list selects it, the second takes it.
fn row(app: &mut App, index: usize) -> Effects {
    let (Some(Overlay::Models(picker)) | Some(Overlay::Chats(picker))) = &mut app.overlay else { return Vec::new() };
    if picker.selected == index {
        return keys::key(app, KeyEvent::from(KeyCode::Enter));
    }
    picker.selected = index;
    overlays::selected(app)
}
