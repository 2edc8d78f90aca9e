//! What was said, and what a line of the user's does to it.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::catalog;
use crate::commands::Detailed;
use crate::commands::driver::describe;
use crate::config::{KEYS, Settings};
use crate::engine::EngineHandle;
use crate::engine::protocol::{
    Budget, Command, Event, Failure, FinishReason, GenerationId, GenerationStats, LoadRequest, Message, ModelInfo,
    Prompt, Request, Role,
};
use crate::sanitize::sanitize;
use crate::size::{BudgetChange, format_budget, format_size, parse_budget_change};
use crate::suggest::closest;

/// The commands, with what each does, in the order of `/help`.
const COMMANDS: &[(&str, &str)] = &[
    ("/help", "these commands"),
    ("/model [NAME]", "show or switch the model"),
    ("/budget [80M|60%|auto|0|+10%]", "show or change the memory budget, also during an answer"),
    ("/system [TEXT|off]", "show or set the system prompt"),
    ("/set [temp 0.7]", "show or change temp, top-k, top-p, min-p, repeat-penalty, seed, max-tokens"),
    ("/think [on|off|auto]", "let the model think or not, where its template has a switch"),
    ("/read PATH", "put a file into the next message"),
    ("/stop", "stop the answer and keep it"),
    ("/regen", "answer the last message again"),
    ("/continue", "go on with the last answer"),
    ("/undo", "take back the last message and its answer"),
    ("/clear", "begin a new chat"),
    ("/stats", "figures of the last answer and of memory"),
    ("/quit", "leave"),
];

/// Settings that `/set` takes, with their keys in the configuration.
const SETTABLE: &[(&str, &str)] = &[
    ("temp", "sampling.temp"),
    ("top-k", "sampling.top_k"),
    ("top-p", "sampling.top_p"),
    ("min-p", "sampling.min_p"),
    ("repeat-penalty", "sampling.repeat_penalty"),
    ("seed", "sampling.seed"),
    ("max-tokens", "max_tokens"),
];

/// What comes after a line.
pub(super) enum Next {
    Stay,
    Leave,
}

enum State {
    Loading { first: bool },
    Idle,
    Answering { id: GenerationId, text: String, goes_on: bool },
}

/// A conversation with the engine.
pub(super) struct Conversation {
    engine: EngineHandle,
    settings: Settings,
    load: LoadRequest,
    model: Option<ModelInfo>,
    messages: Vec<Message>,
    /// Lines of a message that is not finished, and files read into it.
    unfinished: String,
    /// The unfinished message goes on with the next line.
    carried_on: bool,
    state: State,
    answers: GenerationId,
    last: Option<GenerationStats>,
}

impl Conversation {
    /// A conversation whose model the engine is loading.
    pub(super) fn new(engine: EngineHandle, settings: &Settings, load: LoadRequest) -> Self {
        Self {
            engine,
            settings: settings.clone(),
            load,
            model: None,
            messages: Vec::new(),
            unfinished: String::new(),
            carried_on: false,
            state: State::Loading { first: true },
            answers: 0,
            last: None,
        }
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

    pub(super) fn forget_unfinished(&mut self) {
        self.unfinished.clear();
        self.carried_on = false;
    }

    /// Does what a line asks. Commands may come during an answer, messages may not.
    pub(super) fn line(&mut self, line: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<Next> {
        if !self.carried_on && is_command(line) {
            let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            return self.command(name, rest.trim(), out, remarks);
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
        self.messages.push(Message { role: Role::User, content });
        self.generate(false);
        Ok(Next::Stay)
    }

    fn generate(&mut self, goes_on: bool) {
        let system = self.settings.system.clone().filter(|text| !text.is_empty());
        let system = system.map(|content| Message { role: Role::System, content });
        let messages = system.into_iter().chain(self.messages.iter().cloned()).collect();
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

    fn command(&mut self, name: &str, rest: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<Next> {
        let needs_idle = matches!(name, "/model" | "/regen" | "/continue" | "/undo" | "/clear");
        if needs_idle && !self.is_idle() {
            writeln!(remarks, "{name} waits for the end of the answer; /stop ends it")?;
            return Ok(Next::Stay);
        }
        match name {
            "/help" | "/?" => {
                for (usage, does) in COMMANDS {
                    writeln!(out, "{usage:<32} {does}")?;
                }
                writeln!(out, "A line that ends with \\ goes on with the next one.")?;
            }
            "/model" => self.switch_model(rest, out, remarks)?,
            "/budget" => self.budget(rest, out, remarks)?,
            "/system" => match rest {
                "" => {
                    writeln!(
                        out,
                        "system prompt: {}",
                        self.settings.system.as_deref().map_or("none".into(), sanitize)
                    )?;
                }
                "off" => self.settings.system = None,
                text => self.settings.system = Some(text.into()),
            },
            "/set" => self.set(rest, out, remarks)?,
            "/think" => match rest {
                "on" => self.settings.think = Some(true),
                "off" => self.settings.think = Some(false),
                "auto" => self.settings.think = None,
                _ => writeln!(remarks, "write /think on, /think off or /think auto")?,
            },
            "/read" => self.read(rest, out, remarks)?,
            "/stop" => self.engine.cancel(),
            "/regen" => {
                self.messages.pop_if(|message| message.role == Role::Assistant);
                if self.messages.is_empty() {
                    writeln!(remarks, "there is no message to answer yet")?;
                } else {
                    self.generate(false);
                }
            }
            "/continue" => match self.messages.last() {
                Some(message) if message.role == Role::Assistant => self.generate(true),
                _ => writeln!(remarks, "there is no answer to go on with yet")?,
            },
            "/undo" => {
                self.messages.pop_if(|message| message.role == Role::Assistant);
                if self.messages.pop_if(|message| message.role == Role::User).is_none() {
                    writeln!(remarks, "there is nothing to take back")?;
                }
            }
            "/clear" | "/new" => {
                self.messages.clear();
                self.forget_unfinished();
                self.engine.send(Command::Reset);
            }
            "/stats" => self.stats(out)?,
            "/quit" | "/exit" | "/q" => return Ok(Next::Leave),
            _ => {
                let names = COMMANDS.iter().filter_map(|(usage, _)| usage.split(' ').next());
                let hint = closest(name, names).map(|near| format!("did you mean {near}?"));
                let hint = hint.unwrap_or_else(|| "/help lists the commands".into());
                writeln!(remarks, "there is no {}; {hint}", sanitize(name))?;
            }
        }
        Ok(Next::Stay)
    }

    fn switch_model(&mut self, name: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        if name.is_empty() {
            return match &self.model {
                Some(model) => writeln!(out, "{}", describe_model(model)),
                None => writeln!(out, "no model is loaded"),
            };
        }
        match catalog::resolve(Some(name), &self.settings) {
            Ok(path) => {
                self.load.path = path;
                self.engine.send(Command::Load(Box::new(self.load.clone())));
                self.state = State::Loading { first: false };
                Ok(())
            }
            Err(error) => writeln!(remarks, "{error}"),
        }
    }

    fn budget(&mut self, text: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        let snapshots = self.engine.snapshots();
        let memory = snapshots.borrow().memory.clone();
        if text.is_empty() {
            let (held, budget) = (format_size(memory.rss_bytes), format_size(memory.budget_bytes));
            let (least, full) = (format_size(memory.least_bytes), format_size(memory.full_bytes));
            return writeln!(out, "{held} of {budget} held; {least} is the least, {full} holds everything");
        }
        let now = memory.budget_bytes;
        let budget = match parse_budget_change(text) {
            Ok(BudgetChange::To(budget)) => budget,
            Ok(BudgetChange::ByBytes(more)) => Budget::Bytes(now.saturating_add_signed(more)),
            Ok(BudgetChange::ByShare(more)) => Budget::Bytes((now as f64 * (1.0 + more)).max(0.0) as u64),
            Err(error) => return writeln!(remarks, "{error}"),
        };
        self.load.budget = budget;
        self.engine.set_budget(budget);
        Ok(())
    }

    fn set(&mut self, text: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        let key_of = |path: &str| KEYS.iter().find(|key| key.path == path);
        let Some((name, value)) = text.split_once([' ', '=']) else {
            for (name, path) in SETTABLE.iter().filter(|(name, _)| text.is_empty() || *name == text) {
                let value = key_of(path).and_then(|key| (key.show)(&self.settings));
                writeln!(out, "{name} {}", value.as_deref().unwrap_or("not set"))?;
            }
            return Ok(());
        };
        match SETTABLE.iter().find(|(known, _)| *known == name).and_then(|(_, path)| key_of(path)) {
            Some(key) => match (key.read)(&mut self.settings, value.trim()) {
                Ok(()) => Ok(()),
                Err(message) => writeln!(remarks, "{}", sanitize(&message)),
            },
            None => writeln!(remarks, "there is no setting `{}`; /set lists them", sanitize(name)),
        }
    }

    fn read(&mut self, path: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        if path.is_empty() {
            return writeln!(remarks, "write /read and the path of a file");
        }
        match std::fs::read(path) {
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes);
                let name = PathBuf::from(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.unfinished.push_str(&format!("{name}:\n```\n{}\n```\n", text.trim_end()));
                writeln!(out, "{} of {} go into the next message", format_size(bytes.len() as u64), sanitize(&name))
            }
            Err(error) => writeln!(remarks, "{}: {error}", sanitize(path)),
        }
    }

    fn stats(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(model) = &self.model {
            writeln!(out, "model: {}", describe_model(model))?;
        }
        let snapshots = self.engine.snapshots();
        let snapshot = snapshots.borrow().clone();
        let memory = &snapshot.memory;
        writeln!(
            out,
            "memory: {} held of {} (budget {}): pinned {}, ring {}, kv {}, scratch {}, base {}",
            format_size(memory.rss_bytes),
            format_size(memory.budget_bytes),
            format_budget(memory.budget),
            format_size(memory.pinned_bytes),
            format_size(memory.ring_bytes),
            format_size(memory.kv_bytes),
            format_size(memory.scratch_bytes),
            format_size(memory.base_bytes),
        )?;
        writeln!(out, "context: {} of {} tokens", snapshot.context_used, snapshot.context)?;
        match &self.last {
            Some(stats) => writeln!(out, "last answer: {}", describe_answer(stats)),
            None => Ok(()),
        }
    }

    /// Takes what the engine tells; `person` adds figures that a script does not want.
    pub(super) fn event(
        &mut self,
        event: Event,
        person: bool,
        out: &mut impl Write,
        remarks: &mut impl Write,
    ) -> io::Result<()> {
        match event {
            Event::Loaded(info) => {
                for warning in &info.warnings {
                    writeln!(remarks, "{warning}")?;
                }
                if person {
                    writeln!(remarks, "{}. /help lists the commands.", describe_model(&info))?;
                }
                self.model = Some(*info);
                self.state = State::Idle;
            }
            Event::Failed(failure) => {
                remark_failure(&failure, remarks)?;
                if self.is_loading() {
                    self.model = None;
                    self.state = State::Idle;
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
                if self.finish(id, reason == FinishReason::Stop, out)? {
                    match reason {
                        FinishReason::Stop => {}
                        FinishReason::Length => writeln!(remarks, "stopped at the most tokens; /continue goes on")?,
                        FinishReason::ContextFull => writeln!(remarks, "the context is full; /undo or /clear")?,
                        FinishReason::Cancelled => writeln!(remarks, "stopped; /continue goes on")?,
                    }
                    if person {
                        writeln!(remarks, "{}", describe_answer(&stats))?;
                    }
                    self.last = Some(*stats);
                }
            }
            Event::Broken { id, failure } => {
                if self.finish(id, false, out)? {
                    remark_failure(&failure, remarks)?;
                }
            }
            Event::BudgetSet { budget, bytes } => {
                writeln!(remarks, "the budget is {} ({})", format_budget(budget), format_size(bytes))?;
            }
            Event::Notice(text) => writeln!(remarks, "{text}")?,
            Event::Loading { .. } | Event::Started { .. } => {}
        }
        Ok(())
    }

    /// Keeps the answer; false where it is not the one awaited. A message that got no word of an answer is taken
    /// back, since it may be why, unless that is how the model answered (`whole`).
    fn finish(&mut self, id: GenerationId, whole: bool, out: &mut impl Write) -> io::Result<bool> {
        let (text, goes_on) = match &mut self.state {
            State::Answering { id: awaited, text, goes_on } if *awaited == id => (std::mem::take(text), *goes_on),
            _ => return Ok(false),
        };
        self.state = State::Idle;
        if text.is_empty() && !whole {
            if !goes_on {
                self.messages.pop_if(|message| message.role == Role::User);
            }
            return Ok(true);
        }
        writeln!(out)?;
        match self.messages.last_mut() {
            Some(message) if goes_on => message.content.push_str(&text),
            _ => self.messages.push(Message { role: Role::Assistant, content: text }),
        }
        Ok(true)
    }
}

/// A slash with a plain name; a path such as `/etc/passwd` is a message.
fn is_command(line: &str) -> bool {
    let name = line.split(char::is_whitespace).next().unwrap_or_default();
    name.strip_prefix('/').is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// The failure's line, and the lines of its list if it has one.
fn remark_failure(failure: &Failure, remarks: &mut impl Write) -> io::Result<()> {
    let error = describe(failure);
    writeln!(remarks, "{error}")?;
    for line in error.downcast_ref::<Detailed>().map(|error| error.details.as_slice()).unwrap_or_default() {
        writeln!(remarks, "  {line}")?;
    }
    Ok(())
}

fn describe_model(model: &ModelInfo) -> String {
    format!(
        "{}, {}, {} layers, {}, context {}",
        model.name,
        model.quantization,
        model.layers,
        format_size(model.weights_bytes),
        model.context
    )
}

fn describe_answer(stats: &GenerationStats) -> String {
    format!(
        "{} tokens, {:.1} tok/s, the first after {:.1} s, {} read",
        stats.generated_tokens,
        stats.decode_tok_s,
        stats.ttft_s,
        format_size(stats.prefill_streamed_bytes + stats.decode_streamed_bytes)
    )
}
