//! The chat on a full screen: state (`app`), `update` (pure: message to effects), `view` (draws, decides nothing), and
//! the loop that ties them to the terminal (`run`).
//!
//! Not responsible for inference: it sees the engine only as an [`EngineHandle`](crate::engine::EngineHandle) and its
//! events.

mod app;
mod background;
mod clipboard;
mod completion;
mod composer;
mod entry;
mod failure;
mod figures;
mod forecast;
mod glyphs;
mod input;
mod keymap;
mod keys;
mod markdown;
mod message;
pub mod options;
mod outside;
mod overlay;
mod picker;
mod run;
#[cfg(test)]
mod samples;
mod slash;
mod terminal;
mod theme;
mod transcript;
mod update;
mod view;
mod wrap;

pub use entry::answer_only;
pub use failure::in_chat;
pub use keymap::{Keymap, KeymapError};
pub use markdown::code_blocks;
pub use options::{Catalog, CatalogEntry, Forecast, PullProgress, Resume, TuiOptions};
pub use run::{Left, run};
pub use theme::{Theme, ThemeError};

/// The names of the slash commands.
pub fn slash_names() -> impl Iterator<Item = &'static str> {
    slash::Slash::ALL.iter().map(|s| s.name())
}

/// Whether a line is a slash command, or was meant for one.
pub fn is_command(line: &str) -> bool {
    slash::Slash::parse(line).is_some()
}

/// A path for people: safe to show, the home folder as `~`.
fn shown_path(path: &std::path::Path) -> String {
    let home = std::env::var_os("HOME").filter(|home| home.len() > 1);
    match home.and_then(|home| Some(path.strip_prefix(home).ok()?.to_owned())) {
        Some(rest) => clean(&format!("~/{}", rest.display())),
        None => clean(&path.display().to_string()),
    }
}

/// Text from elsewhere, safe to show.
fn clean(text: &str) -> String {
    crate::sanitize::sanitize(text).into_owned()
}
