//! The chat in a terminal of its own, as a person has it: keys in, a screen out, and the terminal as it was afterwards.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod chat;
mod lifecycle;
mod quiet;
mod screenshots;
mod terminal;
