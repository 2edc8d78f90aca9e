//! The commands of the plain chat that go back to what was said: edit, fork, find, copy, continue.

use std::io::{self, Write};

use super::conversation::Conversation;
use crate::engine::protocol::{FinishReason, Role};
use crate::session::export;
use crate::tui::{answer_only, code_blocks};
use crate::words::counted;

impl Conversation {
    /// Goes on with the last answer; where the context was full, without the oldest messages.
    pub(super) fn go_on(&mut self, remarks: &mut impl Write) -> io::Result<()> {
        match self.messages.last() {
            Some(message) if message.role == Role::Assistant => {
                // A greater budget may have made room since.
                let full =
                    message.reason == Some(FinishReason::ContextFull) && !self.engine.snapshots().borrow().has_room();
                if full && !self.drop_oldest(remarks)? {
                    return writeln!(remarks, "the question and its answer fill the whole context; /clear begins anew");
                }
                self.generate(true);
                Ok(())
            }
            _ => writeln!(remarks, "there is no answer to go on with yet"),
        }
    }

    /// Takes the chat back to before the user's last or Nth message, which is shown to be written anew.
    pub(super) fn edit(&mut self, number: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        let Some(at) = self.user_message(number) else {
            return writeln!(remarks, "there is no such message");
        };
        let old = self.messages[at].content.clone();
        self.branch_off(at);
        writeln!(out, "{old}")?;
        let stays = if self.store.current_id().is_some() { "; the chat as it was stays under /sessions" } else { "" };
        writeln!(remarks, "Write it anew{stays}.")
    }

    /// Goes on in a copy, as far as the user's message N and its answer.
    pub(super) fn fork(&mut self, number: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        let messages = match (number, self.user_message(number)) {
            ("", _) => self.messages.len(),
            (_, None) => return writeln!(remarks, "there is no such message"),
            (_, Some(at)) => {
                let next = self.messages.iter().skip(at + 1).position(|m| m.role == Role::User);
                next.map_or(self.messages.len(), |more| at + 1 + more)
            }
        };
        self.branch_off(messages);
        writeln!(out, "{}, in a branch of its own", counted(messages, "message"))
    }

    /// Keeps the first so many messages, in a saved chat of its own where chats are saved.
    fn branch_off(&mut self, messages: usize) {
        self.messages.truncate(messages);
        self.dropped = self.dropped.min(messages);
        // A chat that is not saved has nothing to branch off from.
        let _ = self.store.fork(messages);
    }

    /// Index of the user's message with this number, from 1; of the last one without a number.
    fn user_message(&self, number: &str) -> Option<usize> {
        let mut said = self.messages.iter().enumerate().filter(|(_, m)| m.role == Role::User).map(|(i, _)| i);
        match number {
            "" => said.next_back(),
            number => said.nth(number.parse::<usize>().ok()?.checked_sub(1)?),
        }
    }

    /// A clipboard needs escape codes, which this chat does not write: what is to be copied goes into a file.
    pub(super) fn copy(&self, what: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        let mut answers = self.messages.iter().filter(|m| m.role == Role::Assistant).map(|m| answer_only(&m.content));
        let text = match what {
            "" => answers.next_back().map(|text| text.trim().to_owned()),
            "all" => Some(export::text(&self.messages)),
            number => match number.parse::<usize>() {
                Ok(number) => answers.flat_map(code_blocks).nth(number.wrapping_sub(1)),
                Err(_) => return writeln!(remarks, "write /copy, /copy 2 for code block 2, or /copy all"),
            },
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            return writeln!(remarks, "there is nothing of that number to copy");
        };
        match self.store.keep_copy(&text) {
            Ok(path) => writeln!(out, "{} in {}", counted(text.len(), "byte"), path.display()),
            Err(error) => writeln!(remarks, "{error}"),
        }
    }

    /// The lines of this chat that hold the text, with the number of the user's message they belong to.
    pub(super) fn find(&self, wanted: &str, out: &mut impl Write, remarks: &mut impl Write) -> io::Result<()> {
        if wanted.is_empty() {
            return writeln!(remarks, "write /find and the text to look for");
        }
        let folded = wanted.to_lowercase();
        let mut number = 0;
        let mut found = false;
        for message in &self.messages {
            number += usize::from(message.role == Role::User);
            let who = if message.role == Role::User { "you" } else { "answer" };
            for line in message.content.lines().filter(|line| line.to_lowercase().contains(&folded)) {
                found = true;
                writeln!(out, "{number} {who}: {}", line.trim())?;
            }
        }
        if found { Ok(()) } else { writeln!(remarks, "not found") }
    }
}
