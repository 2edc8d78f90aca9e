//! Reading a chat file back.

use std::path::Path;
use std::time::UNIX_EPOCH;

use super::{ChatMessage, OpenChat, Record, SessionError};
use crate::engine::protocol::Role;
use crate::sanitize::{line, sanitize};
use crate::small_file;

/// Characters of a title made from the first message.
pub(super) const TITLE_CHARS: usize = 60;
/// Of a chat; years of talk are less.
const MOST_BYTES: u64 = 256 << 20;
const PREVIEW_CHARS: usize = 400;

/// Reads a whole chat; damaged lines are counted and left out.
pub(super) fn chat(path: &Path) -> Result<OpenChat, SessionError> {
    let text = small_file::read(path, MOST_BYTES).map_err(SessionError::io(path))?;
    let text = String::from_utf8_lossy(&text);
    let mut chat = OpenChat::default();
    chat.summary.id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let mut title = None;
    for record in text.lines().filter(|l| !l.trim().is_empty()) {
        match serde_json::from_str::<Record>(record) {
            Ok(Record::Chat { branch_of, .. }) => {
                chat.summary.branch_of = branch_of.map(|(id, _)| sanitize(&id).into_owned())
            }
            Ok(Record::Title { title: given }) => title = Some(sanitize(&given).into_owned()),
            Ok(Record::Settings { sampling, system }) => {
                chat.sampling = Some(sampling.sound());
                chat.system = system.map(|s| sanitize(&s).into_owned());
            }
            Ok(Record::Message(message)) => chat.messages.push(clean(message)),
            Ok(Record::Truncate { messages }) => chat.messages.truncate(messages),
            Err(_) => chat.skipped_lines += 1,
        }
    }
    chat.summary.title = title.unwrap_or_else(|| title_of(&chat.messages));
    chat.summary.messages = chat.messages.len();
    chat.summary.preview = preview(&chat.messages);
    chat.summary.changed = std::fs::metadata(path)
        .and_then(|m| m.modified())
        .ok()
        .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
        .map_or(0, |d| d.as_secs() as i64);
    Ok(chat)
}

pub(super) fn clean(mut message: ChatMessage) -> ChatMessage {
    message.content = sanitize(&message.content).into_owned();
    message.model = message.model.map(|m| sanitize(&m).into_owned());
    message
}

/// How a chat ended: the last question and the answer to it.
fn preview(messages: &[ChatMessage]) -> String {
    let from = messages.iter().rposition(|m| m.role == Role::User).unwrap_or(messages.len().saturating_sub(1));
    let said = messages[from..].iter().take(2).map(|m| match m.role {
        Role::User => format!("you: {}", line(&m.content, TITLE_CHARS)),
        _ => line(&m.content, PREVIEW_CHARS),
    });
    said.collect::<Vec<_>>().join("\n")
}

/// The first words the user said.
pub(super) fn title_of(messages: &[ChatMessage]) -> String {
    match messages.iter().find(|m| m.role == Role::User) {
        Some(first) => line(&first.content, TITLE_CHARS),
        None => "empty chat".to_owned(),
    }
}
