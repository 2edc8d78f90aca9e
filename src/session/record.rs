//! The lines of a chat file.

use serde::{Deserialize, Serialize};

use crate::engine::protocol::{FinishReason, GenerationStats, Message, Role, Sampling};

/// A message with what is known of its making.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    pub role: Role,
    pub content: String,
    /// Name of the model that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<FinishReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<Box<GenerationStats>>,
}

impl ChatMessage {
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), model: None, reason: None, stats: None }
    }

    pub fn to_message(&self) -> Message {
        Message { role: self.role, content: self.content.clone() }
    }
}

/// One line of a chat file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Record {
    /// The first line.
    Chat {
        version: u32,
        id: String,
        /// RFC 3339.
        created: String,
        /// The chat this one branched off from, and after how many messages.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        branch_of: Option<(String, usize)>,
    },
    Title {
        title: String,
    },
    Settings {
        sampling: Sampling,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        system: Option<String>,
    },
    Message(ChatMessage),
    /// Only the first so many messages stand.
    Truncate {
        messages: usize,
    },
}
