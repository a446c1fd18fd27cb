//! Work outside turns: scheduled jobs and their occurrences, background processes, delegations, and their completions.

pub(crate) mod completions;
pub(crate) mod delegations;
mod jobs;
pub(crate) mod occurrences;
pub(crate) mod processes;
