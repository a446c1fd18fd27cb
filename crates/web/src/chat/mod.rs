//! The owner's conversations, for the page and the terminal.

pub(crate) mod read;
pub(crate) mod write;
