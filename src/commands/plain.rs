//! `sipllm chat --plain`: the chat a line at a time, without escape codes, for screen readers, simple terminals and
//! scripts. Answers and what commands show go to standard output, remarks to standard error.
//!
//! `Conversation` holds what was said and what a line does; the loop in `converse` waits for lines, engine events
//! and signals. What a person types is saved like the full screen's chats; a script's is not.

mod back;
mod conversation;
mod figures;
mod saved;
mod slash;

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::{Duration, Instant};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{Receiver, channel};

use super::driver::describe;
use super::pull::model_path;
use super::{Outcome, chat};
use crate::cli::ChatArgs;
use crate::config::{CHAT_CONTEXT, Settings};
use crate::engine::protocol::{Command, Event, LoadRequest};
use crate::engine::{EngineHandle, EventReceiver};
use crate::places;
use crate::session::{OpenChat, Store, export};
use crate::tui::Resume;
use conversation::{Conversation, Next};

/// Two Ctrl-C within this time leave an idle chat.
const TWICE: Duration = Duration::from_secs(2);

pub fn run(args: &ChatArgs, settings: &Settings) -> anyhow::Result<Outcome> {
    let typed = io::stdin().is_terminal();
    let saves = typed || args.resume.is_some();
    let folder = places::data_dir(settings.data_dir.as_deref()).ok().filter(|_| saves).map(|data| data.join("chats"));
    let mut store = Store::new(folder);
    let opened = match chat::resume(args) {
        Resume::Fresh => None,
        Resume::Last => Some(store.open_latest()?),
        Resume::Id(id) => Some(store.open(&id)?),
    };
    let Some(path) = model_path(args.model.as_deref(), settings)? else { return Ok(Outcome::Interrupted) };
    let (engine, events) = EngineHandle::spawn()?;
    let load = settings.load_request(path, CHAT_CONTEXT);
    let talk = Talk { settings, load, prompts: typed, out: io::stdout(), remarks: io::stderr(), store, opened };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let signals = Signals::new()?;
        converse(talk, engine, events, lines_of_stdin()?, signals).await
    })
}

/// What a plain chat is made of; the writers are standard output and error, or a test's.
struct Talk<'a, O, R> {
    settings: &'a Settings,
    load: LoadRequest,
    /// A person types: show prompts and figures, and take commands in the middle of an answer.
    prompts: bool,
    out: O,
    remarks: R,
    store: Store,
    /// The chat to go on with.
    opened: Option<OpenChat>,
}

/// Lines from standard input, read on a thread of its own since such a read cannot be given up.
fn lines_of_stdin() -> io::Result<Receiver<String>> {
    // One line ahead: a long pipe waits for its answers.
    let (sender, receiver) = channel(1);
    std::thread::Builder::new().name("stdin".into()).spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut bytes = Vec::new();
        while let Ok(1..) = stdin.read_until(b'\n', &mut bytes) {
            let line = String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\r']).to_owned();
            if sender.blocking_send(line).is_err() {
                return;
            }
            bytes.clear();
        }
    })?;
    Ok(receiver)
}

/// The signals that mean something to a chat.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// True for Ctrl-C, false where the program is to end.
    async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.interrupt.recv() => true,
            _ = self.terminate.recv() => false,
            _ = self.hangup.recv() => false,
        }
    }
}

async fn converse<O: Write, R: Write>(
    talk: Talk<'_, O, R>,
    engine: EngineHandle,
    mut events: EventReceiver,
    mut lines: Receiver<String>,
    mut signals: Signals,
) -> anyhow::Result<Outcome> {
    let Talk { settings, load, prompts, mut out, mut remarks, store, opened } = talk;
    engine.send(Command::Load(Box::new(load.clone())));
    let mut chat = Conversation::new(engine.clone(), settings, load, store);
    if let Some(opened) = opened {
        write!(out, "{}", export::text(&opened.messages))?;
        chat.open(opened);
    }
    let mut typed_ahead: Vec<String> = Vec::new();
    let mut ended = false;
    let mut last_interrupt: Option<Instant> = None;
    let mut prompted = false;
    loop {
        if chat.is_idle() {
            if !typed_ahead.is_empty() {
                let line = typed_ahead.remove(0);
                if let Next::Leave = chat.line(&line, &mut out, &mut remarks)? {
                    return Ok(Outcome::Done);
                }
                continue;
            }
            if ended {
                return Ok(Outcome::Done);
            }
            if prompts && !prompted {
                write!(out, "{}", if chat.is_unfinished() { ". " } else { "> " })?;
                out.flush()?;
                prompted = true;
            }
        }
        tokio::select! {
            biased;
            goes_on = signals.next() => {
                let twice = last_interrupt.is_some_and(|at| at.elapsed() < TWICE);
                if !goes_on || !prompts || chat.is_loading() || (chat.is_idle() && twice) {
                    engine.cancel();
                    if prompts {
                        // What comes next begins a line of its own, not behind the prompt and the terminal's `^C`.
                        writeln!(remarks)?;
                    }
                    return Ok(Outcome::Interrupted);
                }
                if chat.is_idle() {
                    last_interrupt = Some(Instant::now());
                    writeln!(remarks, "\nCtrl-C again, Ctrl-D or /quit leaves.")?;
                    chat.forget_unfinished();
                    prompted = false;
                } else {
                    engine.cancel();
                }
            }
            event = events.recv() => match event {
                Some(Event::Failed(failure)) if chat.is_loading_first() => return Err(describe(&failure)),
                Some(event) => {
                    chat.event(event, prompts, &mut out, &mut remarks)?;
                    prompted = false;
                }
                None => anyhow::bail!("the engine has gone; please report this"),
            },
            line = lines.recv(), if !ended && (prompts || chat.is_idle()) => match line {
                Some(line) if chat.is_idle() || (prompts && line.starts_with('/')) => {
                    prompted = false;
                    if let Next::Leave = chat.line(&line, &mut out, &mut remarks)? {
                        engine.cancel();
                        return Ok(Outcome::Done);
                    }
                }
                Some(line) => typed_ahead.push(line),
                None => {
                    ended = true;
                    if prompts && chat.is_idle() {
                        writeln!(out)?;
                    }
                }
            },
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::EngineEnd;
    use crate::engine::protocol::{
        Budget, Failure, FailureKind, FinishReason, GenerationStats, ModelInfo, Prompt, Snapshot,
    };
    use crate::gguf::writer::Writer;

    /// An engine that repeats the last message in capitals.
    fn echo(end: EngineEnd) {
        while let Ok(envelope) = end.commands.recv() {
            match envelope.command {
                Command::Load(load) => {
                    let event = if load.path.ends_with("bad.gguf") {
                        let message = "bad.gguf: not a GGUF file".to_owned();
                        Event::Failed(Failure { kind: FailureKind::Load, message, shortfall: None })
                    } else {
                        let name = "toy".to_owned();
                        Event::Loaded(Box::new(ModelInfo { name, context: 64, ..ModelInfo::default() }))
                    };
                    let _ = end.events.send(event);
                }
                Command::Generate(request) => {
                    let id = request.id;
                    let (Prompt::Chat(messages) | Prompt::Continue(messages)) = &request.prompt else { panic!() };
                    let text = format!("{}:{}", messages.len(), messages.last().unwrap().content.to_uppercase());
                    for text in [&text[..2], &text[2..]] {
                        let _ = end.events.send(Event::Text { id, text: text.into() });
                    }
                    let stats = Box::new(GenerationStats { generated_tokens: 2, ..GenerationStats::default() });
                    let _ = end.events.send(Event::Finished { id, reason: FinishReason::Stop, stats });
                }
                Command::Reset => {}
                _ => return,
            }
            if let Some(Budget::Bytes(bytes)) = end.controls.take_budget() {
                let _ = end.events.send(Event::BudgetSet { budget: Budget::Bytes(bytes), bytes });
            }
            let _ = end.snapshots.send(Arc::new(Snapshot::default()));
        }
    }

    fn told(model: &str, lines: &[&str]) -> (anyhow::Result<Outcome>, String, String) {
        told_and_saved(model, lines, Store::new(None), None)
    }

    fn told_and_saved(
        model: &str,
        lines: &[&str],
        store: Store,
        opened: Option<OpenChat>,
    ) -> (anyhow::Result<Outcome>, String, String) {
        let settings = Settings::default();
        let (engine, events, end) = EngineHandle::pair();
        let thread = std::thread::spawn(move || echo(end));
        let (mut out, mut remarks) = (Vec::new(), Vec::new());
        let talk = Talk {
            settings: &settings,
            load: settings.load_request(model.into(), CHAT_CONTEXT),
            prompts: false,
            out: &mut out,
            remarks: &mut remarks,
            store,
            opened,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = runtime.block_on(async {
            let (sender, receiver) = channel(lines.len().max(1));
            for line in lines {
                sender.send((*line).to_owned()).await.unwrap();
            }
            drop(sender);
            converse(talk, engine.clone(), events, receiver, Signals::new().unwrap()).await
        });
        engine.send(Command::Shutdown);
        thread.join().unwrap();
        (outcome, String::from_utf8(out).unwrap(), String::from_utf8(remarks).unwrap())
    }

    fn said(lines: &[&str]) -> String {
        told("toy.gguf", lines).1
    }

    #[test]
    fn each_line_is_answered_in_turn_with_all_that_was_said_before() {
        let (outcome, out, _) = told("toy.gguf", &["hello", "", "again"]);
        assert_eq!(outcome.unwrap(), Outcome::Done);
        assert_eq!(out, "1:HELLO\n3:AGAIN\n");
    }

    #[test]
    fn a_backslash_at_its_end_carries_a_line_on() {
        assert_eq!(said(&["one\\", "two"]), "1:ONE\nTWO\n");
    }

    #[test]
    fn slash_commands_change_the_conversation() {
        assert_eq!(said(&["a", "b", "/undo", "c"]), "1:A\n3:B\n3:C\n");
        assert_eq!(said(&["a", "/clear", "b"]), "1:A\n1:B\n");
        assert_eq!(said(&["/system Be brief.", "a"]), "2:A\n");
        assert_eq!(said(&["a", "/regen"]), "1:A\n1:A\n");
        assert_eq!(said(&["a", "/quit", "b"]), "1:A\n");
    }

    #[test]
    fn going_on_adds_to_the_answer() {
        assert_eq!(said(&["a", "/continue", "/undo", "b"]), "1:A\n2:1:A\n1:B\n");
    }

    #[test]
    fn an_unknown_command_is_a_remark_and_nothing_is_sent() {
        let (_, out, remarks) = told("toy.gguf", &["/budgte 80M", "a"]);
        assert_eq!(out, "1:A\n");
        assert_eq!(remarks, "there is no /budgte; did you mean /budget?\n");
    }

    #[test]
    fn settings_are_shown_and_changed() {
        let out = said(&["/set temp 0.25", "/set"]);
        assert!(out.contains("temp 0.25\n") && out.contains("top-k 40\n"), "{out}");
        let (_, _, remarks) = told("toy.gguf", &["/set temp hot", "/set warmth 1"]);
        assert!(remarks.contains("`hot` is not a temperature") && remarks.contains("there is no setting `warmth`"));
    }

    #[test]
    fn a_model_that_does_not_load_ends_the_chat() {
        let (outcome, out, _) = told("bad.gguf", &["hello"]);
        assert_eq!(outcome.unwrap_err().to_string(), "bad.gguf: not a GGUF file");
        assert_eq!(out, "");
    }

    #[test]
    fn a_model_that_cannot_take_its_place_leaves_the_one_there_was() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.gguf");
        std::fs::write(&file, "no model").unwrap();
        let (_, out, remarks) = told("toy.gguf", &["a", &format!("/model {}", file.display()), "/model", "b"]);
        assert_eq!(out, "1:A\ntoy, , 0 layers, 0 B, context 64\n3:B\n");
        assert!(remarks.contains("x.gguf") && remarks.contains("is not a GGUF file"), "{remarks}");
        // Its header is sound, and still the engine does not load it.
        let file = folder.path().join("bad.gguf");
        Writer::new().write(std::fs::File::create(&file).unwrap(), |_, _| Ok(())).unwrap();
        let (_, out, remarks) = told("toy.gguf", &["a", &format!("/model {}", file.display()), "b"]);
        assert_eq!(out, "1:A\n3:B\n");
        assert!(remarks.contains("going back"), "{remarks}");
    }

    #[test]
    fn a_file_is_read_into_the_next_message() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.txt");
        std::fs::write(&file, "some notes\n").unwrap();
        let out = said(&[&format!("/read {}", file.display()), "summarise"]);
        assert!(out.contains("SOME NOTES") && out.contains("SUMMARISE"), "{out}");
        let (_, _, remarks) = told("toy.gguf", &["/read /nowhere/at/all"]);
        assert!(remarks.starts_with("/nowhere/at/all: "), "{remarks}");
    }

    #[test]
    fn a_saved_chat_is_gone_on_with_as_it_stood() {
        let folder = tempfile::tempdir().unwrap();
        let store = || Store::new(Some(folder.path().into()));
        told_and_saved("toy.gguf", &["a", "b", "/undo", "/continue", "/rename First"], store(), None).0.unwrap();
        let mut again = store();
        let chat = again.open_latest().unwrap();
        assert_eq!(chat.summary.title, "First");
        let said: Vec<&str> = chat.messages.iter().map(|message| message.content.as_str()).collect();
        assert_eq!(said, ["a", "1:A2:1:A"]);
        let (_, out, _) = told_and_saved("toy.gguf", &["c", "/sessions"], again, Some(chat));
        assert!(out.contains("1:A2:1:A") && out.contains("3:C\n") && out.contains("First, 4 messages"), "{out}");
    }

    #[test]
    fn an_earlier_message_is_written_anew_and_the_chat_as_it_was_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = || Store::new(Some(folder.path().into()));
        let (_, out, remarks) = told_and_saved("toy.gguf", &["a", "b", "/edit 1", "c", "/edit 7"], store(), None);
        assert_eq!(out, "1:A\n3:B\na\n1:C\n");
        assert!(remarks.contains("Write it anew") && remarks.contains("no such message"), "{remarks}");
        let counts: Vec<usize> = store().list().unwrap().iter().map(|chat| chat.messages).collect();
        assert!(counts.contains(&4) && counts.contains(&2), "{counts:?}");
    }

    #[test]
    fn a_branch_goes_as_far_as_asked() {
        assert_eq!(said(&["a", "b", "/fork 1", "c"]), "1:A\n3:B\n2 messages, in a branch of its own\n3:C\n");
    }

    #[test]
    fn a_chat_is_deleted_and_brought_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = || Store::new(Some(folder.path().into()));
        let (_, out, _) = told_and_saved("toy.gguf", &["a", "/delete", "b"], store(), None);
        assert!(out.contains("deleted: a") && out.ends_with("1:B\n"), "{out}");
        assert_eq!(store().list().unwrap().len(), 1);
        told_and_saved("toy.gguf", &["c", "/delete", "/delete undo"], store(), None).0.unwrap();
        assert_eq!(store().list().unwrap().len(), 2);
    }

    #[test]
    fn what_is_copied_lies_in_a_file_and_no_escape_code_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(Some(folder.path().into()));
        let (_, out, remarks) = told_and_saved("toy.gguf", &["hello", "/copy", "/copy 3"], store, None);
        assert_eq!(std::fs::read_to_string(folder.path().join("copied.txt")).unwrap(), "1:HELLO");
        assert!(out.contains("copied.txt") && !out.contains('\x1b'), "{out}");
        assert!(remarks.contains("nothing of that number"), "{remarks}");
    }

    #[test]
    fn lines_are_found_with_the_number_of_their_message() {
        let out = said(&["a lighthouse", "b", "/find LIGHT"]);
        assert!(out.ends_with("1 you: a lighthouse\n1 answer: 1:A LIGHTHOUSE\n"), "{out}");
    }

    #[test]
    fn every_command_of_the_screen_is_known_here() {
        for slash in crate::tui::slash_names() {
            if slash == "quit" {
                continue;
            }
            let (_, _, remarks) = told("toy.gguf", &[&format!("/{slash}")]);
            assert!(!remarks.contains("there is no /"), "/{slash}: {remarks}");
        }
    }

    #[test]
    fn a_chat_that_cannot_be_saved_goes_on() {
        let (outcome, out, remarks) =
            told_and_saved("toy.gguf", &["a", "b"], Store::new(Some("/dev/null/x".into())), None);
        outcome.unwrap();
        assert_eq!(out, "1:A\n3:B\n");
        assert!(remarks.contains("/dev/null/x") && remarks.contains("is not saved any more"), "{remarks}");
        assert_eq!(remarks.lines().count(), 1);
    }
}
