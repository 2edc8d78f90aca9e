//! The slash commands.

use std::path::PathBuf;
use std::sync::Arc;

use super::{Effects, budget, conversation, leave, listing, notice, overlays, settings};
use crate::engine::protocol::{Command, Role, Thinking};
use crate::session::Record;
use crate::size::format_size;
use crate::tui::app::{App, Then};
use crate::tui::entry::{Entry, answer_only, summary};
use crate::tui::figures;
use crate::tui::message::{Effect, Job};
use crate::tui::overlay::{Overlay, Panel, Picker};
use crate::tui::picker;
use crate::tui::slash::Slash;
use crate::tui::theme::Theme;
use crate::words::counted;

pub(super) fn run(app: &mut App, slash: Slash, argument: &str) -> Effects {
    let number = argument.parse::<usize>().ok();
    match slash {
        Slash::Help | Slash::Keys => app.overlay = Some(Overlay::Help { scroll: 0 }),
        Slash::Model => return model(app, argument),
        Slash::Budget => return budget::command(app, argument),
        Slash::System => return system(app, argument),
        Slash::Set => return settings::command(app, argument),
        Slash::Stop => return conversation::stop(app),
        Slash::Regen => return conversation::after_stop(app, Then::Regenerate),
        Slash::Continue => return conversation::go_on(app),
        Slash::Edit => return conversation::after_stop(app, Then::Edit(number)),
        Slash::Undo => return conversation::after_stop(app, Then::Undo),
        Slash::Fork => return conversation::after_stop(app, Then::Fork(number)),
        Slash::Clear => return conversation::after_stop(app, Then::Clear),
        Slash::Copy => return copy(app, argument),
        Slash::Find => find(app, argument),
        Slash::Read => {
            let most_bytes = app.most_pasted_bytes();
            return with_argument(app, slash, argument, |path| Effect::Job(Job::ReadFile { path, most_bytes }));
        }
        Slash::Think => think(app, argument),
        Slash::Sessions => {
            app.overlay = Some(Overlay::Chats(Picker::new(&picker::chat_names(app))));
            return vec![Effect::Job(Job::ListChats)];
        }
        Slash::Resume => {
            let job = if argument.is_empty() { Job::OpenLatest } else { Job::OpenChat(argument.to_owned()) };
            return conversation::after_stop(app, Then::Another(job));
        }
        Slash::Rename => {
            let effects =
                with_argument(app, slash, argument, |title| Effect::Job(Job::Append(Record::Title { title })));
            if !effects.is_empty() {
                app.title = Some(argument.to_owned());
                app.status = Some(format!("this chat is called {argument:?} now"));
            }
            return effects;
        }
        Slash::Delete if argument == "undo" => return vec![Effect::Job(Job::UndeleteChat)],
        Slash::Delete => {
            let id = (!argument.is_empty()).then(|| argument.to_owned());
            return vec![Effect::Job(Job::DeleteChat(id))];
        }
        Slash::Search => return with_argument(app, slash, argument, |a| Effect::Job(Job::Search(a))),
        Slash::Export => return export(app, argument),
        Slash::Import if !argument.is_empty() => {
            return conversation::after_stop(app, Then::Another(Job::Import(argument.to_owned())));
        }
        Slash::Import => app.status = Some(format!("/import {}", slash.arguments())),
        Slash::Pager => return vec![Effect::Pager(crate::session::export::text(&said(app)))],
        Slash::Stats => stats(app),
        Slash::Memory => super::keys::zoom(app, Panel::Memory),
        Slash::Layers => super::keys::zoom(app, Panel::Layers),
        Slash::Speed => super::keys::zoom(app, Panel::Speed),
        Slash::Panel => panel(app, argument),
        Slash::Freeze => super::keys::freeze(app),
        Slash::Theme if argument.is_empty() => {
            listing(app, format!("themes: {}, or a file of role = \"bold cyan\" lines", Theme::NAMES.join(", ")));
        }
        Slash::Theme => return vec![Effect::Job(Job::LoadTheme(argument.to_owned()))],
        Slash::Mouse => {
            app.mouse = !app.mouse;
            let state = if app.mouse {
                "on: the wheel scrolls; hold Shift to select"
            } else {
                "off: selection is the terminal's"
            };
            app.status = Some(format!("mouse {state}"));
            return vec![Effect::Mouse(app.mouse)];
        }
        Slash::Quit => return leave(app),
    }
    Vec::new()
}

fn with_argument(app: &mut App, slash: Slash, argument: &str, effect: impl FnOnce(String) -> Effect) -> Effects {
    if argument.is_empty() {
        app.status = Some(format!("/{} {}", slash.name(), slash.arguments()));
        return Vec::new();
    }
    vec![effect(argument.to_owned())]
}

/// Every message of the chat, the system prompt first.
fn said(app: &App) -> Vec<crate::session::ChatMessage> {
    let system = app.settings.system.iter().map(|s| crate::session::ChatMessage::new(Role::System, s.clone()));
    let messages = app.transcript.entries().iter().filter_map(Entry::as_message);
    system.chain(messages.filter(|m| m.role != Role::System).cloned()).collect()
}

fn model(app: &mut App, argument: &str) -> Effects {
    if argument.is_empty() {
        if !app.has_catalog {
            app.status = Some("/model PATH loads a GGUF file".to_owned());
            return Vec::new();
        }
        let picker = Picker::new(&picker::model_names(app));
        let mut effects = picker.chosen().map_or_else(Vec::new, |i| picker::want_forecast(app, i));
        app.overlay = Some(Overlay::Models(picker));
        effects.push(Effect::Job(Job::Catalog));
        return effects;
    }
    let named = app.catalog.iter().position(|e| e.name.eq_ignore_ascii_case(argument));
    match named {
        Some(index) => overlays::choose_model(app, index),
        None => conversation::after_stop(app, Then::Load(expand_home(argument))),
    }
}

fn expand_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::var_os("HOME")) {
        (Some(rest), Some(home)) => PathBuf::from(home).join(rest),
        _ => PathBuf::from(path),
    }
}

fn system(app: &mut App, argument: &str) -> Effects {
    match argument {
        "" => {
            let text =
                app.settings.system.clone().unwrap_or_else(|| "no system prompt; /system TEXT sets one".to_owned());
            listing(app, text);
        }
        "off" | "none" => {
            app.settings.system = None;
            notice(app, "no system prompt from the next message on");
            return vec![settings::save(app)];
        }
        text => {
            app.settings.system = Some(text.to_owned());
            notice(app, format!("system prompt from the next message on: {text}"));
            return vec![settings::save(app)];
        }
    }
    Vec::new()
}

/// Begins anew: an empty transcript, another file, an empty KV cache.
pub(super) fn new_chat(app: &mut App) -> Effects {
    app.transcript.clear();
    app.title = None;
    app.dropped = 0;
    vec![Effect::Job(Job::NewChat), Effect::Send(Command::Reset)]
}

fn copy(app: &mut App, argument: &str) -> Effects {
    let text = match argument {
        "" => {
            let answers = app.transcript.entries().iter().rev().filter_map(Entry::as_message);
            answers.filter(|m| m.role == Role::Assistant).map(|m| answer_only(&m.content).trim().to_owned()).next()
        }
        "all" => Some(crate::session::export::text(&said(app))),
        number => match number.parse() {
            Ok(number) => app.transcript.code_block(number),
            Err(_) => {
                app.status = Some("/copy: the last answer; /copy 2: code block 2; /copy all: the chat".to_owned());
                return Vec::new();
            }
        },
    };
    match text.filter(|t| !t.is_empty()) {
        Some(text) => vec![Effect::Copy(text.clone()), Effect::Job(Job::KeepCopy(text))],
        None => {
            app.status = Some("there is nothing of that number to copy".to_owned());
            Vec::new()
        }
    }
}

/// Shows or hides all panels, or one by its name.
fn panel(app: &mut App, argument: &str) {
    match Panel::by_name(argument) {
        Some(panel) => {
            let hidden = &mut app.hidden[panel as usize];
            // Asked for while all are away, it is the one to be seen.
            *hidden = app.panel_shown && !*hidden;
            app.panel_shown = true;
        }
        None if argument.is_empty() => app.panel_shown = !app.panel_shown,
        None => app.status = Some("/panel, or /panel with memory, layers or speed".to_owned()),
    }
}

fn find(app: &mut App, argument: &str) {
    if argument.is_empty() {
        app.transcript.find = None;
        app.status = Some("/find TEXT".to_owned());
        return;
    }
    app.transcript.find = Some(argument.to_owned());
    app.transcript.forget_found();
    // The latest place first: what was just said is what is looked for.
    app.finding = app.transcript.find_next(false);
    app.status = Some(if app.finding {
        let hits = counted(app.transcript.hits(), "hit");
        format!("{hits}; n: further back, N: further on, v: in $PAGER, Esc: done")
    } else {
        "not found".to_owned()
    });
}

fn think(app: &mut App, argument: &str) {
    if argument.is_empty() {
        let unfold = !app.transcript.unfold_thinking;
        return app.transcript.set_unfold_thinking(unfold);
    }
    let thinking = Thinking::from_name(argument);
    if thinking.is_none() && argument != "auto" {
        app.status = Some("write /think on, off, low, medium, high or auto".to_owned());
        return;
    }
    app.settings.thinking = thinking;
    let switch = app.info().map(|info| info.thinking).unwrap_or_default();
    app.status = Some(match thinking {
        None => "the model thinks or not as its template has it".to_owned(),
        Some(thinking) => switch.outcome(thinking).to_owned(),
    });
}

fn export(app: &mut App, argument: &str) -> Effects {
    let messages = said(app);
    if messages.is_empty() {
        app.status = Some("there is nothing to export yet".to_owned());
        return Vec::new();
    }
    let title = app.title.clone().unwrap_or_default();
    with_argument(app, Slash::Export, argument, |path| Effect::Job(Job::Export { path, title, messages }))
}

fn stats(app: &mut App) {
    let m = &app.snapshot.memory;
    let s = &app.snapshot.speed;
    let mut rows = Vec::new();
    if let Some(info) = app.info() {
        rows.push(format!(
            "{} ({}, {}), {}, {}, {} {:?}",
            info.name,
            info.architecture,
            info.quantization,
            counted(info.layers, "layer"),
            counted(info.threads, "thread"),
            info.isa,
            info.kernel
        ));
        if let Some(own_name) = info.own_name.as_ref().filter(|own_name| **own_name != info.name) {
            rows.push(format!("the file calls itself {own_name}"));
        }
        rows.push(format!(
            "weights {}, {} needed a token",
            format_size(info.weights_bytes),
            format_size(info.touched_bytes_per_token)
        ));
    }
    rows.push(format!(
        "budget {}: pinned {}, ring {}, kv {}, scratch {}, base {}",
        format_size(m.budget_bytes),
        format_size(m.pinned_bytes),
        format_size(m.ring_bytes),
        format_size(m.kv_bytes),
        format_size(m.scratch_bytes),
        format_size(m.base_bytes)
    ));
    rows.push(format!(
        "rss {}, peak {}; least budget {} with {}, all in memory from {}",
        format_size(m.rss_bytes),
        format_size(m.peak_rss_bytes),
        format_size(m.least_bytes),
        counted(m.least_context, "token"),
        format_size(m.full_bytes)
    ));
    rows.push(format!(
        "{} tok/s now, {} mean, bound {} ({})",
        figures::rate(s.now_tok_s),
        figures::rate(s.mean_tok_s),
        figures::rate(s.bound_tok_s),
        s.limiter.name()
    ));
    let disk = figures::disk_rate(s);
    rows.push(format!("{disk}, {} streamed a token", format_size(s.streamed_bytes_per_token)));
    let last = app.transcript.entries().iter().rev().filter_map(Entry::as_message).find_map(|m| m.stats.as_deref());
    if let Some(last) = last {
        rows.push(format!("last answer: {}", summary(last, app.glyphs.dot)));
        rows.push(format!(
            "its prompt: {}, {} known already, {}, {} read, {} tok/s; {:.0}% of its time waiting for the disk",
            counted(last.prompt_tokens, "token"),
            last.reused_tokens,
            counted(last.prefill_passes, "pass"),
            format_size(last.prefill_streamed_bytes),
            figures::rate(last.prefill_tok_s as f32),
            last.stall_fraction * 100.0
        ));
    }
    listing(app, rows.join("\n"));
}

/// Puts a theme in force; without colour, its names all mean `mono`.
pub(super) fn use_theme(app: &mut App, name: &str, theme: Theme) {
    app.theme = Arc::new(if app.colourless { Theme::mono() } else { theme });
    app.transcript.set_look(app.theme.clone(), app.glyphs);
    let aside = if app.colourless { "; NO_COLOR keeps it without colour" } else { "" };
    app.status = Some(format!("theme {name}{aside}"));
}
