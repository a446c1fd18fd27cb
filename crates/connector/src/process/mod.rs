//! Periodic tasks of the process.

pub(crate) mod access_watch;
pub(crate) mod retention;
pub(crate) mod status;
