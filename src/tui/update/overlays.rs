//! Keys while something lies over the chat. Esc and Ctrl-C close it; nothing else is lost by them.

use crossterm::event::{KeyCode, KeyModifiers};

use super::{Effects, budget, conversation};
use crate::engine::protocol::Budget;
use crate::tui::app::{App, Renaming, Then};
use crate::tui::keymap::{Action, Key};
use crate::tui::message::{Effect, Job};
use crate::tui::overlay::{Overlay, Picker, SortBy};
use crate::tui::picker;
use crate::tui::view::layers;

const HELP_PAGE: u16 = 10;

pub(super) fn key(app: &mut App, key: Key, action: Option<Action>) -> Effects {
    if let Some(renaming) = app.renaming.take() {
        return rename(app, renaming, key, action);
    }
    if key.code == KeyCode::Esc || action == Some(Action::Interrupt) {
        if let Some(Overlay::Models(_)) = app.overlay
            && app.pulling().is_some()
            && action == Some(Action::Interrupt)
        {
            app.status = Some("fetch stopped; what has come is kept".to_owned());
            return vec![Effect::CancelPull];
        }
        app.overlay = None;
        return Vec::new();
    }
    let Some(overlay) = app.overlay.take() else { return Vec::new() };
    match overlay {
        Overlay::Help { scroll } => {
            app.overlay = help(scroll, key, action);
            Vec::new()
        }
        Overlay::Zoom { panel, layer, sort } => {
            let last = app.snapshot.layers.len().saturating_sub(1);
            let to = |layer: usize| Some(Overlay::Zoom { panel, layer: layer.min(last), sort });
            app.overlay = match key.code {
                KeyCode::Left | KeyCode::Char('h') => to(layer.saturating_sub(1)),
                KeyCode::Right | KeyCode::Char('l') => to(layer + 1),
                // Up and down go by the table, as it is sorted.
                KeyCode::Up | KeyCode::Char('k') => to(row_by(app, layer, sort, -1)),
                KeyCode::Down | KeyCode::Char('j') => to(row_by(app, layer, sort, 1)),
                KeyCode::PageUp => to(row_by(app, layer, sort, -10)),
                KeyCode::PageDown => to(row_by(app, layer, sort, 10)),
                KeyCode::Home => to(0),
                KeyCode::End => to(last),
                KeyCode::Char('s') => Some(Overlay::Zoom { panel, layer, sort: sort.stepped(1) }),
                KeyCode::Char('S') => Some(Overlay::Zoom { panel, layer, sort: sort.stepped(-1) }),
                KeyCode::Tab => panel.next().map(|panel| Overlay::Zoom { panel, layer, sort }),
                _ if action == Some(Action::Zoom) => panel.next().map(|panel| Overlay::Zoom { panel, layer, sort }),
                KeyCode::Char('q') | KeyCode::Enter => None,
                _ => {
                    if action == Some(Action::Freeze) {
                        super::keys::freeze(app);
                    }
                    Some(Overlay::Zoom { panel, layer, sort })
                }
            };
            Vec::new()
        }
        Overlay::Budget(mut editor) => {
            editor.error = None;
            match key.code {
                KeyCode::Enter => return budget::apply_editor(app, editor),
                KeyCode::Left | KeyCode::Down => return slide(app, editor, -0.02),
                KeyCode::Right | KeyCode::Up => return slide(app, editor, 0.02),
                KeyCode::PageDown => return slide(app, editor, -0.1),
                KeyCode::PageUp => return slide(app, editor, 0.1),
                KeyCode::Home => {
                    editor.typed.clear();
                    editor.chosen = Budget::Least;
                }
                KeyCode::End => {
                    editor.typed.clear();
                    editor.chosen = Budget::Bytes(app.snapshot.memory.full_bytes);
                }
                KeyCode::Backspace => {
                    editor.typed.pop();
                }
                KeyCode::Char(c) if key.modifiers.is_empty() && editor.typed.len() < 16 => editor.typed.push(c),
                _ => {}
            }
            app.overlay = Some(Overlay::Budget(editor));
            Vec::new()
        }
        Overlay::Models(mut picker) => {
            if key.code == KeyCode::Enter {
                return picker.chosen().map_or_else(Vec::new, |i| choose_model(app, i));
            }
            if key.code == KeyCode::Delete {
                let effects = discard(app, picker.chosen());
                app.overlay = Some(Overlay::Models(picker));
                return effects;
            }
            picker_key(&mut picker, key, &picker::model_names(app));
            app.overlay = Some(Overlay::Models(picker));
            selected(app)
        }
        Overlay::Chats(mut picker) => {
            let chosen = picker.chosen().and_then(|i| app.chats.get(i)).map(|c| c.id.clone());
            match (key.code, chosen) {
                (KeyCode::Enter, Some(id)) => {
                    return conversation::after_stop(app, Then::Another(Job::OpenChat(id)));
                }
                (KeyCode::Delete, Some(id)) => {
                    app.overlay = Some(Overlay::Chats(picker));
                    return vec![Effect::Job(Job::DeleteChat(Some(id)))];
                }
                (KeyCode::Char('r'), Some(id)) if key.modifiers == KeyModifiers::CONTROL => {
                    let title = app.chats.iter().find(|c| c.id == id).map(|c| c.title.clone()).unwrap_or_default();
                    app.renaming = Some(Renaming { id, title });
                }
                _ => picker_key(&mut picker, key, &picker::chat_names(app)),
            }
            app.overlay = Some(Overlay::Chats(picker));
            Vec::new()
        }
    }
}

/// A key while a saved chat's title is written: Enter takes it, Esc leaves the chat as it was.
fn rename(app: &mut App, mut renaming: Renaming, key: Key, action: Option<Action>) -> Effects {
    match key.code {
        _ if action == Some(Action::Interrupt) => return Vec::new(),
        KeyCode::Esc => return Vec::new(),
        KeyCode::Enter => {
            let title = renaming.title.trim().to_owned();
            if title.is_empty() {
                return Vec::new();
            }
            // Reading all chats anew may take its time; where the renaming fails, that brings the old title back.
            app.chats.iter_mut().filter(|c| c.id == renaming.id).for_each(|c| c.title.clone_from(&title));
            return vec![Effect::Job(Job::Rename { id: renaming.id, title }), Effect::Job(Job::ListChats)];
        }
        KeyCode::Backspace => {
            renaming.title.pop();
        }
        KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL => renaming.title.clear(),
        KeyCode::Char(c) if key.modifiers.is_empty() => renaming.title.push(c),
        _ => {}
    }
    app.renaming = Some(renaming);
    Vec::new()
}

/// What another selected row asks for.
pub(super) fn selected(app: &mut App) -> Effects {
    match &app.overlay {
        Some(Overlay::Models(picker)) => match picker.chosen() {
            Some(index) => picker::want_forecast(app, index),
            None => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// Removes what a stopped fetch left. A whole model is not removed by a single key.
fn discard(app: &mut App, chosen: Option<usize>) -> Effects {
    let Some(entry) = chosen.and_then(|i| app.catalog.get(i)) else { return Vec::new() };
    if app.pulling().is_some_and(|p| p.name == entry.name) {
        app.status = Some("it is being fetched; Ctrl-C stops that first".to_owned());
    } else if entry.installed.is_some() {
        app.status = Some(format!("sipllm rm {} removes an installed model", entry.name));
    } else if entry.part_bytes > 0 {
        app.status = Some(format!("what had come of {} is removed", entry.name));
        return vec![Effect::Job(Job::DiscardPart(entry.name.clone()))];
    }
    Vec::new()
}

/// The layer so many rows further down the table.
fn row_by(app: &App, layer: usize, sort: SortBy, step: isize) -> usize {
    let order = layers::sorted(&app.snapshot.layers, sort);
    let at = order.iter().position(|i| *i == layer).unwrap_or(0);
    let to = at.saturating_add_signed(step).min(order.len().saturating_sub(1));
    order.get(to).copied().unwrap_or(0)
}

fn help(scroll: u16, key: Key, action: Option<Action>) -> Option<Overlay> {
    let scroll = match (key.code, action) {
        (KeyCode::Down | KeyCode::Char('j'), _) | (_, Some(Action::LineDown)) => scroll.saturating_add(1),
        (KeyCode::Up | KeyCode::Char('k'), _) | (_, Some(Action::LineUp)) => scroll.saturating_sub(1),
        (KeyCode::Char(' '), _) | (_, Some(Action::PageDown)) => scroll.saturating_add(HELP_PAGE),
        (_, Some(Action::PageUp)) => scroll.saturating_sub(HELP_PAGE),
        (KeyCode::Home, _) => 0,
        (KeyCode::End, _) => u16::MAX,
        (KeyCode::Char('q') | KeyCode::Enter, _) | (_, Some(Action::Help)) => return None,
        _ => scroll,
    };
    Some(Overlay::Help { scroll })
}

/// Moves the slider by a share of the way from the least to full residency.
fn slide(app: &mut App, mut editor: crate::tui::overlay::BudgetEditor, share: f64) -> Effects {
    let memory = &app.snapshot.memory;
    let from = budget::edited_bytes(app, &editor) as f64;
    editor.typed.clear();
    let range = memory.full_bytes.saturating_sub(memory.least_bytes) as f64;
    editor.chosen = budget::within((from + range * share).max(0.0) as u64, memory);
    app.overlay = Some(Overlay::Budget(editor));
    Vec::new()
}

fn picker_key(picker: &mut Picker, key: Key, names: &[String]) {
    match key.code {
        KeyCode::Up => picker.move_by(-1),
        KeyCode::Down | KeyCode::Tab => picker.move_by(1),
        KeyCode::PageUp => picker.move_by(-10),
        KeyCode::PageDown => picker.move_by(10),
        KeyCode::Home => picker.selected = 0,
        KeyCode::End => picker.move_by(isize::MAX),
        KeyCode::Backspace => {
            picker.filter.pop();
            picker.refilter(names);
        }
        KeyCode::Char('u') if key.modifiers == KeyModifiers::CONTROL => {
            picker.filter.clear();
            picker.refilter(names);
        }
        KeyCode::Char(c) if key.modifiers.is_empty() => {
            picker.filter.push(c);
            picker.selected = 0;
            picker.refilter(names);
        }
        _ => {}
    }
}

/// A paste into the field of what lies over the chat.
pub(super) fn paste(app: &mut App, text: &str) -> Effects {
    let line = text.lines().next().unwrap_or_default();
    if let Some(renaming) = &mut app.renaming {
        renaming.title.push_str(line);
        return Vec::new();
    }
    let names = match app.overlay {
        Some(Overlay::Models(_)) => picker::model_names(app),
        _ => picker::chat_names(app),
    };
    match &mut app.overlay {
        Some(Overlay::Models(picker) | Overlay::Chats(picker)) => {
            picker.filter.push_str(line);
            picker.refilter(&names);
        }
        Some(Overlay::Budget(editor)) => editor.typed.push_str(&line.chars().take(16).collect::<String>()),
        _ => {}
    }
    Vec::new()
}

/// Loads an installed model, fetches another.
pub(super) fn choose_model(app: &mut App, index: usize) -> Effects {
    let Some(entry) = app.catalog.get(index).cloned() else { return Vec::new() };
    match entry.installed {
        Some(path) => {
            app.overlay = None;
            conversation::after_stop(app, Then::Load(path))
        }
        None if app.pulling().is_some() => {
            app.overlay = Some(Overlay::Models(Picker::new(&picker::model_names(app))));
            app.status = Some("one fetch at a time".to_owned());
            Vec::new()
        }
        None => super::replies::pull(app, entry.name),
    }
}
