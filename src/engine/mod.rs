//! The inference thread and what is said to and by it.

pub mod protocol;
