//! The inference thread and what is said to and by it.

mod handle;
pub mod protocol;

pub use handle::{Controls, EngineEnd, EngineHandle, Envelope, EventReceiver};
