//! Saved chats: one JSONL file each, a line a record, appended and flushed as things are said, so that a lost
//! connection costs nothing.
//!
//! Synchronous; front ends call it from a thread of its own. Every text read is cleaned of control characters.

pub mod export;
mod read;
mod record;
mod store;

pub use record::{ChatMessage, Record};
pub use store::Store;

use crate::engine::protocol::Sampling;

/// How many of the oldest of `sent` messages go once they fill the context: a quarter, whole turns, never the last
/// message. `None` when nothing is left to go.
pub fn to_drop(sent: usize) -> Option<usize> {
    let drop = (sent / 4).max(2) & !1;
    (drop < sent).then_some(drop)
}

/// What a list of chats shows of one.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Summary {
    pub id: String,
    pub title: String,
    /// Messages that stand.
    pub messages: usize,
    /// Time of the last change, seconds since 1970.
    pub changed: i64,
    /// The chat it branched off from.
    pub branch_of: Option<String>,
    /// The last question and answer, shortened, a line each.
    pub preview: String,
}

/// A chat read back.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct OpenChat {
    pub summary: Summary,
    pub messages: Vec<ChatMessage>,
    pub sampling: Option<Sampling>,
    pub system: Option<String>,
    /// Lines that could not be read (a write cut off by a lost machine).
    pub skipped_lines: usize,
}

/// A place in a saved chat that a search found.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchHit {
    pub id: String,
    pub title: String,
    pub excerpt: String,
}

/// What went wrong with a saved chat, where, and what to do.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("no saved chat {0:?}; /sessions lists them")]
    Unknown(String),
    #[error("the chat {0} is open in another sipllm; leave it there first, or resume another one by its id")]
    Busy(String),
    #[error("no chat has been saved yet")]
    NoneYet,
    #[error("chats are not saved in this run")]
    NotSaved,
    #[error("nothing was deleted in this run")]
    NothingDeleted,
    #[error("{path}: only the .json that /export writes can be imported: {message}")]
    Import { path: String, message: String },
    #[error("{0}: ends in none of .md, .json, .txt")]
    ExportKind(String),
}

impl SessionError {
    fn io(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> SessionError + '_ {
        move |source| SessionError::Io { path: path.display().to_string(), source }
    }
}

#[cfg(test)]
mod tests {
    use super::to_drop;

    #[test]
    fn whole_turns_are_dropped_and_never_the_last_message() {
        assert_eq!([0, 1, 2, 3, 9, 41].map(to_drop), [None, None, None, Some(2), Some(2), Some(10)]);
    }
}
