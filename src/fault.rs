//! Faults that tests ask for, to see what becomes of the terminal and the chat: `SIPLLM_FAULT` names the place.
//! Builds without debug assertions have none.

use std::sync::atomic::{AtomicBool, Ordering};

static DONE: AtomicBool = AtomicBool::new(false);

/// Whether a fault is wanted at this place; once a run.
pub fn is_wanted(place: &str) -> bool {
    cfg!(debug_assertions)
        && std::env::var("SIPLLM_FAULT").is_ok_and(|wanted| wanted == place)
        && !DONE.swap(true, Ordering::Relaxed)
}
