//! Work outside a turn: scheduled jobs, delegated turns, background processes, hooks and notifications.

pub(crate) mod completions;
pub mod cron;
pub(crate) mod delegation;
pub mod hooks;
pub(crate) mod notifications;
pub(crate) mod processes;
