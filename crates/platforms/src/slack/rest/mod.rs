//! Web API requests.

pub(in crate::slack) mod api;
mod channels;
mod fetch;
mod react;
mod send;
