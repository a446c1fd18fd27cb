//! Prepares a conversation for a model: system prompt, context budget, provider rules, pictures, compaction.

pub mod compaction;
pub(crate) mod history;
pub(crate) mod normalise;
pub(crate) mod pictures;
pub(crate) mod prompt;
