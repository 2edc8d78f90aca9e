//! What is sent to the model and what comes of it: turns, stopping, going on, going back.

use super::{Effects, error, notice};
use crate::engine::protocol::{Command, FinishReason, GenerationStats, Message, ModelInfo, Prompt, Request, Role};
use crate::session::{ChatMessage, Record, to_drop};
use crate::tui::app::{Answer, App, CONTEXT_BY_BUDGET, Model, Then};
use crate::tui::entry::Entry;
use crate::tui::message::{Effect, Job};
use crate::tui::slash::Slash;
use crate::words::counted;

/// How the note begins that tells of messages no longer sent.
const DROPPED: &str = "The context of ";

/// A line that was entered: a command, or a message to be sent now or later.
pub(super) fn submit(app: &mut App, text: &str) -> Effects {
    app.transcript.follow();
    match Slash::parse(text.trim_end()) {
        Some(Ok((slash, arguments))) => return super::commands::run(app, slash, arguments),
        Some(Err(name)) => {
            app.status =
                Some(format!("/{name} is no command; /help lists them, and a space before it sends it to the model"));
            app.composer.set(text);
            return Vec::new();
        }
        None => {}
    }
    let waits = app.answer.is_some() || matches!(app.model, Model::Loading { .. }) || app.pulling().is_some();
    if waits {
        queue(app, text);
        return Vec::new();
    }
    if app.is_offering() {
        // The question is what the model is fetched for.
        queue(app, text);
        return accept_offer(app);
    }
    if app.model == Model::None {
        app.composer.set(text);
        app.status = Some("no model is loaded: /model chooses one".to_owned());
        return Vec::new();
    }
    assert!(!crate::fault::is_wanted("screen"), "a fault that was asked for");
    // The space that keeps a line from being a command is not part of it.
    let text = text.strip_prefix(' ').filter(|rest| rest.starts_with('/')).unwrap_or(text);
    let message = ChatMessage::new(Role::User, text);
    let mut effects = if count(app) == 0 { vec![super::settings::save(app)] } else { Vec::new() };
    app.transcript.push(Entry::message(message.clone()));
    effects.push(Effect::Job(Job::Append(Record::Message(message))));
    effects.extend(generate(app));
    effects
}

/// Keeps a message until it can be sent.
fn queue(app: &mut App, text: &str) {
    app.queued = Some(match app.queued.take() {
        Some(queued) => format!("{queued}\n\n{text}"),
        None => text.to_owned(),
    });
}

/// Fetches, or loads, the model that the first screen offers.
pub(super) fn accept_offer(app: &mut App) -> Effects {
    let name = app.offered().map(|e| e.name.clone()).unwrap_or_default();
    super::commands::run(app, Slash::Model, &name)
}

/// The conversation as the model is to see it. Neighbouring messages of one side are joined: templates insist on turns.
pub fn messages(app: &App) -> Vec<Message> {
    let said = app.transcript.entries().iter().filter_map(Entry::as_message).filter(|m| m.role != Role::System);
    let mut out: Vec<Message> = Vec::new();
    if let Some(system) = app.settings.system.as_ref().filter(|s| !s.trim().is_empty()) {
        out.push(Message { role: Role::System, content: system.clone() });
    }
    for message in said.skip(app.dropped).filter(|m| !m.content.is_empty()) {
        match out.last_mut() {
            Some(last) if last.role == message.role => {
                last.content.push_str("\n\n");
                last.content.push_str(&message.content);
            }
            _ => out.push(message.to_message()),
        }
    }
    out
}

/// Messages in the transcript, the number the saved chat counts by.
pub(super) fn count(app: &App) -> usize {
    app.transcript.entries().iter().filter(|e| e.as_message().is_some()).count()
}

/// Asks for an answer to the conversation as it stands.
pub(super) fn generate(app: &mut App) -> Effects {
    let prompt = Prompt::Chat(messages(app));
    let mut message = ChatMessage::new(Role::Assistant, "");
    message.model = app.info().map(ModelInfo::full_name);
    let mut entry = Entry::message(message);
    entry.live = true;
    app.transcript.push(entry);
    request(app, prompt, false)
}

fn request(app: &mut App, prompt: Prompt, replaces_last: bool) -> Effects {
    app.last_id += 1;
    app.answer = Some(Answer { id: app.last_id, since: app.now, prompt_tokens: None, stopping: false, replaces_last });
    let settings = &app.settings;
    vec![Effect::Send(Command::Generate(Box::new(Request {
        id: app.last_id,
        prompt,
        sampling: settings.sampling.clone(),
        max_tokens: settings.max_tokens,
        stop: settings.stop.clone(),
        stop_at_end: true,
        thinking: settings.thinking,
    })))]
}

/// Stops the answer; what is written stands.
pub(super) fn stop(app: &mut App) -> Effects {
    match &mut app.answer {
        Some(answer) => {
            answer.stopping = true;
            // What was to be sent next goes back to be looked at again.
            if let Some(queued) = app.queued.take() {
                let draft = app.composer.expanded();
                let between = if draft.is_empty() { "" } else { "\n\n" };
                app.composer.set(&format!("{queued}{between}{draft}"));
            }
            vec![Effect::Cancel]
        }
        None => {
            app.status = Some("no answer is being made".to_owned());
            Vec::new()
        }
    }
}

/// Does `then` once no answer is being made: now, or when the one under way has stopped.
pub(super) fn after_stop(app: &mut App, then: Then) -> Effects {
    if app.answer.is_some() {
        app.then = Some(then);
        return stop(app);
    }
    perform(app, then)
}

fn perform(app: &mut App, then: Then) -> Effects {
    match then {
        Then::Load(path) => super::engine::load(app, path),
        Then::Regenerate => regenerate(app),
        Then::Undo => undo(app),
        Then::Edit(number) => edit(app, number),
        Then::Clear => super::commands::new_chat(app),
        Then::Fork(number) => fork(app, number),
        Then::Another(job) => vec![Effect::Job(job)],
    }
}

/// The answer has ended: it is completed, saved, and what waited goes on.
pub(super) fn finished(app: &mut App, reason: Option<FinishReason>, stats: Option<Box<GenerationStats>>) -> Effects {
    let Some(answer) = app.answer.take() else { return Vec::new() };
    let mut effects = Vec::new();
    let context_by_budget = stats.as_ref().map_or(0, |stats| stats.context_by_budget);
    let empty = app.transcript.entries().last().is_some_and(|e| e.live && e.text().trim().is_empty());
    if empty {
        app.transcript.drop_last();
        match reason {
            Some(FinishReason::Cancelled) => notice(app, "stopped before the first word"),
            Some(FinishReason::ContextFull) => {}
            Some(_) => notice(app, "the model had nothing to say"),
            None => {}
        }
    } else {
        app.transcript.change_last(|entry| {
            entry.live = false;
            if let crate::tui::entry::Body::Message(message) = &mut entry.body {
                message.reason = reason;
                message.stats = stats;
            }
        });
        effects.extend(save_last(app, answer.replaces_last));
    }
    if reason == Some(FinishReason::ContextFull) {
        // The figures at hand may be of a moment before.
        let (context, bound) = match context_by_budget {
            0 => (app.context(), app.context_bound()),
            context => (context, CONTEXT_BY_BUDGET),
        };
        let context = counted(context, "token");
        let text = format!(
            "The context of {context}{bound} is full. /continue drops the oldest messages and goes on; /clear begins anew."
        );
        notice(app, text);
    }
    let then = app.then.take();
    let opens = matches!(then, Some(Then::Another(_)));
    if let Some(then) = then {
        effects.extend(perform(app, then));
    }
    // What was sent after `then` was asked for belongs to what it leads to; a chat that is opened takes it up when it
    // is there, as a model does.
    if !opens && let Some(queued) = app.queued.take() {
        effects.extend(submit(app, &queued));
    }
    effects
}

fn save_last(app: &App, replaces: bool) -> Effects {
    let Some(message) = app.transcript.entries().last().and_then(Entry::as_message) else { return Vec::new() };
    let mut effects = Vec::new();
    if replaces {
        effects.push(Effect::Job(Job::Append(Record::Truncate { messages: count(app) - 1 })));
    }
    effects.push(Effect::Job(Job::Append(Record::Message(message.clone()))));
    effects
}

/// The answer under way as far as it is, when the program has to leave.
pub(in crate::tui) fn save_unfinished(app: &mut App) -> Effects {
    let Some(answer) = app.answer.take() else { return Vec::new() };
    if app.transcript.entries().last().is_none_or(|e| e.text().is_empty()) {
        return Vec::new();
    }
    app.transcript.change_last(|entry| {
        entry.live = false;
        if let crate::tui::entry::Body::Message(message) = &mut entry.body {
            message.reason = Some(FinishReason::Cancelled);
        }
    });
    save_last(app, answer.replaces_last)
}

/// The prompt did not fit: the oldest messages are sent no longer, and that is said. `None` when no more can go.
pub(super) fn drop_oldest(app: &mut App) -> Option<Effects> {
    let total =
        count(app) - usize::from(app.transcript.entries().last().is_some_and(|e| e.live && e.text().is_empty()));
    let sent = total.saturating_sub(app.dropped);
    app.dropped += to_drop(sent)?;
    let replaces_last = app.answer.take().is_some_and(|a| a.replaces_last);
    let text = format!(
        "The context of {}{} is full: the {} oldest messages are no longer sent to the model. They stay in this chat.",
        counted(app.context(), "token"),
        app.context_bound(),
        app.dropped
    );
    // What is dropped in several steps is said once.
    if !app.transcript.replace_note_before_last(DROPPED, &text) {
        notice(app, text);
    }
    let mut sent = messages(app);
    let prompt = match sent.last() {
        Some(last) if last.role == Role::Assistant => Prompt::Continue(std::mem::take(&mut sent)),
        _ => Prompt::Chat(sent),
    };
    Some(request(app, prompt, replaces_last))
}

fn is_ready(app: &mut App) -> bool {
    let ready = app.info().is_some();
    if !ready {
        app.status = Some("no model is loaded: /model chooses one".to_owned());
    }
    ready
}

/// Takes entries off the end while `gone` holds, and says so to the saved chat.
fn cut_to(app: &mut App, entries: usize) -> Effects {
    app.transcript.truncate(entries);
    let messages = count(app);
    app.dropped = app.dropped.min(messages);
    vec![Effect::Job(Job::Append(Record::Truncate { messages }))]
}

fn last_of(app: &App, role: Role) -> Option<usize> {
    app.transcript.entries().iter().rposition(|e| e.as_message().is_some_and(|m| m.role == role))
}

/// Index of the entry with the user's message `number`, from 1; the last one without a number.
fn user_message(app: &App, number: Option<usize>) -> Option<usize> {
    let mut said = app
        .transcript
        .entries()
        .iter()
        .enumerate()
        .filter(|(_, e)| e.as_message().is_some_and(|m| m.role == Role::User))
        .map(|(i, _)| i);
    match number {
        Some(number) => said.nth(number.checked_sub(1)?),
        None => said.next_back(),
    }
}

/// Answers the last message again.
pub(super) fn regenerate(app: &mut App) -> Effects {
    if !is_ready(app) {
        return Vec::new();
    }
    let Some(at) = last_of(app, Role::User) else {
        app.status = Some("there is no message to answer".to_owned());
        return Vec::new();
    };
    let mut effects = cut_to(app, at + 1);
    effects.extend(generate(app));
    effects
}

/// Goes on with the last answer.
pub(super) fn go_on(app: &mut App) -> Effects {
    if app.answer.is_some() || !is_ready(app) {
        return Vec::new();
    }
    let Some(at) = last_of(app, Role::Assistant).filter(|at| last_of(app, Role::User).is_none_or(|user| user < *at))
    else {
        return regenerate(app);
    };
    // A greater budget may have made room since.
    let full = app.transcript.entries()[at].as_message().and_then(|m| m.reason) == Some(FinishReason::ContextFull)
        && !app.snapshot.has_room();
    // Notes after the answer would stand in its way.
    app.transcript.truncate(at + 1);
    app.transcript.change_last(|entry| entry.live = true);
    if full {
        if let Some(effects) = drop_oldest(app) {
            app.answer.iter_mut().for_each(|a| a.replaces_last = true);
            return effects;
        }
        app.transcript.change_last(|entry| entry.live = false);
        error(app, "The question and its answer fill the whole context; there is nothing left to drop.");
        return Vec::new();
    }
    let prompt = Prompt::Continue(messages(app));
    request(app, prompt, true)
}

/// Takes back the last message and what came of it.
pub(super) fn undo(app: &mut App) -> Effects {
    match last_of(app, Role::User) {
        Some(at) => cut_to(app, at),
        None => {
            app.status = Some("nothing to take back".to_owned());
            Vec::new()
        }
    }
}

/// Puts an earlier message back into the composer; what came after it stays behind in a branch of its own.
pub(super) fn edit(app: &mut App, number: Option<usize>) -> Effects {
    let Some(at) = user_message(app, number) else {
        app.status = Some("there is no such message".to_owned());
        return Vec::new();
    };
    let text = app.transcript.entries()[at].text().to_owned();
    app.transcript.truncate(at);
    let messages = count(app);
    app.dropped = app.dropped.min(messages);
    app.composer.set(&text);
    app.status = Some("change it and send it; the chat as it was stays under /sessions".to_owned());
    vec![Effect::Job(Job::Fork { messages })]
}

/// Goes on in a copy, as far as the user's message `number` and its answer.
pub(super) fn fork(app: &mut App, number: Option<usize>) -> Effects {
    if let Some(number) = number {
        match user_message(app, Some(number + 1)) {
            Some(next) => {
                app.transcript.truncate(next);
            }
            None if user_message(app, Some(number)).is_none() => {
                app.status = Some("there is no such message".to_owned());
                return Vec::new();
            }
            None => {}
        }
    }
    vec![Effect::Job(Job::Fork { messages: count(app) })]
}
