//! The chat in a terminal of its own, as a person has it: keys in, a screen out, and the terminal as it was afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chat;
mod clipboard;
mod composer;
mod conversation;
mod faults;
mod hostile;
mod lifecycle;
mod look;
mod models;
mod mouse;
mod panels;
mod plain;
mod quiet;
mod screenshots;
mod sessions;
mod terminal;
mod transcript;
