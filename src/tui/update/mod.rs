//! What each message does to the state: pure but for the state itself; everything outside is asked for as an effect.

use crate::words::counted;
mod budget;
mod commands;
mod conversation;
mod engine;
mod keys;
mod mouse;
mod overlays;
mod replies;
mod settings;

#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod tests;

use super::app::App;
use super::completion;
use super::entry::{Entry, NoteKind};
use super::message::{Effect, Msg};
use crate::size::format_size;

pub(crate) use budget::{edited, edited_bytes, within};
pub(super) use conversation::save_unfinished;

pub type Effects = Vec<Effect>;

/// Applies one message.
pub fn update(app: &mut App, msg: Msg) -> Effects {
    match msg {
        Msg::Key(key) => keys::key(app, key),
        Msg::Paste(text) => {
            let text = pasted(text);
            match app.overlay {
                Some(_) => overlays::paste(app, &text),
                None if app.composer.expanded_bytes() + text.len() > app.most_pasted_bytes() => {
                    refuse_paste(app, text.len());
                    Vec::new()
                }
                None => {
                    app.composer.paste(text);
                    completion::refresh(app)
                }
            }
        }
        Msg::PasteTooLong { bytes } => {
            refuse_paste(app, bytes);
            Vec::new()
        }
        Msg::Mouse(event) => mouse::event(app, event),
        Msg::Resize(columns, rows) => {
            app.size = (columns, rows);
            vec![Effect::Redraw]
        }
        Msg::Engine(event) => engine::event(app, event),
        Msg::EngineGone => {
            app.answer = None;
            error(app, "The engine is gone. What was said is saved; please start anew.");
            Vec::new()
        }
        Msg::Figures(snapshot) => {
            if !app.frozen {
                app.snapshot = snapshot;
            }
            Vec::new()
        }
        Msg::Reply(reply) => replies::reply(app, reply),
        Msg::Terminated => leave(app),
    }
}

/// A paste with the line ends of a text, safe to show. Terminals end a pasted line with a carriage return, which cleaning
/// would take away. What needs no change is not copied: it may be large.
fn pasted(text: String) -> String {
    let text = if text.contains('\r') { text.replace("\r\n", "\n").replace('\r', "\n") } else { text };
    match crate::sanitize::sanitize(&text) {
        std::borrow::Cow::Owned(safe) => safe,
        std::borrow::Cow::Borrowed(_) => text,
    }
}

fn refuse_paste(app: &mut App, bytes: usize) {
    let (came, most) = (format_size(bytes as u64), format_size(app.most_pasted_bytes() as u64));
    let context = match app.context() {
        0 => String::new(),
        tokens => format!("; the context holds {}", counted(tokens, "token")),
    };
    let text = format!("A paste of {came} was left out: a message takes {most} at the most{context}.");
    error(app, text);
    app.transcript.follow();
}

/// Keeps what has been answered so far and ends the program.
fn leave(app: &mut App) -> Effects {
    let mut effects = conversation::save_unfinished(app);
    app.leaving = true;
    effects.extend([Effect::Cancel, Effect::CancelPull, Effect::Quit]);
    effects
}

/// A line of the program's own in the chat.
fn notice(app: &mut App, text: impl Into<String>) {
    note(app, NoteKind::Notice, text);
}

fn error(app: &mut App, text: impl Into<String>) {
    note(app, NoteKind::Error, text);
}

fn listing(app: &mut App, text: impl Into<String>) {
    note(app, NoteKind::Listing, text);
    app.transcript.follow();
}

/// Notes go before an answer under way, which stays the last entry.
fn note(app: &mut App, kind: NoteKind, text: impl Into<String>) {
    let entry = Entry::note(kind, crate::tui::clean(&text.into()));
    if app.transcript.entries().last().is_some_and(|e| e.live) {
        app.transcript.insert_before_last(entry);
    } else {
        app.transcript.push(entry);
    }
}
