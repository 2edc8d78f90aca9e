//! What comes back from work done elsewhere.

use super::{Effects, conversation, error, listing, notice};
use crate::session::OpenChat;
use crate::tui::app::{App, Model, Pull, Then};
use crate::tui::completion;
use crate::tui::entry::Entry;
use crate::tui::message::{Effect, Job, Reply};
use crate::tui::options::PullProgress;
use crate::tui::overlay::Overlay;
use crate::tui::picker;
use crate::words::counted;

/// More text than this is dropped by many terminals when it comes for the clipboard.
pub const CLIPBOARD_LIMIT: usize = 74_994;

pub(super) fn reply(app: &mut App, reply: Reply) -> Effects {
    match reply {
        Reply::Opened(chat) => {
            opened(app, *chat);
            if let Some(queued) = app.queued.take() {
                return conversation::submit(app, &queued);
            }
        }
        Reply::Chats(chats) => {
            app.chats = chats;
            let names = picker::chat_names(app);
            if let Some(Overlay::Chats(picker)) = &mut app.overlay {
                picker.refilter(&names);
            } else if app.overlay.is_none() {
                return completion::refresh(app);
            }
        }
        Reply::Forked(summary) => {
            app.title = Some(summary.title);
            if app.composer.is_empty() {
                app.status = Some("in a branch of its own now; the chat as it was stays under /sessions".to_owned());
            }
        }
        Reply::Deleted { title, current } => {
            let mut effects = vec![Effect::Job(Job::ListChats)];
            if current {
                // An answer under way goes with its chat.
                effects.extend(app.answer.take().map(|_| Effect::Cancel));
                app.transcript.clear();
                app.title = None;
                app.dropped = 0;
            }
            app.status = Some(format!("deleted {title:?}; /delete undo brings it back"));
            return effects;
        }
        Reply::Renamed { title, current } => {
            if current {
                app.title = Some(title.clone());
            }
            app.status = Some(format!("that chat is called {title:?} now"));
        }
        Reply::Undeleted(summary) => {
            app.status = Some(format!("{:?} is back: /resume {}", summary.title, summary.id));
            return vec![Effect::Job(Job::ListChats)];
        }
        Reply::Found { wanted, hits } => found(app, &wanted, &hits),
        Reply::Exported(path) => app.status = Some(format!("written to {}", crate::tui::shown_path(&path))),
        Reply::Imported { title, messages } => {
            app.transcript.clear();
            app.title = None;
            app.dropped = 0;
            let mut effects = vec![Effect::Job(Job::NewChat)];
            for message in messages {
                app.transcript.push(Entry::message(message.clone()));
                effects.push(Effect::Job(Job::Append(crate::session::Record::Message(message))));
            }
            app.status = Some(format!("imported {}, as a chat of its own", counted(effects.len() - 1, "message")));
            if !title.is_empty() {
                effects.push(Effect::Job(Job::Append(crate::session::Record::Title { title: title.clone() })));
                app.title = Some(title);
            }
            if let Some(queued) = app.queued.take() {
                effects.extend(conversation::submit(app, &queued));
            }
            return effects;
        }
        Reply::File { path, text } => {
            let text = crate::tui::clean(&text);
            if !app.composer.is_empty() {
                app.composer.insert("\n");
            }
            app.composer.insert(&format!("{path}:\n"));
            app.composer.paste(text);
        }
        Reply::Files { prefix, names } => completion::offer_files(app, &prefix, names),
        Reply::Theme { name, theme } => super::commands::use_theme(app, &name, *theme),
        Reply::Kept(path) => {
            if let Some(status) = &mut app.status {
                status.push_str(&format!("; also in {}", crate::tui::shown_path(&path)));
            }
        }
        Reply::Catalog { entries, available_bytes } => {
            app.catalog = entries;
            app.available_bytes = available_bytes;
            let names = picker::model_names(app);
            if let Some(Overlay::Models(picker)) = &mut app.overlay {
                picker.refilter(&names);
                if let Some(chosen) = picker.chosen() {
                    return picker::want_forecast(app, chosen);
                }
            }
        }
        Reply::Forecast { model, forecast } => {
            if let Some(known) = app.forecasts.iter_mut().find(|f| f.0 == model) {
                known.1 = forecast;
            }
        }
        Reply::Pulling(progress) => {
            if let Some(pull) = app.pull.as_mut().filter(|p| p.failed.is_none()) {
                if progress.what == "fetching" {
                    pull.resumed_bytes.get_or_insert(progress.done_bytes);
                }
                pull.progress = progress;
            }
        }
        Reply::Pulled { name, path } => return pulled(app, &name, path),
        Reply::PullFailed { name, message, cancelled } => {
            let text =
                if cancelled { "stopped; what has come is kept, Enter goes on".to_owned() } else { message.clone() };
            if let Some(pull) = &mut app.pull {
                pull.failed = Some(text);
            }
            let fresh = Effect::Job(Job::Catalog);
            if !cancelled && !app.is_offering() {
                error(app, format!("{name} was not fetched: {message}"));
            }
            return vec![fresh];
        }
        Reply::Edited(Some(text)) => app.composer.set(crate::tui::clean(text.trim_end()).as_str()),
        Reply::Edited(None) => app.status = Some("$EDITOR ended with an error; the message is as it was".to_owned()),
        Reply::Copied { bytes } => {
            app.status = Some(if bytes > CLIPBOARD_LIMIT {
                format!(
                    "sent {} to the terminal's clipboard; many terminals take no more than {CLIPBOARD_LIMIT}",
                    counted(bytes, "byte")
                )
            } else {
                format!("sent {} to the terminal's clipboard", counted(bytes, "byte"))
            });
        }
        Reply::Failed(message) => error(app, message),
    }
    Vec::new()
}

fn opened(app: &mut App, chat: OpenChat) {
    app.overlay = None;
    app.transcript.clear();
    app.dropped = 0;
    app.title = Some(chat.summary.title);
    if let Some(sampling) = chat.sampling {
        app.settings.sampling = sampling;
        app.settings.system = chat.system;
    }
    for message in chat.messages {
        if message.role == crate::engine::protocol::Role::System {
            app.settings.system = Some(message.content.clone());
        }
        app.transcript.push(Entry::message(message));
    }
    if chat.skipped_lines > 0 {
        notice(app, format!("left out of this chat: {}", counted(chat.skipped_lines, "damaged line")));
    }
    app.transcript.follow();
}

fn found(app: &mut App, wanted: &str, hits: &[crate::session::SearchHit]) {
    if hits.is_empty() {
        app.status = Some(format!("{wanted:?} is in no saved chat"));
        return;
    }
    let rows: Vec<String> = hits.iter().map(|h| format!("{}  {}\n    {}", h.id, h.title, h.excerpt)).collect();
    listing(app, format!("{wanted:?} in saved chats (/resume ID opens one):\n{}", rows.join("\n")));
}

/// Begins to fetch a model.
pub(super) fn pull(app: &mut App, name: String) -> Effects {
    app.overlay = None;
    let progress = PullProgress { what: "connecting", ..PullProgress::default() };
    app.pull = Some(Pull { name: name.clone(), progress, since: app.now, resumed_bytes: None, failed: None });
    vec![Effect::Pull(name)]
}

/// A fetched model is loaded at once where none is in use; else its arrival is said.
fn pulled(app: &mut App, name: &str, path: std::path::PathBuf) -> Effects {
    app.pull = None;
    let mut effects = vec![Effect::Job(Job::Catalog)];
    if app.model == Model::None {
        effects.extend(conversation::after_stop(app, Then::Load(path)));
    } else {
        notice(app, format!("{name} has been fetched: /model {name} switches to it"));
    }
    effects
}
