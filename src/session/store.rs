//! The folder of saved chats and the one being written.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::Write;
use std::path::{Path, PathBuf};

use super::{ChatMessage, OpenChat, Record, SearchHit, SessionError, Summary, read};
use crate::places::is_absent;
use crate::sanitize::line;

const VERSION: u32 = 1;
const EXTENSION: &str = "jsonl";
/// Deleted chats keep this name until the next run of a delete finds them a day old.
const DELETED: &str = "deleted";
/// The last thing copied.
const COPIED: &str = "copied.txt";
const DELETED_KEPT: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
/// Characters around a place found.
const EXCERPT_CHARS: usize = 60;
const MAX_HITS: usize = 50;

/// Saved chats in one folder; without a folder nothing is saved.
pub struct Store {
    folder: Option<PathBuf>,
    current: Option<Current>,
    /// Records that came before the first message: a chat without one makes no file.
    waiting: Vec<Record>,
    last_deleted: Option<PathBuf>,
}

struct Current {
    id: String,
    file: File,
}

impl Store {
    pub fn new(folder: Option<PathBuf>) -> Self {
        Self { folder, current: None, waiting: Vec::new(), last_deleted: None }
    }

    fn folder(&self) -> Result<&Path, SessionError> {
        self.folder.as_deref().ok_or(SessionError::NotSaved)
    }

    fn path(&self, id: &str) -> Result<PathBuf, SessionError> {
        // An id is a file's stem, nothing that leads elsewhere.
        let plain = !id.is_empty() && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
        if !plain {
            return Err(SessionError::Unknown(id.to_owned()));
        }
        Ok(self.folder()?.join(id).with_extension(EXTENSION))
    }

    /// Id of the chat being written, once it has a message.
    pub fn current_id(&self) -> Option<&str> {
        self.current.as_ref().map(|c| c.id.as_str())
    }

    /// The next message begins another chat.
    pub fn new_chat(&mut self) {
        self.current = None;
        self.waiting.clear();
    }

    /// Writes one record and flushes it.
    pub fn append(&mut self, record: Record) -> Result<(), SessionError> {
        if self.folder.is_none() {
            return Ok(());
        }
        if self.current.is_none() {
            if !matches!(record, Record::Message(_)) {
                if !matches!(record, Record::Truncate { .. }) {
                    self.waiting.push(record);
                }
                return Ok(());
            }
            self.begin(None)?;
            for waiting in std::mem::take(&mut self.waiting) {
                self.write(&waiting)?;
            }
        }
        self.write(&record)
    }

    fn begin(&mut self, branch_of: Option<(String, usize)>) -> Result<(), SessionError> {
        let folder = self.folder()?;
        std::fs::create_dir_all(folder).map_err(SessionError::io(folder))?;
        let now = jiff::ZonedDateTime::now();
        let stamp = now.strftime("%Y%m%d-%H%M%S").to_string();
        let mut number = 0;
        let (id, file) = loop {
            let id = if number == 0 { stamp.clone() } else { format!("{stamp}-{number}") };
            let path = self.path(&id)?;
            match OpenOptions::new().append(true).create_new(true).open(&path) {
                Ok(file) => {
                    // Nobody can have it yet. Where the file system has no locks, there is none.
                    let _ = file.try_lock();
                    break (id, file);
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(e) => return Err(SessionError::io(&path)(e)),
            }
        };
        self.current = Some(Current { id: id.clone(), file });
        self.write(&Record::Chat { version: VERSION, id, created: now.timestamp().to_string(), branch_of })
    }

    fn write(&mut self, record: &Record) -> Result<(), SessionError> {
        let Some(current) = &mut self.current else { return Ok(()) };
        let error = |source| SessionError::Io { path: format!("{}.{EXTENSION}", current.id), source };
        let mut line = serde_json::to_string(record).map_err(|e| error(e.into()))?;
        line.push('\n');
        // One write a record: what is in the file is whole lines, whenever the program ends.
        current.file.write_all(line.as_bytes()).and_then(|()| current.file.flush()).map_err(error)
    }

    /// Opens a chat to go on with it.
    pub fn open(&mut self, id: &str) -> Result<OpenChat, SessionError> {
        let path = self.path(id)?;
        if !path.is_file() {
            return Err(SessionError::Unknown(line(id, 40)));
        }
        // The lock of the chat at hand is our own: another opening would be refused by it.
        let mut file = match self.current.take_if(|current| current.id == id) {
            Some(current) => current.file,
            None => lock(&path, id)?,
        };
        let chat = read::chat(&path)?;
        if chat.skipped_lines > 0 {
            // A last line cut off must not swallow the next record.
            file.write_all(b"\n").map_err(SessionError::io(&path))?;
        }
        self.current = Some(Current { id: id.to_owned(), file });
        self.waiting.clear();
        Ok(chat)
    }

    /// Gives a saved chat another title; `true` for the current one. When it was last changed stays: nothing was said.
    pub fn rename(&mut self, id: &str, title: &str) -> Result<bool, SessionError> {
        let record = Record::Title { title: title.to_owned() };
        if self.current_id() == Some(id) {
            self.write(&record)?;
            return Ok(true);
        }
        let path = self.path(id)?;
        if !path.is_file() {
            return Err(SessionError::Unknown(line(id, 40)));
        }
        let mut file = lock(&path, id)?;
        let error = SessionError::io(&path);
        let changed = file.metadata().and_then(|m| m.modified());
        // A last line cut off must not swallow the title.
        let before = if read::chat(&path)?.skipped_lines > 0 { "\n" } else { "" };
        let text = serde_json::to_string(&record).map_err(|e| SessionError::io(&path)(e.into()))?;
        file.write_all(format!("{before}{text}\n").as_bytes()).map_err(error)?;
        if let Ok(changed) = changed {
            let _ = file.set_modified(changed);
        }
        Ok(false)
    }

    /// Opens the chat that changed last.
    pub fn open_latest(&mut self) -> Result<OpenChat, SessionError> {
        let mut files = self.files()?;
        files.sort_by_cached_key(|path| std::cmp::Reverse(std::fs::metadata(path).and_then(|m| m.modified()).ok()));
        for path in files {
            // A branch in which nothing was said is no chat to go on with.
            if read::chat(&path).is_ok_and(|chat| !chat.messages.is_empty()) {
                return self.open(&path.file_stem().unwrap_or_default().to_string_lossy());
            }
        }
        Err(SessionError::NoneYet)
    }

    fn files(&self) -> Result<Vec<PathBuf>, SessionError> {
        let folder = self.folder()?;
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(e) if is_absent(&e) => return Ok(Vec::new()),
            Err(e) => return Err(SessionError::io(folder)(e)),
        };
        let paths = entries.filter_map(Result::ok).map(|e| e.path());
        // What else may bear the name, a folder or a pipe, is no chat.
        Ok(paths.filter(|p| p.extension().is_some_and(|e| e == EXTENSION) && p.is_file()).collect())
    }

    /// All chats in which something was said, the latest first.
    pub fn list(&self) -> Result<Vec<Summary>, SessionError> {
        let chats = self.files()?.into_iter().filter_map(|path| read::chat(&path).ok());
        let mut all: Vec<Summary> = chats.filter(|c| !c.messages.is_empty()).map(|c| c.summary).collect();
        all.sort_by(|a, b| b.changed.cmp(&a.changed).then_with(|| b.id.cmp(&a.id)));
        Ok(all)
    }

    /// Goes on in a copy of the current chat's first so many messages.
    pub fn fork(&mut self, messages: usize) -> Result<Summary, SessionError> {
        let from = self.current_id().ok_or(SessionError::NoneYet)?.to_owned();
        let chat = read::chat(&self.path(&from)?)?;
        let kept: Vec<ChatMessage> = chat.messages.into_iter().take(messages).collect();
        self.begin(Some((from.clone(), messages)))?;
        let title = format!("{} (branch)", chat.summary.title.trim_end_matches(" (branch)"));
        self.write(&Record::Title { title: title.clone() })?;
        if let Some(sampling) = chat.sampling {
            self.write(&Record::Settings { sampling, system: chat.system })?;
        }
        let count = kept.len();
        for message in kept {
            self.write(&Record::Message(message))?;
        }
        let id = self.current_id().unwrap_or_default().to_owned();
        Ok(Summary { id, title, messages: count, branch_of: Some(from), ..Summary::default() })
    }

    /// Puts a chat (the current one without an id) out of sight; returns its title and whether it was the current one.
    pub fn delete(&mut self, id: Option<&str>) -> Result<(String, bool), SessionError> {
        let id = id.or(self.current_id()).ok_or(SessionError::NoneYet)?.to_owned();
        let path = self.path(&id)?;
        if !path.is_file() {
            return Err(SessionError::Unknown(id));
        }
        if self.current_id() != Some(id.as_str()) {
            lock(&path, &id)?;
        }
        self.purge();
        let title = read::chat(&path)?.summary.title;
        let aside = path.with_extension(DELETED);
        std::fs::rename(&path, &aside).map_err(SessionError::io(&path))?;
        self.last_deleted = Some(aside);
        let current = self.current_id() == Some(id.as_str());
        if current {
            self.new_chat();
        }
        Ok((title, current))
    }

    /// Removes chats deleted a day ago or longer.
    fn purge(&self) {
        let Some(entries) = self.folder.as_ref().and_then(|f| std::fs::read_dir(f).ok()) else { return };
        for path in entries.filter_map(Result::ok).map(|e| e.path()) {
            let old = || {
                std::fs::metadata(&path)
                    .and_then(|m| m.modified())
                    .ok()
                    .and_then(|t| t.elapsed().ok())
                    .is_some_and(|age| age > DELETED_KEPT)
            };
            if path.extension().is_some_and(|e| e == DELETED) && old() {
                let _ = std::fs::remove_file(&path);
            }
        }
    }

    /// Brings back what was deleted last.
    pub fn undelete(&mut self) -> Result<Summary, SessionError> {
        let aside = self.last_deleted.take().ok_or(SessionError::NothingDeleted)?;
        let path = aside.with_extension(EXTENSION);
        std::fs::rename(&aside, &path).map_err(SessionError::io(&aside))?;
        Ok(read::chat(&path)?.summary)
    }

    /// Writes what was copied beside the chats, for where no clipboard takes it.
    pub fn keep_copy(&self, text: &str) -> Result<PathBuf, SessionError> {
        let folder = self.folder()?;
        let path = folder.join(COPIED);
        std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, text)).map_err(SessionError::io(&path))?;
        Ok(path)
    }

    /// Places where the text stands in any chat, the latest chat first; letters' case aside.
    pub fn search(&self, wanted: &str) -> Result<Vec<SearchHit>, SessionError> {
        let folded = wanted.to_lowercase();
        let mut hits = Vec::new();
        for summary in self.list()? {
            let chat = read::chat(&self.path(&summary.id)?)?;
            for message in &chat.messages {
                if hits.len() >= MAX_HITS {
                    return Ok(hits);
                }
                if let Some(excerpt) = excerpt(&message.content, &folded) {
                    hits.push(SearchHit { id: summary.id.clone(), title: summary.title.clone(), excerpt });
                }
            }
        }
        Ok(hits)
    }
}

/// Opens a chat's file to add to it, for this process alone.
fn lock(path: &Path, id: &str) -> Result<File, SessionError> {
    let file = OpenOptions::new().append(true).open(path).map_err(SessionError::io(path))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(SessionError::Busy(id.to_owned())),
        // Some network file systems have no locks; one process a chat is the user's care there.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// The surroundings of the first place with `folded`, which is in lower case.
fn excerpt(text: &str, folded: &str) -> Option<String> {
    let lower = text.to_lowercase();
    let at = lower.find(folded)?;
    let before = lower[..at].chars().count().saturating_sub(EXCERPT_CHARS / 2);
    let from = text.char_indices().nth(before).map_or(0, |(i, _)| i);
    Some(line(&text[from..], EXCERPT_CHARS + folded.chars().count()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::engine::protocol::{Role, Sampling};

    fn said(role: Role, text: &str) -> Record {
        Record::Message(ChatMessage::new(role, text))
    }

    fn store() -> (tempfile::TempDir, Store) {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::new(Some(folder.path().join("chats")));
        (folder, store)
    }

    #[test]
    fn a_saved_chat_is_renamed_where_it_stands() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::new(Some(folder.path().to_owned()));
        store.append(said(Role::User, "first")).unwrap();
        let first = store.current_id().unwrap().to_owned();
        store.new_chat();
        store.append(said(Role::User, "second")).unwrap();
        let second = store.current_id().unwrap().to_owned();
        let chats = |store: &Store| store.list().unwrap().into_iter().map(|c| (c.id, c.changed)).collect::<Vec<_>>();
        let before = chats(&store);
        assert!(!store.rename(&first, "another").unwrap(), "it is not the current one");
        assert_eq!(chats(&store), before, "nothing was said");
        assert!(store.rename(&second, "this one").unwrap());
        let mut titles: Vec<String> = store.list().unwrap().into_iter().map(|c| c.title).collect();
        titles.sort();
        assert_eq!(titles, ["another", "this one"]);
        assert!(store.rename("20990101-000000", "none").is_err());
    }

    #[test]
    fn what_was_said_is_read_back_by_another_run() {
        let (folder, mut store) = store();
        store.append(said(Role::User, "What is the capital of France?")).unwrap();
        store.append(said(Role::Assistant, "Paris.")).unwrap();
        let mut other = Store::new(Some(folder.path().join("chats")));
        store.new_chat();
        let chat = other.open_latest().unwrap();
        assert_eq!(chat.summary.title, "What is the capital of France?");
        assert_eq!(
            chat.messages.iter().map(|m| m.content.as_str()).collect::<Vec<_>>(),
            ["What is the capital of France?", "Paris."]
        );
        other.append(Record::Truncate { messages: 1 }).unwrap();
        other.append(Record::Title { title: "Capitals".into() }).unwrap();
        drop(other);
        let chat = store.open_latest().unwrap();
        assert_eq!((chat.summary.title.as_str(), chat.messages.len()), ("Capitals", 1));
    }

    #[test]
    fn a_chat_is_written_by_one_at_a_time() {
        let (folder, mut store) = store();
        store.append(said(Role::User, "mine")).unwrap();
        let id = store.current_id().unwrap().to_owned();
        let mut other = Store::new(Some(folder.path().join("chats")));
        for refused in [other.open(&id).map(drop), other.open_latest().map(drop), other.delete(Some(&id)).map(drop)] {
            assert!(matches!(refused, Err(SessionError::Busy(busy)) if busy == id));
        }
        assert_eq!(store.open(&id).unwrap().messages.len(), 1, "its own lock stands in nobody's way");
        assert!(other.open(&id).is_err());
        drop(store);
        assert_eq!(other.open(&id).unwrap().messages.len(), 1);
    }

    #[test]
    fn what_only_bears_the_name_of_a_chat_is_passed_over() {
        let (folder, mut store) = store();
        store.append(said(Role::User, "mine")).unwrap();
        store.new_chat();
        std::fs::create_dir(folder.path().join("chats/99999999-000000.jsonl")).unwrap();
        assert_eq!(store.open_latest().unwrap().summary.title, "mine");
    }

    #[test]
    fn settings_of_a_chat_that_make_no_sense_give_way_to_the_usual_ones() {
        let (_folder, mut store) = store();
        let odd = Sampling { temperature: -1.0, top_p: 7.0, min_p: -0.5, repeat_penalty: 0.0, ..Sampling::default() };
        store.append(Record::Settings { sampling: Sampling { top_k: 3, ..odd }, system: None }).unwrap();
        store.append(said(Role::User, "mine")).unwrap();
        let read = store.open_latest().unwrap().sampling.unwrap();
        assert_eq!(read, Sampling { top_k: 3, ..Sampling::default() });
    }

    #[test]
    fn a_chat_without_a_message_leaves_no_file() {
        let (_folder, mut store) = store();
        store.append(Record::Title { title: "nothing".into() }).unwrap();
        assert_eq!(store.list().unwrap(), []);
        store.append(said(Role::User, "hello")).unwrap();
        assert_eq!(store.list().unwrap()[0].title, "nothing");
    }

    #[test]
    fn a_line_cut_off_by_a_lost_machine_costs_that_line_only() {
        let (folder, mut store) = store();
        store.append(said(Role::User, "one")).unwrap();
        let path = folder.path().join("chats").join(store.current_id().unwrap()).with_extension("jsonl");
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"{\"type\":\"message\",\"role\":\"assis").unwrap();
        let chat = store.open_latest().unwrap();
        assert_eq!((chat.messages.len(), chat.skipped_lines), (1, 1));
        store.append(said(Role::Assistant, "two")).unwrap();
        assert_eq!(store.open_latest().unwrap().messages.len(), 2);
    }

    #[test]
    fn deleting_can_be_undone() {
        let (_folder, mut store) = store();
        store.append(said(Role::User, "keep me")).unwrap();
        assert_eq!(store.delete(None).unwrap(), ("keep me".to_owned(), true));
        assert_eq!(store.list().unwrap(), []);
        assert_eq!(store.undelete().unwrap().title, "keep me");
        assert_eq!(store.list().unwrap().len(), 1);
        assert!(store.undelete().is_err());
    }

    #[test]
    fn a_branch_is_a_copy_that_knows_where_it_came_from() {
        let (_folder, mut store) = store();
        for text in ["one", "two", "three"] {
            store.append(said(Role::User, text)).unwrap();
        }
        let first = store.current_id().unwrap().to_owned();
        let branch = store.fork(2).unwrap();
        assert_eq!((branch.messages, branch.branch_of.as_deref()), (2, Some(first.as_str())));
        store.append(said(Role::User, "other")).unwrap();
        assert_eq!(store.open(&first).unwrap().messages.len(), 3);
        assert_eq!(store.open(&branch.id).unwrap().messages[2].content, "other");
    }

    #[test]
    fn a_branch_in_which_nothing_was_said_is_neither_listed_nor_gone_on_with() {
        let (folder, mut store) = store();
        store.append(said(Role::User, "one")).unwrap();
        let first = store.current_id().unwrap().to_owned();
        store.fork(0).unwrap();
        let mut other = Store::new(Some(folder.path().join("chats")));
        assert_eq!(other.list().unwrap().len(), 1);
        assert_eq!(other.open_latest().unwrap().summary.id, first);
    }

    #[test]
    fn all_chats_are_searched_whatever_the_letters_case() {
        let (_folder, mut store) = store();
        store.append(said(Role::User, "the Lighthouse keeper")).unwrap();
        let hits = store.search("lighthouse").unwrap();
        assert_eq!(hits.len(), 1);
        assert!(hits[0].excerpt.contains("Lighthouse keeper"), "{:?}", hits[0]);
    }

    #[test]
    fn an_id_cannot_lead_out_of_the_folder() {
        let (_folder, mut store) = store();
        assert!(matches!(store.open("../../etc/passwd"), Err(SessionError::Unknown(_))));
        assert!(matches!(store.delete(Some("")), Err(SessionError::Unknown(_))));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error_in_words() {
        let mut store = Store::new(Some("/dev/null/x".into()));
        let message = store.append(said(Role::User, "hello")).unwrap_err().to_string();
        assert!(message.starts_with("/dev/null/x: "), "{message}");
    }
}
