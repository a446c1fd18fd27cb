//! Incoming events: parsing, message filter, user names, thread context.

pub(in crate::slack) mod filter;
mod mrkdwn;
pub(in crate::slack) mod parse;
mod reader;
mod thread_context;
mod user_names;
