//! What was said, and what a message of the user's and an event of the engine's do to it.
//!
//! Not responsible for the slash commands (`slash`).

use std::io::{self, Write};
use std::path::PathBuf;

use crate::commands::driver::details;
use crate::commands::told;
use crate::config::Settings;
use crate::engine::EngineHandle;
use crate::engine::protocol::{
    Budget, Command, Event, Failure, FailureKind, FinishReason, GenerationId, GenerationStats, LoadRequest, Message,
    ModelInfo, Prompt, Request, Role,
};
use crate::session::{self, ChatMessage, OpenChat, Record, Store};
use crate::size::{format_budget, format_size};
use crate::tui::in_chat;
use crate::words::counted;

/// What comes after a line.
pub(super) enum Next {
    Stay,
    Leave,
}

pub(super) enum State {
    Loading { first: bool },
    Idle,
    Answering { id: GenerationId, text: String, goes_on: bool },
}

/// A conversation with the engine.
pub(super) struct Conversation {
    pub(super) engine: EngineHandle,
    pub(super) settings: Settings,
    pub(super) load: LoadRequest,
    pub(super) model: Option<ModelInfo>,
    /// The model that was given up for the one being loaded.
    before: Option<PathBuf>,
    pub(super) messages: Vec<ChatMessage>,
    /// So many of the oldest messages are no longer sent: the context was full.
    pub(super) dropped: usize,
    /// Lines of a message that is not finished, and files read into it.
    pub(super) unfinished: String,
    /// The unfinished message goes on with the next line.
    carried_on: bool,
    pub(super) state: State,
    answers: GenerationId,
    pub(super) last: Option<GenerationStats>,
    pub(super) store: Store,
    /// Why the chat is not being saved any more, until it is said.
    unsaved: Option<String>,
}

impl Conversation {
    /// A conversation whose model the engine is loading.
    pub(super) fn new(engine: EngineHandle, settings: &Settings, load: LoadRequest, store: Store) -> Self {
        Self {
            engine,
            settings: settings.clone(),
            load,
            model: None,
            before: None,
            messages: Vec::new(),
            dropped: 0,
            unfinished: String::new(),
            carried_on: false,
            state: State::Loading { first: true },
            answers: 0,
            last: None,
            store,
            unsaved: None,
        }
    }

    /// Loads another model in place of this one, which comes back if the other cannot be loaded.
    pub(super) fn load_model(&mut self, path: PathBuf) {
        let old = std::mem::replace(&mut self.load.path, path);
        self.before = self.model.is_some().then_some(old);
        self.load_again();
    }

    fn load_again(&mut self) {
        self.engine.send(Command::Load(Box::new(self.load.clone())));
        self.state = State::Loading { first: false };
    }

    /// Goes on with a saved chat.
    pub(super) fn open(&mut self, chat: OpenChat) {
        self.forget_chat();
        self.messages = chat.messages;
        if let Some(sampling) = chat.sampling {
            self.settings.sampling = sampling;
        }
    }

    /// Adds a record to the saved chat. One that cannot be written stops the saving and nothing else.
    pub(super) fn save(&mut self, record: Record) {
        if let Err(error) = self.store.append(record) {
            self.unsaved = Some(format!("{error}; this chat is not saved any more"));
            self.store = Store::new(None);
        }
    }

    pub(super) fn say(&mut self, message: ChatMessage) {
        self.save(Record::Message(message.clone()));
        self.messages.push(message);
    }

    /// Takes back the last message if it is of this role.
    pub(super) fn take_back(&mut self, role: Role) -> bool {
        let taken = self.messages.pop_if(|message| message.role == role).is_some();
        if taken {
            self.dropped = self.dropped.min(self.messages.len());
            self.save(Record::Truncate { messages: self.messages.len() });
        }
        taken
    }

    /// Tokens that the context holds now.
    pub(super) fn context(&self) -> u32 {
        let snapshots = self.engine.snapshots();
        let now = snapshots.borrow().context;
        if now > 0 { now } else { self.model.as_ref().map_or(0, |model| model.context) }
    }

    pub(super) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    pub(super) fn is_loading(&self) -> bool {
        matches!(self.state, State::Loading { .. })
    }

    pub(super) fn is_loading_first(&self) -> bool {
        matches!(self.state, State::Loading { first: true })
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.carried_on
    }

    /// Nothing has been said.
    pub(super) fn forget_chat(&mut self) {
        self.messages.clear();
        self.dropped = 0;
        self.forget_unfinished();
    }

    /// The context is full: the oldest messages are sent no longer, and that is said. `false` when no more can go.
    pub(super) fn drop_oldest(&mut self, remarks: &mut impl Write) -> io::Result<bool> {
        let Some(drop) = session::to_drop(self.messages.len().saturating_sub(self.dropped)) else { return Ok(false) };
        self.dropped += drop;
        writeln!(
            remarks,
            "the context is full: the {} oldest messages are no longer sent to the model; they stay in this chat",
            self.dropped
        )?;
        Ok(true)
    }

    pub(super) fn forget_unfinished(&mut self) {
        self.unfinished.clear();
        self.carried_on = false;
    }

    /// Does what a line asks. Commands may come during an answer, messages may not.
    pub(super) fn line(&mut self, line: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<Next> {
        if !self.carried_on && crate::tui::is_command(line) {
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let next = self.command(name, rest.trim(), out, remarks)?;
            self.remark_unsaved(remarks)?;
            return Ok(next);
        }
        if let Some(line) = line.strip_suffix('\\') {
            self.unfinished.push_str(line);
            self.unfinished.push('\n');
            self.carried_on = true;
            return Ok(Next::Stay);
        }
        if line.trim().is_empty() && !self.carried_on {
            return Ok(Next::Stay);
        }
        self.carried_on = false;
        let content = std::mem::take(&mut self.unfinished) + line;
        self.say(ChatMessage::new(Role::User, content));
        self.generate(false);
        self.remark_unsaved(remarks)?;
        Ok(Next::Stay)
    }

    fn remark_unsaved(&mut self, remarks: &mut impl Write) -> io::Result<()> {
        match self.unsaved.take() {
            Some(why) => writeln!(remarks, "{why}"),
            None => Ok(()),
        }
    }

    pub(super) fn generate(&mut self, goes_on: bool) {
        let system = self.settings.system.clone().filter(|text| !text.is_empty());
        let system = system.map(|content| Message { role: Role::System, content });
        let messages =
            system.into_iter().chain(self.messages.iter().skip(self.dropped).map(ChatMessage::to_message)).collect();
        self.answers += 1;
        self.engine.send(Command::Generate(Box::new(Request {
            id: self.answers,
            prompt: if goes_on { Prompt::Continue(messages) } else { Prompt::Chat(messages) },
            sampling: self.settings.sampling.clone(),
            max_tokens: self.settings.max_tokens,
            stop: self.settings.stop.clone(),
            stop_at_end: true,
            thinking: self.settings.think,
        })));
        self.state = State::Answering { id: self.answers, text: String::new(), goes_on };
    }

    /// Takes what the engine tells; `person` adds figures that a script does not want.
    pub(super) fn event(
        &mut self,
        event: Event,
        person: bool,
        out: &mut impl Write,
        remarks: &mut impl Write,
    ) -> io::Result<()> {
        self.take_event(event, person, out, remarks)?;
        self.remark_unsaved(remarks)
    }

    fn take_event(
        &mut self,
        event: Event,
        person: bool,
        out: &mut impl Write,
        remarks: &mut impl Write,
    ) -> io::Result<()> {
        match event {
            Event::Loaded(info) => {
                for warning in &info.warnings {
                    writeln!(remarks, "{}", told(warning))?;
                }
                if person {
                    writeln!(remarks, "{}. /help lists the commands.", describe_model(&info, info.context))?;
                }
                self.model = Some(*info);
                self.before = None;
                self.state = State::Idle;
            }
            Event::Failed(failure) => {
                remark_failure(&failure, remarks)?;
                if self.is_loading() {
                    self.model = None;
                    self.state = State::Idle;
                    if let Some(path) = self.before.take() {
                        writeln!(remarks, "going back to the model before")?;
                        self.load.path = path;
                        self.load_again();
                    }
                }
            }
            Event::Text { id, text } => {
                if let State::Answering { id: awaited, text: answer, .. } = &mut self.state
                    && *awaited == id
                {
                    out.write_all(text.as_bytes())?;
                    out.flush()?;
                    answer.push_str(&text);
                }
            }
            Event::Finished { id, reason, stats } => {
                if self.finish(id, Some((reason, &stats)), out)? {
                    match reason {
                        FinishReason::Stop => {}
                        FinishReason::Length => writeln!(remarks, "stopped at the most tokens; /continue goes on")?,
                        FinishReason::ContextFull => writeln!(
                            remarks,
                            "the context is full; /continue drops the oldest messages and goes on; /clear begins anew"
                        )?,
                        FinishReason::Cancelled => writeln!(remarks, "stopped; /continue goes on")?,
                    }
                    if person {
                        writeln!(remarks, "{}", describe_answer(&stats))?;
                    }
                    self.last = Some(*stats);
                }
            }
            Event::Broken { id, failure } => {
                let awaited = match &self.state {
                    State::Answering { id: awaited, goes_on, .. } if *awaited == id => Some(*goes_on),
                    _ => None,
                };
                if let Some(goes_on) = awaited.filter(|_| failure.kind == FailureKind::ContextFull)
                    && self.drop_oldest(remarks)?
                {
                    self.generate(goes_on);
                    return Ok(());
                }
                if self.finish(id, None, out)? {
                    remark_failure(&failure, remarks)?;
                }
            }
            Event::BudgetSet { budget, bytes } => match budget {
                Budget::Bytes(_) => writeln!(remarks, "the budget is {}", format_size(bytes))?,
                other => writeln!(remarks, "the budget is {} ({})", format_size(bytes), format_budget(other))?,
            },
            Event::Notice(text) => writeln!(remarks, "{text}")?,
            Event::Loading { .. } | Event::Started { .. } => {}
        }
        Ok(())
    }

    /// Keeps the answer; false where it is not the one awaited. A message that got no word of an answer is taken
    /// back, since it may be why, unless that is how the model answered.
    fn finish(
        &mut self,
        id: GenerationId,
        end: Option<(FinishReason, &GenerationStats)>,
        out: &mut impl Write,
    ) -> io::Result<bool> {
        let (text, goes_on) = match &mut self.state {
            State::Answering { id: awaited, text, goes_on } if *awaited == id => (std::mem::take(text), *goes_on),
            _ => return Ok(false),
        };
        self.state = State::Idle;
        let reason = end.map(|(reason, _)| reason);
        if text.is_empty() && reason != Some(FinishReason::Stop) {
            if !goes_on {
                self.take_back(Role::User);
            }
            return Ok(true);
        }
        writeln!(out)?;
        let mut content = text;
        if goes_on && let Some(begun) = self.messages.last().map(|message| message.content.clone()) {
            content.insert_str(0, &begun);
            self.take_back(Role::Assistant);
        }
        let model = self.model.as_ref().map(ModelInfo::full_name);
        let stats = end.map(|(_, stats)| Box::new(stats.clone()));
        self.say(ChatMessage { model, reason, stats, ..ChatMessage::new(Role::Assistant, content) });
        Ok(true)
    }
}

/// The failure's line, and the lines of its list if it has one.
fn remark_failure(failure: &Failure, remarks: &mut impl Write) -> io::Result<()> {
    writeln!(remarks, "{}", told(&in_chat(failure)))?;
    details(failure).try_for_each(|line| writeln!(remarks, "  {line}"))
}

pub(super) fn describe_model(model: &ModelInfo, context: u32) -> String {
    format!(
        "{}, {}, {}, {}, context {context}",
        model.name,
        model.quantization,
        counted(model.layers, "layer"),
        format_size(model.weights_bytes),
    )
}

pub(super) fn describe_answer(stats: &GenerationStats) -> String {
    format!(
        "{}, {:.1} tok/s, the first after {:.1} s, {} read",
        counted(stats.generated_tokens, "token"),
        stats.decode_tok_s,
        stats.ttft_s,
        format_size(stats.prefill_streamed_bytes + stats.decode_streamed_bytes)
    )
}
