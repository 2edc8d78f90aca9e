//! What comes to the screen and what it asks for.

use std::path::PathBuf;
use std::sync::Arc;

use crossterm::event::{KeyEvent, MouseEvent};

use super::options::{CatalogEntry, Forecast, PullProgress};
use crate::engine::protocol::{Budget, Command, Event, Snapshot};
use crate::session::{ChatMessage, OpenChat, Record, SearchHit, Summary};

/// Everything that can happen.
#[derive(Clone, Debug)]
pub enum Msg {
    Key(KeyEvent),
    Paste(String),
    /// A paste that was longer than [`App::most_pasted_bytes`](super::app::App::most_pasted_bytes).
    PasteTooLong {
        bytes: usize,
    },
    Mouse(MouseEvent),
    Resize(u16, u16),
    Engine(Event),
    /// The engine's event channel closed.
    EngineGone,
    Figures(Arc<Snapshot>),
    Reply(Reply),
    /// Asked to leave from outside: SIGTERM, SIGHUP.
    Terminated,
}

/// What is to be done outside of the state; carried out in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    Send(Command),
    Cancel,
    SetBudget(Budget),
    Job(Job),
    /// Fetch a model on a thread of its own.
    Pull(String),
    CancelPull,
    Copy(String),
    /// The text in `$EDITOR`; comes back as [`Reply::Edited`].
    Editor(String),
    /// The text in `$PAGER`.
    Pager(String),
    Mouse(bool),
    Suspend,
    /// Everything drawn anew.
    Redraw,
    Quit,
}

/// Work for the thread that waits for the disk, so that the one that draws never does.
#[derive(Clone, Debug, PartialEq)]
pub enum Job {
    /// Added to the current chat, which is created with its first message.
    Append(Record),
    /// The current chat is over; the next record begins another.
    NewChat,
    OpenChat(String),
    OpenLatest,
    ListChats,
    /// Goes on in a copy of the current chat's first so many messages.
    Fork {
        messages: usize,
    },
    /// The current chat without an id.
    DeleteChat(Option<String>),
    UndeleteChat,
    /// Another title for a saved chat, the current one or not.
    Rename {
        id: String,
        title: String,
    },
    Search(String),
    Export {
        path: String,
        title: String,
        messages: Vec<ChatMessage>,
    },
    Import(String),
    ReadFile {
        path: String,
        most_bytes: usize,
    },
    /// Names that complete a path, for the popup.
    ListFiles(String),
    AddHistory(String),
    LoadTheme(String),
    /// A copy of what went to the clipboard.
    KeepCopy(String),
    Catalog,
    /// Removes what a stopped fetch left.
    DiscardPart(String),
    Forecast {
        model: PathBuf,
        budget: Budget,
    },
}

/// What comes back from jobs.
#[derive(Clone, Debug)]
pub enum Reply {
    Opened(Box<OpenChat>),
    Chats(Vec<Summary>),
    Forked(Summary),
    Deleted {
        title: String,
        current: bool,
    },
    Undeleted(Summary),
    Renamed {
        title: String,
        current: bool,
    },
    Found {
        wanted: String,
        hits: Vec<SearchHit>,
    },
    Exported(PathBuf),
    Imported {
        /// Empty where it has none.
        title: String,
        messages: Vec<ChatMessage>,
    },
    File {
        path: String,
        text: String,
    },
    Files {
        prefix: String,
        names: Vec<String>,
    },
    Theme {
        name: String,
        theme: Box<super::theme::Theme>,
    },
    Kept(PathBuf),
    Catalog {
        entries: Vec<CatalogEntry>,
        /// What the machine has left; 0 when unknown.
        available_bytes: u64,
    },
    Forecast {
        model: PathBuf,
        forecast: Option<Forecast>,
    },
    Pulling(PullProgress),
    Pulled {
        name: String,
        path: PathBuf,
    },
    PullFailed {
        name: String,
        message: String,
        cancelled: bool,
    },
    Edited(Option<String>),
    /// The clipboard sequence was written, so many bytes of text.
    Copied {
        bytes: usize,
    },
    /// A job failed, in words.
    Failed(String),
}
