//! The slash commands of the plain chat.

use std::io::{self, Write};
use std::path::PathBuf;

use super::conversation::{Conversation, Next, describe_model};
use crate::catalog;
use crate::commands::told;
use crate::config::KEYS;
use crate::engine::protocol::{Budget, Command, Role, Thinking};
use crate::gguf::Gguf;
use crate::sanitize::sanitize;
use crate::size::{BudgetChange, format_size, parse_budget_change};
use crate::small_file;
use crate::suggest::closest;
use crate::words::counted;

/// The commands, with what each does, in the order of `/help`.
const COMMANDS: &[(&str, &str)] = &[
    ("/help", "these commands"),
    ("/model [NAME]", "show or switch the model"),
    ("/budget [80M|60%|auto|0|+10%]", "show or change the memory budget, also during an answer"),
    ("/system [TEXT|off]", "show or set the system prompt"),
    ("/set [temp 0.7]", "show or change temp, top-k, top-p, min-p, repeat-penalty, seed, max-tokens"),
    ("/think [on|off|low|medium|high|auto]", "how much the model is to think, where its template has a switch"),
    ("/read PATH", "put a file into the next message"),
    ("/stop", "stop the answer and keep it"),
    ("/regen", "answer the last message again"),
    ("/continue", "go on with the last answer"),
    ("/edit [N]", "write your last (or Nth) message anew"),
    ("/undo", "take back the last message and its answer"),
    ("/fork [N]", "go on in a copy of this chat (as far as message N)"),
    ("/clear", "begin a new chat"),
    ("/copy [N|all]", "put the last answer, code block N, or all into a file to copy from"),
    ("/find TEXT", "find in this chat"),
    ("/sessions", "saved chats"),
    ("/resume [ID]", "go on with the latest saved chat, or one by its id"),
    ("/rename TITLE", "give this chat a title"),
    ("/delete [ID|undo]", "delete a saved chat (this one without an id); undo brings it back"),
    ("/search TEXT", "search all saved chats"),
    ("/export FILE.md|.json|.txt", "write this chat to a file"),
    ("/import FILE.json", "open an exported chat"),
    ("/stats", "figures of the last answer and of memory"),
    ("/memory", "where every byte is"),
    ("/layers", "what each layer keeps and costs"),
    ("/speed", "how fast it goes and what limits it"),
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

impl Conversation {
    pub(super) fn command(
        &mut self,
        name: &str,
        rest: &str,
        out: &mut impl Write,
        remarks: &mut impl Write,
    ) -> io::Result<Next> {
        let needs_idle = matches!(
            name,
            "/model"
                | "/regen"
                | "/continue"
                | "/edit"
                | "/undo"
                | "/fork"
                | "/clear"
                | "/new"
                | "/resume"
                | "/import"
                | "/delete"
        );
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
                "auto" => self.settings.think = None,
                how => match Thinking::from_name(how) {
                    Some(thinking) => {
                        self.settings.think = Some(thinking);
                        let switch = self.model.as_ref().map(|info| info.thinking).unwrap_or_default();
                        writeln!(remarks, "{}", switch.outcome(thinking))?;
                    }
                    None => writeln!(remarks, "write /think on, off, low, medium, high or auto")?,
                },
            },
            "/read" => self.read(rest, out, remarks)?,
            "/stop" => self.engine.cancel(),
            "/regen" => {
                self.take_back(Role::Assistant);
                if self.messages.is_empty() {
                    writeln!(remarks, "there is no message to answer yet")?;
                } else {
                    self.generate(false);
                }
            }
            "/continue" => self.go_on(remarks)?,
            "/edit" => self.edit(rest, out, remarks)?,
            "/fork" => self.fork(rest, out, remarks)?,
            "/copy" => self.copy(rest, out, remarks)?,
            "/find" => self.find(rest, out, remarks)?,
            "/undo" => {
                self.take_back(Role::Assistant);
                match self.take_back(Role::User) {
                    true => writeln!(remarks, "taken back; {} left", counted(self.messages.len(), "message"))?,
                    false => writeln!(remarks, "there is nothing to take back")?,
                }
            }
            "/clear" | "/new" => {
                self.forget_chat();
                self.store.new_chat();
                self.engine.send(Command::Reset);
            }
            "/sessions" | "/chats" | "/resume" | "/rename" | "/delete" | "/search" | "/export" | "/import" => {
                self.saved_chats(name, rest, out, remarks)?;
            }
            "/stats" | "/memory" | "/layers" | "/speed" => self.figures(name, out)?,
            "/pager" | "/panel" | "/freeze" | "/theme" | "/mouse" | "/keys" => {
                writeln!(remarks, "{name} belongs to the full screen: sipllm chat without --plain")?;
            }
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
                Some(model) => writeln!(out, "{}", describe_model(model, self.context())),
                None => writeln!(out, "no model is loaded"),
            };
        }
        match catalog::resolve(Some(name), &self.settings) {
            // Loading gives the old model up: what is no model at all is not worth that.
            Ok(path) => match Gguf::open(&path) {
                Ok(_) => {
                    self.load_model(path);
                    Ok(())
                }
                Err(error) => writeln!(remarks, "{}", told(&error.to_string())),
            },
            Err(error) => writeln!(remarks, "{}", told(&error.to_string())),
        }
    }

    fn budget(&mut self, text: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        let snapshots = self.engine.snapshots();
        let memory = snapshots.borrow().memory.clone();
        if text.is_empty() {
            let (held, budget) = (format_size(memory.rss_bytes), format_size(memory.budget_bytes));
            let (least, full) = (format_size(memory.least_bytes), format_size(memory.full_bytes));
            let with = counted(memory.least_context, "token");
            return writeln!(
                out,
                "{held} of {budget} held; {least} is the least, with {with}; {full} holds everything"
            );
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
        match small_file::read_text(path.as_ref(), small_file::FOR_A_MESSAGE) {
            Ok(text) => {
                let name = PathBuf::from(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.unfinished.push_str(&format!("{name}:\n```\n{}\n```\n", text.trim_end()));
                writeln!(out, "{} of {} go into the next message", format_size(text.len() as u64), sanitize(&name))
            }
            Err(error) => writeln!(remarks, "{}: {error}", sanitize(path)),
        }
    }
}
