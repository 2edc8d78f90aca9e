//! Chats as files for people and for other programs, and back.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{ChatMessage, SessionError, read};
use crate::engine::protocol::Role;
use crate::small_file;

/// The `.json` form: what `import` reads.
#[derive(Serialize, Deserialize)]
struct Exported {
    format: String,
    #[serde(default)]
    title: String,
    messages: Vec<ChatMessage>,
}

const FORMAT: &str = "sipllm-chat-1";

/// Of a chat to be imported.
const MOST_BYTES: u64 = 64 << 20;

/// Writes the chat in the form that the path's ending names; an existing file is not overwritten but numbered around.
pub fn write(path: &str, title: &str, messages: &[ChatMessage]) -> Result<PathBuf, SessionError> {
    let wanted = Path::new(path);
    let text = match wanted.extension().and_then(|e| e.to_str()) {
        Some("md") => markdown(title, messages),
        Some("txt") => text(messages),
        Some("json") => {
            let exported = Exported { format: FORMAT.to_owned(), title: title.to_owned(), messages: messages.to_vec() };
            serde_json::to_string_pretty(&exported).map_err(|e| SessionError::io(wanted)(e.into()))? + "\n"
        }
        _ => return Err(SessionError::ExportKind(path.to_owned())),
    };
    let stem = wanted.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let ending = wanted.extension().unwrap_or_default().to_string_lossy().into_owned();
    let mut target = wanted.to_owned();
    let mut number = 1;
    while target.exists() {
        number += 1;
        target = wanted.with_file_name(format!("{stem}-{number}.{ending}"));
    }
    std::fs::write(&target, text).map_err(SessionError::io(&target))?;
    Ok(target)
}

/// Reads a chat exported as `.json`.
pub fn import(path: &str) -> Result<(String, Vec<ChatMessage>), SessionError> {
    let file = Path::new(path);
    let text = small_file::read_text(file, MOST_BYTES).map_err(SessionError::io(file))?;
    let error = |message: String| SessionError::Import { path: path.to_owned(), message };
    // Of a file that is no JSON at all, where it stops being so helps nobody.
    let value: serde_json::Value =
        serde_json::from_str(&text).map_err(|_| error("this file is not JSON".to_owned()))?;
    let exported: Exported = serde_json::from_value(value).map_err(|e| error(e.to_string()))?;
    if exported.format != FORMAT {
        return Err(error(format!("its format is {:?}, wanted is {FORMAT:?}", exported.format)));
    }
    let title = crate::sanitize::line(&exported.title, read::TITLE_CHARS);
    Ok((title, exported.messages.into_iter().map(read::clean).collect()))
}

fn who(message: &ChatMessage) -> &str {
    match message.role {
        Role::System => "system",
        Role::User => "you",
        Role::Assistant => message.model.as_deref().unwrap_or("assistant"),
    }
}

/// Plain text.
pub fn text(messages: &[ChatMessage]) -> String {
    messages.iter().map(|m| format!("{}:\n{}\n\n", who(m), m.content.trim())).collect()
}

fn markdown(title: &str, messages: &[ChatMessage]) -> String {
    let heading = if title.is_empty() { String::new() } else { format!("# {title}\n\n") };
    let said = messages.iter().map(|m| format!("## {}\n\n{}\n\n", who(m), m.content.trim()));
    heading + &said.collect::<String>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_exported_as_json_is_imported_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("chat.json");
        let messages = [ChatMessage::new(Role::User, "hi"), ChatMessage::new(Role::Assistant, "hello")];
        let written = write(path.to_str().unwrap(), "greeting", &messages).unwrap();
        let (title, read) = import(written.to_str().unwrap()).unwrap();
        assert_eq!((title.as_str(), read.as_slice()), ("greeting", messages.as_slice()));
        let second = write(path.to_str().unwrap(), "greeting", &messages).unwrap();
        assert_eq!(second.file_name().unwrap(), "chat-2.json");
    }

    #[test]
    fn markdown_and_text_say_who_spoke() {
        let messages = [ChatMessage::new(Role::User, "hi"), ChatMessage::new(Role::Assistant, "hello")];
        assert_eq!(text(&messages), "you:\nhi\n\nassistant:\nhello\n\n");
        assert_eq!(markdown("T", &messages), "# T\n\n## you\n\nhi\n\n## assistant\n\nhello\n\n");
    }

    #[test]
    fn other_endings_and_other_files_are_refused_in_words() {
        assert!(write("chat.pdf", "", &[]).unwrap_err().to_string().contains(".md"));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.json");
        std::fs::write(&path, "{}").unwrap();
        assert!(import(path.to_str().unwrap()).unwrap_err().to_string().contains("missing field"));
        let markdown = write(folder.path().join("x.md").to_str().unwrap(), "", &[]).unwrap();
        let said = import(markdown.to_str().unwrap()).unwrap_err().to_string();
        assert!(said.contains("only the .json that /export writes") && !said.contains("line 1"), "{said}");
    }
}
