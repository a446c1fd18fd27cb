//! Processes: pid file, start history and bot locks.

pub mod boots;
pub mod bot_lock;
pub mod pid;
pub mod process;
pub mod starts;
