//! Handlers of the API, one module per resource.

pub(crate) mod chat_completions;
pub(crate) mod info;
pub(crate) mod responses;
pub(crate) mod runs;
pub(crate) mod sessions;
