//! The inference thread and what is said to and by it.
//!
//! Front ends see [`EngineHandle`] and [`protocol`]; one-shot tools may also open a model by [`Loaded`] themselves.

mod channels;
mod convert;
mod figures;
mod generation;
mod handle;
mod ledger;
mod loaded;
mod model_name;
pub mod protocol;
mod settled;
mod text;
mod thread;

pub use handle::{Controls, EngineEnd, EngineHandle, Envelope, EventReceiver};
pub use loaded::Loaded;
pub use thread::THREAD_NAME;
