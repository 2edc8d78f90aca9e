//! What the engine tells.

use std::path::PathBuf;

use super::{Effects, conversation, error, note, notice};
use crate::engine::protocol::{Budget, Command, Event, Failure, FailureKind, Shortfall};
use crate::size::{format_budget, format_size};
use crate::tui::app::{App, Model};
use crate::tui::entry::{Body, NoteKind};
use crate::tui::failure::in_chat;
use crate::tui::message::Effect;

pub(super) fn event(app: &mut App, event: Event) -> Effects {
    match event {
        Event::Loading { what, fraction } => {
            let path = match &app.model {
                Model::Loading { path, .. } => path.clone(),
                _ => app.load.path.clone(),
            };
            app.model = Model::Loading { path, what, fraction };
        }
        Event::Loaded(info) => return loaded(app, *info),
        Event::Failed(failure) => failed(app, failure),
        Event::Started { id, prompt_tokens, reused_tokens } => {
            if let Some(answer) = app.answer.as_mut().filter(|a| a.id == id) {
                answer.prompt_tokens = Some((prompt_tokens, reused_tokens));
            }
        }
        Event::Text { id, text } => {
            if app.answer.as_ref().is_some_and(|a| a.id == id) {
                app.transcript.change_last(|entry| {
                    if let Body::Message(message) = &mut entry.body {
                        message.content.push_str(&text);
                    }
                });
                assert!(!crate::fault::is_wanted("answer"), "a fault that was asked for");
            }
        }
        Event::Finished { id, reason, stats } => {
            if app.answer.as_ref().is_some_and(|a| a.id == id) {
                return conversation::finished(app, Some(reason), Some(stats));
            }
        }
        Event::Broken { id, failure } => {
            if app.answer.as_ref().is_some_and(|a| a.id == id) {
                return broken(app, failure);
            }
        }
        Event::BudgetSet { budget, bytes } => {
            app.budget_asked = None;
            app.load.budget = budget;
            let asked = match budget {
                Budget::Bytes(_) => String::new(),
                Budget::Least => ", the least".to_owned(),
                other => format!(" ({})", format_budget(other)),
            };
            app.status = None;
            app.budget_told = Some(format!("budget {}{asked}", format_size(bytes)));
        }
        Event::Notice(text) => notice(app, text),
    }
    Vec::new()
}

/// Loads a model; the chat stays and is rendered with the new model's template.
pub(super) fn load(app: &mut App, path: PathBuf) -> Effects {
    app.load.path = path.clone();
    app.refused = false;
    app.model = Model::Loading { path, what: "opening", fraction: 0.0 };
    app.overlay = None;
    vec![Effect::Send(Command::Load(Box::new(app.load.clone())))]
}

fn loaded(app: &mut App, info: crate::engine::protocol::ModelInfo) -> Effects {
    if app.transcript.entries().iter().any(|e| e.as_message().is_some()) {
        notice(app, format!("{} answers from here on", info.full_name()));
    }
    for warning in &info.warnings {
        notice(app, format!("{}: {warning}", info.name));
    }
    app.model = Model::Ready(Box::new(info));
    app.dropped = 0;
    match app.queued.take() {
        Some(queued) => conversation::submit(app, &queued),
        None => Vec::new(),
    }
}

fn failed(app: &mut App, failure: Failure) {
    app.budget_asked = None;
    if let (Model::Ready(_), FailureKind::Budget, Some(shortfall)) = (&app.model, failure.kind, &failure.shortfall) {
        // The one in force stays so. The list may be out of sight above the answer under way.
        app.load.budget = app.snapshot.memory.budget;
        app.forecasts.clear();
        let (asked, least) = (format_size(shortfall.asked_bytes), format_size(shortfall.least_bytes));
        app.status = Some(format!("budget {asked} refused: the least that runs now is {least}"));
    }
    // After a defect the model is opened anew; where that fails, there is none.
    if failure.kind == FailureKind::Load || matches!(app.model, Model::Loading { .. }) {
        app.model = Model::None;
        app.refused = failure.shortfall.is_some();
        if let Some(queued) = app.queued.take() {
            app.composer.set(&queued);
        }
    }
    tell(app, &failure);
    if app.refused {
        notice(app, "/budget with another value loads it again");
    }
}

fn broken(app: &mut App, failure: Failure) -> Effects {
    if failure.kind == FailureKind::ContextFull
        && let Some(effects) = conversation::drop_oldest(app)
    {
        return effects;
    }
    let queued = app.queued.take();
    let effects = conversation::finished(app, None, None);
    app.queued = queued;
    tell(app, &failure);
    if failure.kind == FailureKind::ContextFull {
        notice(
            app,
            "The message alone is longer than the context: shorten it (/edit), or give it more room with a greater /budget.",
        );
    }
    effects
}

/// A failure in the chat, with the list of what the memory is needed for.
fn tell(app: &mut App, failure: &Failure) {
    error(app, in_chat(failure));
    if let Some(shortfall) = &failure.shortfall {
        note(app, NoteKind::Listing, itemised(shortfall));
    }
    app.transcript.follow();
}

/// The least that runs, line by line.
pub(super) fn itemised(shortfall: &Shortfall) -> String {
    let width = shortfall.lines.iter().map(|l| l.what.chars().count()).max().unwrap_or(0).max(5);
    let mut rows: Vec<String> =
        shortfall.lines.iter().map(|l| format!("{:width$}  {:>10}", l.what, format_size(l.bytes))).collect();
    rows.push(format!("{:width$}  {:>10}", "least", format_size(shortfall.least_bytes)));
    rows.push(format!("{:width$}  {:>10}", "asked", format_size(shortfall.asked_bytes)));
    rows.join("\n")
}
