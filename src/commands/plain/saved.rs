//! The commands of the plain chat about saved chats and files.

use std::io::{self, Write};

use super::conversation::Conversation;
use crate::engine::protocol::Command;
use crate::session::{Record, export};
use crate::words::counted;

impl Conversation {
    /// The commands about saved chats.
    pub(super) fn saved_chats(
        &mut self,
        name: &str,
        rest: &str,
        out: &mut impl Write,
        remarks: &mut impl Write,
    ) -> io::Result<()> {
        let failed = match name {
            "/resume" => {
                let opened = if rest.is_empty() { self.store.open_latest() } else { self.store.open(rest) };
                match opened {
                    Ok(chat) => {
                        writeln!(out, "{}, {}", chat.summary.title, counted(chat.messages.len(), "message"))?;
                        write!(out, "{}", export::text(&chat.messages))?;
                        self.open(chat);
                        self.engine.send(Command::Reset);
                        return Ok(());
                    }
                    Err(error) => error,
                }
            }
            "/rename" if rest.is_empty() => return writeln!(remarks, "write /rename and the title"),
            "/rename" => {
                self.save(Record::Title { title: rest.into() });
                return Ok(());
            }
            "/delete" if rest == "undo" => match self.store.undelete() {
                Ok(chat) => return writeln!(out, "{} is back: /resume {}", chat.title, chat.id),
                Err(error) => error,
            },
            "/delete" => match self.store.delete((!rest.is_empty()).then_some(rest)) {
                Ok((title, current)) => {
                    if current {
                        self.forget_chat();
                        self.engine.send(Command::Reset);
                    }
                    return writeln!(out, "deleted: {title}; /delete undo brings it back");
                }
                Err(error) => error,
            },
            "/search" if rest.is_empty() => return writeln!(remarks, "write /search and the text to look for"),
            "/search" => match self.store.search(rest) {
                Ok(hits) if hits.is_empty() => return writeln!(out, "nothing found"),
                Ok(hits) => {
                    for hit in hits {
                        writeln!(out, "{}  {}: {}", hit.id, hit.title, hit.excerpt)?;
                    }
                    return Ok(());
                }
                Err(error) => error,
            },
            "/export" => match export::write(rest, "", &self.messages) {
                Ok(path) => return writeln!(out, "written to {}", path.display()),
                Err(error) => error,
            },
            "/import" => match export::import(rest) {
                Ok((title, messages)) => {
                    self.forget_chat();
                    self.store.new_chat();
                    writeln!(out, "{}", counted(messages.len(), "message"))?;
                    for message in messages {
                        self.say(message);
                    }
                    if !title.is_empty() {
                        let _ = self.store.append(Record::Title { title });
                    }
                    self.engine.send(Command::Reset);
                    return Ok(());
                }
                Err(error) => error,
            },
            _ => match self.store.list() {
                Ok(chats) if chats.is_empty() => return writeln!(out, "no chat has been saved yet"),
                Ok(chats) => {
                    for chat in chats {
                        writeln!(out, "{}  {}, {}", chat.id, chat.title, counted(chat.messages, "message"))?;
                    }
                    return Ok(());
                }
                Err(error) => error,
            },
        };
        writeln!(remarks, "{failed}")
    }
}
