//! What the user does and what comes of it, against an engine that says what the test has it say.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::engine::protocol::*;
use crate::session::Record;
use crate::tui::app::Model;
use crate::tui::glyphs::UNICODE;
use crate::tui::keymap::Keymap;
use crate::tui::message::{Job, Reply};
use crate::tui::options::{PullProgress, TuiOptions};
use crate::tui::overlay::Overlay;
use crate::tui::samples::{self, answer, engine, enter, press, request, type_in};
use crate::tui::theme::Theme;

pub(super) fn ready() -> App {
    let mut app = samples::app();
    samples::ready(&mut app);
    app
}

/// Roles and contents of a prompt.
pub(super) fn turns(request: &Request) -> Vec<(Role, &str)> {
    match &request.prompt {
        Prompt::Chat(m) | Prompt::Continue(m) => m.iter().map(|m| (m.role, m.content.as_str())).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn texts(app: &App) -> Vec<&str> {
    app.transcript.entries().iter().map(Entry::text).collect()
}

#[test]
fn a_question_is_sent_answered_and_both_are_saved() {
    let mut app = ready();
    let effects = enter(&mut app, "What is the capital of France?");
    assert_eq!(turns(request(&effects).unwrap()), [(Role::User, "What is the capital of France?")]);
    assert!(effects.iter().any(|e| matches!(e, Effect::Job(Job::Append(Record::Message(m))) if m.role == Role::User)));
    let effects = answer(&mut app, "Paris.", FinishReason::Stop);
    assert!(effects.iter().any(
        |e| matches!(e, Effect::Job(Job::Append(Record::Message(m))) if m.content == "Paris." && m.stats.is_some())
    ));
    assert_eq!(texts(&app), ["What is the capital of France?", "Paris."]);
    let effects = enter(&mut app, "And of Spain?");
    assert_eq!(turns(request(&effects).unwrap()).len(), 3);
}

#[test]
fn thinking_is_asked_for_as_the_chat_was_started_and_then_as_the_user_says() {
    let options = TuiOptions { thinking: Some(Thinking::Off), ..samples::options() };
    let mut app = App::new(&options, Theme::named("default").unwrap(), UNICODE, false, Keymap::default());
    samples::ready(&mut app);
    assert_eq!(request(&enter(&mut app, "one")).unwrap().thinking, Some(Thinking::Off));
    answer(&mut app, "1", FinishReason::Stop);
    enter(&mut app, "/think low");
    assert_eq!(app.status.as_deref(), Some("this model's template has no switch for thinking"));
    assert_eq!(request(&enter(&mut app, "two")).unwrap().thinking, Some(Thinking::Low));
    answer(&mut app, "2", FinishReason::Stop);
    enter(&mut app, "/think auto");
    assert_eq!(request(&enter(&mut app, "three")).unwrap().thinking, None);
}

#[test]
fn text_of_another_generation_is_not_shown() {
    let mut app = ready();
    enter(&mut app, "one");
    engine(&mut app, Event::Text { id: 99, text: "stray".into() });
    assert_eq!(texts(&app), ["one", ""]);
}

#[test]
fn ctrl_c_stops_the_answer_and_keeps_it() {
    let mut app = ready();
    enter(&mut app, "tell a story");
    let id = app.answer.as_ref().unwrap().id;
    engine(&mut app, Event::Text { id, text: "Once upon".into() });
    assert_eq!(press(&mut app, "ctrl-c"), [Effect::Cancel]);
    let stats = Box::default();
    let effects = engine(&mut app, Event::Finished { id, reason: FinishReason::Cancelled, stats });
    assert!(
        effects.iter().any(|e| matches!(e, Effect::Job(Job::Append(Record::Message(m))) if m.content == "Once upon"))
    );
    assert!(app.answer.is_none() && !app.leaving);
}

#[test]
fn ctrl_c_twice_leaves_only_when_idle_and_empty_and_soon() {
    let mut app = ready();
    type_in(&mut app, "draft");
    press(&mut app, "ctrl-c");
    assert!(app.composer.is_empty());
    press(&mut app, "ctrl-c");
    assert!(!app.leaving);
    type_in(&mut app, "x");
    press(&mut app, "backspace");
    press(&mut app, "ctrl-c");
    assert!(!app.leaving, "another key in between disarms it");
    assert!(press(&mut app, "ctrl-c").contains(&Effect::Quit));
}

#[test]
fn ctrl_d_leaves_on_an_empty_line_only() {
    let mut app = ready();
    type_in(&mut app, "ab");
    press(&mut app, "ctrl-a");
    assert_eq!(press(&mut app, "ctrl-d"), []);
    assert_eq!(app.composer.text(), "b");
    press(&mut app, "delete");
    assert!(press(&mut app, "ctrl-d").contains(&Effect::Quit));
}

#[test]
fn escape_destroys_nothing() {
    let mut app = ready();
    enter(&mut app, "tell a story");
    type_in(&mut app, "draft");
    assert_eq!(press(&mut app, "esc"), []);
    assert!(app.answer.as_ref().is_some_and(|a| !a.stopping));
    assert_eq!(app.composer.text(), "draft");
}

#[test]
fn leaving_in_mid_answer_saves_what_there_is() {
    let mut app = ready();
    enter(&mut app, "tell a story");
    let id = app.answer.as_ref().unwrap().id;
    engine(&mut app, Event::Text { id, text: "Once".into() });
    let effects = update(&mut app, Msg::Terminated);
    assert!(effects.iter().any(|e| matches!(e, Effect::Job(Job::Append(Record::Message(m))) if m.content == "Once")));
    assert_eq!(effects.last(), Some(&Effect::Quit));
}

#[test]
fn what_is_sent_during_an_answer_waits_for_its_end() {
    let mut app = ready();
    enter(&mut app, "one");
    assert!(request(&enter(&mut app, "two")).is_none());
    let effects = answer(&mut app, "first", FinishReason::Stop);
    let sent = turns(request(&effects).unwrap());
    assert_eq!(sent, [(Role::User, "one"), (Role::Assistant, "first"), (Role::User, "two")]);
}

#[test]
fn stopping_gives_the_waiting_message_back() {
    let mut app = ready();
    enter(&mut app, "one");
    enter(&mut app, "two");
    press(&mut app, "ctrl-c");
    assert_eq!(app.composer.text(), "two");
    assert!(request(&answer(&mut app, "first", FinishReason::Cancelled)).is_none());
}

#[test]
fn a_broken_answer_keeps_its_text_and_the_next_message_works() {
    let mut app = ready();
    enter(&mut app, "one");
    let id = app.answer.as_ref().unwrap().id;
    engine(&mut app, Event::Text { id, text: "half an".into() });
    let failure = Failure { kind: FailureKind::Io, message: "the disk said no".into(), shortfall: None };
    engine(&mut app, Event::Broken { id, failure });
    assert_eq!(texts(&app), ["one", "half an", "the disk said no"]);
    let effects = enter(&mut app, "two");
    assert_eq!(
        turns(request(&effects).unwrap()),
        [(Role::User, "one"), (Role::Assistant, "half an"), (Role::User, "two")]
    );
}

#[test]
fn a_full_context_drops_the_oldest_turns_and_says_so() {
    let mut app = ready();
    app.settings.system = Some("be brief".into());
    for n in 0..4 {
        enter(&mut app, &format!("question {n}"));
        answer(&mut app, "answer", FinishReason::Stop);
    }
    let id = request(&enter(&mut app, "last")).unwrap().id;
    let full = || Failure { kind: FailureKind::ContextFull, message: "the prompt is too long".into(), shortfall: None };
    let effects = engine(&mut app, Event::Broken { id, failure: full() });
    let sent = turns(request(&effects).unwrap());
    assert_eq!(sent[0], (Role::System, "be brief"));
    assert_eq!(sent[1], (Role::User, "question 1"));
    assert_eq!(sent.last(), Some(&(Role::User, "last")));
    assert!(texts(&app).iter().any(|t| t.contains("2 oldest messages are no longer sent")));
    for _ in 0..10 {
        let Some(id) = app.answer.as_ref().map(|a| a.id) else { break };
        engine(&mut app, Event::Broken { id, failure: full() });
    }
    assert!(app.answer.is_none(), "it gives up when only the message itself is left");
    assert!(texts(&app).iter().any(|t| t.contains("message alone is longer")));
}

#[test]
fn answers_are_made_again_taken_back_and_carried_on() {
    let mut app = ready();
    enter(&mut app, "one");
    answer(&mut app, "first", FinishReason::Length);
    let effects = enter(&mut app, "/continue");
    let sent = request(&effects).unwrap();
    assert!(matches!(sent.prompt, Prompt::Continue(_)));
    assert_eq!(turns(sent).last(), Some(&(Role::Assistant, "first")));
    let effects = answer(&mut app, " and more", FinishReason::Stop);
    assert_eq!(texts(&app), ["one", "first and more"]);
    assert_eq!(effects[0], Effect::Job(Job::Append(Record::Truncate { messages: 1 })));

    let effects = enter(&mut app, "/regen");
    assert_eq!(turns(request(&effects).unwrap()), [(Role::User, "one")]);
    answer(&mut app, "second", FinishReason::Stop);
    assert_eq!(texts(&app), ["one", "second"]);

    let effects = enter(&mut app, "/undo");
    assert_eq!(effects, [Effect::Job(Job::Append(Record::Truncate { messages: 0 }))]);
    assert!(texts(&app).is_empty());
}

#[test]
fn commands_that_need_the_answer_gone_stop_it_first() {
    let mut app = ready();
    enter(&mut app, "one");
    assert_eq!(enter(&mut app, "/regen"), [Effect::Cancel]);
    let effects = answer(&mut app, "first", FinishReason::Cancelled);
    assert_eq!(turns(request(&effects).unwrap()), [(Role::User, "one")]);
    assert_eq!(texts(&app), ["one", ""]);
}

#[test]
fn an_earlier_message_is_edited_in_a_branch() {
    let mut app = ready();
    for text in ["one", "two"] {
        enter(&mut app, text);
        answer(&mut app, "yes", FinishReason::Stop);
    }
    assert_eq!(enter(&mut app, "/edit 1"), [Effect::Job(Job::Fork { messages: 0 })]);
    assert_eq!(app.composer.text(), "one");
    type_in(&mut app, "!");
    assert_eq!(turns(request(&press(&mut app, "enter")).unwrap()), [(Role::User, "one!")]);
}

#[test]
fn the_first_screen_fetches_the_default_model_with_enter_and_then_loads_it() {
    let mut app = samples::app();
    update(&mut app, Msg::Reply(samples::shelf()));
    assert_eq!(press(&mut app, "enter"), [Effect::Pull("smollm2-135m".into())]);
    let progress = PullProgress { what: "fetching", done_bytes: 10, total_bytes: 20 };
    update(&mut app, Msg::Reply(Reply::Pulling(progress)));
    enter(&mut app, "What is the capital of France?");
    let pulled = Reply::Pulled { name: "smollm2-135m".into(), path: "/models/s.gguf".into() };
    let effects = update(&mut app, Msg::Reply(pulled));
    assert!(effects.iter().any(|e| matches!(e, Effect::Send(Command::Load(l)) if l.path.ends_with("s.gguf"))));
    let effects = engine(&mut app, Event::Loaded(Box::new(samples::info())));
    assert!(request(&effects).is_some(), "the question asked meanwhile is answered");
}

#[test]
fn a_question_on_the_first_screen_fetches_the_model_and_is_then_answered() {
    let mut app = samples::app();
    update(&mut app, Msg::Reply(samples::shelf()));
    let effects = enter(&mut app, "What is the capital of France?");
    assert!(effects.contains(&Effect::Pull("smollm2-135m".into())), "{effects:?}");
    let pulled = Reply::Pulled { name: "smollm2-135m".into(), path: "/models/s.gguf".into() };
    update(&mut app, Msg::Reply(pulled));
    let effects = engine(&mut app, Event::Loaded(Box::new(samples::info())));
    assert!(request(&effects).is_some());
}

#[test]
fn a_failed_fetch_can_be_tried_again_and_a_failed_load_leaves_the_chat() {
    let mut app = samples::app();
    update(&mut app, Msg::Reply(samples::shelf()));
    press(&mut app, "enter");
    assert_eq!(press(&mut app, "ctrl-c"), [Effect::CancelPull]);
    update(
        &mut app,
        Msg::Reply(Reply::PullFailed { name: "smollm2-135m".into(), message: "cancelled".into(), cancelled: true }),
    );
    assert_eq!(press(&mut app, "enter"), [Effect::Pull("smollm2-135m".into())]);

    let mut app = samples::app();
    enter(&mut app, "/model /nowhere.gguf");
    assert!(matches!(app.model, Model::Loading { .. }));
    let failure = Failure { kind: FailureKind::Load, message: "/nowhere.gguf: no such file".into(), shortfall: None };
    engine(&mut app, Event::Failed(failure));
    assert_eq!(app.model, Model::None);
    assert_eq!(texts(&app), ["/nowhere.gguf: no such file"]);
}

#[test]
fn commands_are_completed_and_unknown_ones_are_not_sent() {
    let mut app = ready();
    type_in(&mut app, "/bud");
    press(&mut app, "tab");
    assert_eq!(app.composer.text(), "/budget ");
    app.composer.set("");
    assert_eq!(enter(&mut app, "/nonsense"), []);
    assert_eq!(app.composer.text(), "/nonsense");
    assert!(app.status.as_ref().unwrap().contains("no command"));
    app.composer.set("");
    assert!(request(&enter(&mut app, "/etc/passwd, what is it?")).is_some());
}

#[test]
fn enter_takes_the_offer_of_a_command_begun() {
    let mut app = ready();
    type_in(&mut app, "/hel");
    press(&mut app, "enter");
    assert!(matches!(app.overlay, Some(Overlay::Help { .. })));
    press(&mut app, "esc");
    assert!(app.overlay.is_none() && app.composer.is_empty());
}

#[test]
fn a_paste_keeps_its_lines_and_loses_what_could_drive_a_terminal() {
    let mut app = ready();
    update(&mut app, Msg::Paste("first\r\x1b[31msecond\r\nthird".into()));
    assert_eq!(app.composer.text().lines().count(), 3);
    assert!(!app.composer.text().contains(['\r', '\x1b']));
}

#[test]
fn a_paste_beyond_what_a_message_takes_is_refused_in_words_and_the_draft_stays() {
    let mut app = ready();
    type_in(&mut app, "draft ");
    let most = app.most_pasted_bytes();
    assert_eq!(most, 256 << 10, "a context of 4096 tokens holds less than that");
    update(&mut app, Msg::Paste("x".repeat(most - 6)));
    update(&mut app, Msg::Paste("y".repeat(5000)));
    update(&mut app, Msg::PasteTooLong { bytes: 10 << 20 });
    let said = "left out: a message takes 256.0 KiB at the most; the context holds 4096 tokens.";
    assert_eq!(texts(&app), [format!("A paste of 4.9 KiB was {said}"), format!("A paste of 10.0 MiB was {said}")]);
    assert_eq!(app.composer.expanded(), format!("draft {}", "x".repeat(most - 6)));
    // A greater context takes more.
    app.snapshot = std::sync::Arc::new(Snapshot { context: 128 << 10, ..(*app.snapshot).clone() });
    assert_eq!(app.most_pasted_bytes(), 1 << 20);
}

#[test]
fn the_last_answer_a_code_block_or_all_is_copied() {
    let mut app = ready();
    enter(&mut app, "one");
    answer(&mut app, "<think>hm</think>\n```sh\nls\n```\nand\n```\npwd\n```", FinishReason::Stop);
    let copied = |effects: Vec<Effect>| match effects.first() {
        Some(Effect::Copy(text)) => text.clone(),
        other => format!("{other:?}"),
    };
    assert_eq!(copied(enter(&mut app, "/copy 2")), "pwd");
    assert!(copied(enter(&mut app, "/copy")).starts_with("```sh"));
    assert!(copied(enter(&mut app, "/copy all")).starts_with("you:\none"));
    assert_eq!(enter(&mut app, "/copy 3"), []);
}

#[test]
fn scrolling_back_holds_still_while_text_comes_and_end_follows_again() {
    let mut app = ready();
    app.size = (80, 24);
    enter(&mut app, "count");
    let id = app.answer.as_ref().unwrap().id;
    let lines = |from: u32| (from..from + 50).map(|n| format!("line {n}\n\n")).collect::<String>();
    engine(&mut app, Event::Text { id, text: lines(0) });
    crate::tui::view::prepare(&mut app);
    press(&mut app, "pageup");
    crate::tui::view::prepare(&mut app);
    let before: Vec<String> = app.transcript.window().map(ToString::to_string).collect();
    engine(&mut app, Event::Text { id, text: lines(50) });
    crate::tui::view::prepare(&mut app);
    let after: Vec<String> = app.transcript.window().map(ToString::to_string).collect();
    assert_eq!(before, after);
    assert_eq!(app.transcript.new_lines(), 100);
    press(&mut app, "end");
    crate::tui::view::prepare(&mut app);
    assert!(app.transcript.window().any(|l| l.to_string().contains("line 99")));
}

#[test]
fn a_search_goes_through_the_chat_and_ends_with_another_key() {
    let mut app = ready();
    app.size = (80, 12);
    for n in 0..20 {
        enter(&mut app, &format!("question {n} about {}", if n % 7 == 0 { "Bridges" } else { "bread" }));
        answer(&mut app, "so it is", FinishReason::Stop);
    }
    crate::tui::view::prepare(&mut app);
    enter(&mut app, "/find bridges");
    assert!(app.status.as_ref().is_some_and(|s| s.starts_with("3 hits; n: ")), "{:?}", app.status);
    let shown = |app: &App| app.transcript.window().map(|l| l.to_string()).collect::<String>();
    assert!(shown(&app).contains("question 14"), "{}", shown(&app));
    press(&mut app, "n");
    assert!(shown(&app).contains("question 7"));
    press(&mut app, "N");
    assert!(shown(&app).contains("question 14"));
    press(&mut app, "N");
    assert!(shown(&app).contains("question 0") && app.status.as_ref().is_some_and(|s| s.contains("around")));
    type_in(&mut app, "xn");
    assert_eq!(app.composer.text(), "xn");
}

#[test]
fn what_is_sent_after_a_new_chat_was_asked_for_is_sent_in_it() {
    let mut app = ready();
    enter(&mut app, "one");
    enter(&mut app, "/clear");
    assert!(enter(&mut app, "two").is_empty());
    let id = app.answer.as_ref().unwrap().id;
    let stats = Box::default();
    let effects = engine(&mut app, Event::Finished { id, reason: FinishReason::Cancelled, stats });
    assert!(effects.contains(&Effect::Job(Job::NewChat)));
    assert_eq!(turns(request(&effects).unwrap()), [(Role::User, "two")]);
}

#[test]
fn text_after_dropped_messages_is_shown_in_its_answer() {
    let mut app = ready();
    for n in 0..3 {
        enter(&mut app, &format!("question {n}"));
        answer(&mut app, "so it is", FinishReason::Stop);
    }
    enter(&mut app, "one more");
    let id = app.answer.as_ref().unwrap().id;
    let full = Failure { kind: FailureKind::ContextFull, message: "full".into(), shortfall: None };
    let effects = engine(&mut app, Event::Broken { id, failure: full.clone() });
    assert!(request(&effects).is_some());
    let id = app.answer.as_ref().unwrap().id;
    engine(&mut app, Event::Broken { id, failure: full });
    answer(&mut app, "here it is", FinishReason::Stop);
    let texts: Vec<&str> = app.transcript.entries().iter().map(|e| e.text()).collect();
    assert_eq!(texts.last(), Some(&"here it is"));
    assert_eq!(texts.iter().filter(|t| t.contains("no longer sent")).count(), 1, "{texts:?}");
}

#[test]
fn another_chat_is_opened_or_imported_only_once_the_answer_has_stopped() {
    for (line, job) in [
        ("/resume", Job::OpenLatest),
        ("/resume 20260101-000000", Job::OpenChat("20260101-000000".into())),
        ("/import chat.json", Job::Import("chat.json".into())),
        ("/fork", Job::Fork { messages: 2 }),
    ] {
        let mut app = ready();
        enter(&mut app, "one");
        let id = app.answer.as_ref().unwrap().id;
        engine(&mut app, Event::Text { id, text: "so far".into() });
        assert_eq!(enter(&mut app, line), [Effect::Cancel], "{line}");
        let stats = Box::default();
        let effects = engine(&mut app, Event::Finished { id, reason: FinishReason::Cancelled, stats });
        assert!(matches!(&effects[0], Effect::Job(Job::Append(Record::Message(m))) if m.content == "so far"), "{line}");
        assert_eq!(effects.last(), Some(&Effect::Job(job)), "{line}");
    }
}

#[test]
fn an_answer_ends_with_the_chat_that_is_deleted() {
    let mut app = ready();
    enter(&mut app, "one");
    let id = app.answer.as_ref().unwrap().id;
    let effects = update(&mut app, Msg::Reply(Reply::Deleted { title: "one".into(), current: true }));
    assert_eq!(effects, [Effect::Job(Job::ListChats), Effect::Cancel]);
    engine(&mut app, Event::Text { id, text: "late".into() });
    assert!(app.answer.is_none() && texts(&app).is_empty());
}

#[test]
fn an_imported_chat_keeps_its_title() {
    let mut app = ready();
    let messages = vec![crate::session::ChatMessage::new(Role::User, "hi")];
    let effects = update(&mut app, Msg::Reply(Reply::Imported { title: "Greetings".into(), messages }));
    let title = Record::Title { title: "Greetings".into() };
    assert_eq!(effects.last(), Some(&Effect::Job(Job::Append(title))));
    assert_eq!(app.title.as_deref(), Some("Greetings"));
    assert_eq!(app.status.as_deref(), Some("imported 1 message, as a chat of its own"));
}

#[test]
fn a_saved_chat_is_renamed_in_the_list() {
    let mut app = ready();
    enter(&mut app, "/sessions");
    let chat = crate::session::Summary { id: "20260101-000000".into(), title: "old".into(), ..Default::default() };
    update(&mut app, Msg::Reply(Reply::Chats(vec![chat])));
    press(&mut app, "ctrl-r");
    type_in(&mut app, "er");
    press(&mut app, "esc");
    assert!(matches!(app.overlay, Some(Overlay::Chats(_))) && app.renaming.is_none(), "Esc leaves only the title");
    press(&mut app, "ctrl-r");
    press(&mut app, "ctrl-u");
    type_in(&mut app, "new q");
    let effects = press(&mut app, "enter");
    let rename = Job::Rename { id: "20260101-000000".into(), title: "new q".into() };
    assert_eq!(effects, [Effect::Job(rename), Effect::Job(Job::ListChats)]);
    assert_eq!(app.chats[0].title, "new q", "the list need not be read again to show it");
    assert!(matches!(&app.overlay, Some(Overlay::Chats(picker)) if picker.filter.is_empty()));
}

#[test]
fn a_line_that_was_meant_for_a_command_is_no_message_but_with_a_space_before_it() {
    let mut app = ready();
    assert_eq!(enter(&mut app, "/foo/system You are"), []);
    assert_eq!(app.composer.text(), "/foo/system You are");
    assert!(app.status.as_deref().is_some_and(|s| s.contains("/foo/system is no command")), "{:?}", app.status);
    app.composer.take();
    let effects = enter(&mut app, " /foo/system You are");
    assert_eq!(turns(request(&effects).unwrap()), [(Role::User, "/foo/system You are")]);
}
