//! Keys, when nothing lies over the chat.

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::{Effects, budget, conversation, leave, overlays};
use crate::size::format_size;
use crate::tui::app::App;
use crate::tui::completion;
use crate::tui::keymap::{Action, Key};
use crate::tui::message::{Effect, Job};
use crate::tui::overlay::{Overlay, Panel, SortBy};
use crate::tui::slash::Slash;
use crate::tui::view;

/// The second Ctrl-C must follow within this time.
const QUIT_WITHIN: Duration = Duration::from_secs(3);

pub(super) fn key(app: &mut App, event: KeyEvent) -> Effects {
    if event.kind == KeyEventKind::Release {
        return Vec::new();
    }
    let key = Key::from(event);
    let action = app.keymap.action(key);
    let armed = app.quit_armed.take();
    app.unsay();
    if app.overlay.is_some()
        && !matches!(action, Some(Action::Suspend | Action::Redraw | Action::BudgetLess | Action::BudgetMore))
    {
        return overlays::key(app, key, action);
    }
    if app.finding && app.composer.is_empty() {
        match key.code {
            KeyCode::Char('n') if key.modifiers.is_empty() => return find(app, false),
            KeyCode::Char('N') if key.modifiers.is_empty() => return find(app, true),
            KeyCode::Char('v') if key.modifiers.is_empty() => return super::commands::run(app, Slash::Pager, ""),
            _ => {}
        }
        // Another key ends it, its marks stay until Esc.
        app.finding = matches!(action, Some(Action::PageUp | Action::PageDown | Action::LineUp | Action::LineDown));
    }
    match action {
        Some(action) => act(app, action, armed),
        None => edit(app, key),
    }
}

fn act(app: &mut App, action: Action, armed: Option<Instant>) -> Effects {
    match action {
        Action::Send => return send(app),
        Action::Newline => app.composer.insert("\n"),
        Action::Interrupt => return interrupt(app, armed),
        Action::Leave => {
            if app.composer.is_empty() {
                return leave(app);
            }
            app.composer.delete();
        }
        Action::BudgetLess => return budget::step(app, -0.1),
        Action::BudgetMore => return budget::step(app, 0.1),
        Action::BudgetEdit => return budget::open_editor(app),
        Action::PageUp => app.transcript.up(app.transcript.page()),
        Action::PageDown => app.transcript.down(app.transcript.page()),
        Action::LineUp => app.transcript.up(1),
        Action::LineDown => app.transcript.down(1),
        Action::Top => app.transcript.show_start(),
        Action::Bottom => app.transcript.follow(),
        Action::FindNext => return find(app, false),
        Action::FindPrevious => return find(app, true),
        Action::Complete => return complete(app),
        Action::Editor => return vec![Effect::Editor(app.composer.expanded())],
        Action::Pager => return super::commands::run(app, Slash::Pager, ""),
        Action::Models => return super::commands::run(app, Slash::Model, ""),
        Action::Sessions => return super::commands::run(app, Slash::Sessions, ""),
        Action::Panel => app.panel_shown = !app.panel_shown,
        Action::Zoom => zoom(app, Panel::Memory),
        Action::Freeze => freeze(app),
        Action::Think => {
            let unfold = !app.transcript.unfold_thinking;
            app.transcript.set_unfold_thinking(unfold);
        }
        Action::Help => app.overlay = Some(Overlay::Help { scroll: 0 }),
        Action::Redraw => return vec![Effect::Redraw],
        Action::Suspend => return vec![Effect::Suspend],
    }
    completion::refresh(app)
}

pub(super) fn zoom(app: &mut App, panel: Panel) {
    app.overlay = Some(Overlay::Zoom { panel, layer: 0, sort: SortBy::default() });
}

pub(super) fn freeze(app: &mut App) {
    app.frozen = !app.frozen;
    app.status = Some(if app.frozen { "figures held still".to_owned() } else { "figures go on".to_owned() });
}

/// Stops what is under way, else clears the line, else arms leaving.
fn interrupt(app: &mut App, armed: Option<Instant>) -> Effects {
    app.popup = None;
    if app.answer.is_some() {
        return conversation::stop(app);
    }
    if app.pulling().is_some() {
        app.status = Some("fetch stopped; what has come is kept".to_owned());
        return vec![Effect::CancelPull];
    }
    if !app.composer.is_empty() {
        app.composer.set("");
        return Vec::new();
    }
    if armed.is_some_and(|at| app.now.saturating_duration_since(at) < QUIT_WITHIN) {
        return leave(app);
    }
    app.quit_armed = Some(app.now);
    app.status = Some(format!("{} once more to leave", app.keymap.key(Action::Interrupt)));
    Vec::new()
}

fn find(app: &mut App, forward: bool) -> Effects {
    if app.transcript.find.is_none() {
        app.status = Some("nothing to find yet: /find TEXT".to_owned());
    } else if app.transcript.find_next(forward) {
        app.finding = true;
        app.status = app.transcript.found_around().then(|| {
            if forward { "around: from the beginning again" } else { "around: from the end again" }.to_owned()
        });
    } else {
        app.status = Some("not found".to_owned());
    }
    Vec::new()
}

fn send(app: &mut App) -> Effects {
    if let Some(popup) = app.popup.take().filter(|p| p.commands)
        && let Some(offer) = popup.chosen()
        && !matches!(Slash::parse(app.composer.text()), Some(Ok(_)))
    {
        let chosen = Slash::by_name(&offer.text[1..]);
        app.composer.set(&offer.text);
        if chosen.is_some_and(|s| !s.arguments().is_empty() && !s.arguments().starts_with('[')) {
            app.composer.insert(" ");
            return completion::refresh(app);
        }
    }
    if app.composer.text().trim().is_empty() {
        if app.is_offering() && app.pulling().is_none() {
            return conversation::accept_offer(app);
        }
        return Vec::new();
    }
    let shown = app.composer.text().to_owned();
    let text = app.composer.take();
    let mut effects = Vec::new();
    if let Some(line) = app.composer.history.add(&shown) {
        effects.push(Effect::Job(Job::AddHistory(line)));
    }
    effects.extend(conversation::submit(app, &text));
    effects
}

pub(super) fn complete(app: &mut App) -> Effects {
    if let Some(popup) = app.popup.take()
        && let Some(offer) = popup.chosen()
    {
        let end = app.composer.text().len();
        let space = if popup.commands { " " } else { "" };
        app.composer.replace(popup.from..end, &format!("{}{space}", offer.text));
        return completion::refresh(app);
    }
    app.composer.unfold();
    Vec::new()
}

/// Editing keys, as readline has them.
fn edit(app: &mut App, key: Key) -> Effects {
    let (columns, most) = (view::composer_columns(app), app.most_pasted_bytes());
    let c = &mut app.composer;
    let ctrl = key.modifiers == KeyModifiers::CONTROL;
    let alt = key.modifiers == KeyModifiers::ALT;
    let word = ctrl || alt;
    match key.code {
        KeyCode::Char('a') if ctrl => c.home(),
        KeyCode::Char('e') if ctrl => c.end(),
        KeyCode::Char('b') if ctrl => c.left(),
        KeyCode::Char('f') if ctrl => c.right(),
        KeyCode::Char('h') if ctrl => c.backspace(),
        KeyCode::Char('w') if ctrl => c.kill_to_space_before(),
        KeyCode::Char('u') if ctrl => c.kill_to_line_start(),
        KeyCode::Char('k') if ctrl => c.kill_to_line_end(),
        KeyCode::Char('y') if ctrl => c.yank(),
        // Ctrl-_ and Ctrl-/ both arrive as Ctrl-7 from a plain terminal.
        KeyCode::Char('7' | '_' | '/') if ctrl => c.undo(),
        KeyCode::Char('p') if ctrl => c.history_previous(),
        KeyCode::Char('n') if ctrl => c.history_next(),
        KeyCode::Char('b') if alt => c.word_left(),
        KeyCode::Char('f') if alt => c.word_right(),
        KeyCode::Char('d') if alt => c.kill_word_after(),
        KeyCode::Backspace if word => c.kill_word_before(),
        KeyCode::Delete if word => c.kill_word_after(),
        KeyCode::Left if word => c.word_left(),
        KeyCode::Right if word => c.word_right(),
        KeyCode::Backspace => c.backspace(),
        KeyCode::Delete => c.delete(),
        KeyCode::Left => c.left(),
        KeyCode::Right => c.right(),
        KeyCode::Home if c.is_empty() => app.transcript.show_start(),
        KeyCode::End if c.is_empty() => app.transcript.follow(),
        KeyCode::Home => c.home(),
        KeyCode::End => c.end(),
        KeyCode::Up | KeyCode::Down => return vertical(app, key.code == KeyCode::Up, columns),
        KeyCode::Esc => {
            app.popup = None;
            app.transcript.find = None;
            return Vec::new();
        }
        KeyCode::Char(ch) if key.modifiers.is_empty() => {
            // As long as a message can be; and a key is one character, what else a terminal slips in is not text.
            if c.text().len() < most && !ch.is_control() {
                c.insert_char(ch);
                if c.text().len() >= most {
                    super::error(
                        app,
                        format!(
                            "A message takes {} at the most: what is typed now is left out.",
                            format_size(most as u64)
                        ),
                    );
                }
            }
        }
        _ => return Vec::new(),
    }
    completion::refresh(app)
}

/// Up and down: through the popup, the rows, and at their ends the history.
fn vertical(app: &mut App, up: bool, columns: usize) -> Effects {
    if let Some(popup) = &mut app.popup {
        popup.move_by(if up { -1 } else { 1 });
        return Vec::new();
    }
    let moved = if up { app.composer.row_up(columns) } else { app.composer.row_down(columns) };
    if !moved {
        if up {
            app.composer.history_previous();
        } else {
            app.composer.history_next();
        }
    }
    Vec::new()
}
