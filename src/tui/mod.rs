//! The chat on a full screen: state (`App`), `update` (pure: message to effects), `view` (draws, decides nothing), and
//! the loop that ties them to the terminal.
//!
//! Not responsible for inference: it sees the engine only as an [`EngineHandle`] and its events.

pub mod options;

pub use options::{Catalog, CatalogEntry, Forecast, PullProgress, Resume, TuiOptions};

use crate::engine::{EngineHandle, EventReceiver};

/// Runs the chat until the user leaves. Returns an error when the terminal cannot be used.
pub fn run(_engine: EngineHandle, _events: EventReceiver, _options: TuiOptions) -> anyhow::Result<()> {
    anyhow::bail!("the screen is not drawn yet; use chat --plain")
}
