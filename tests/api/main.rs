//! The API: chat, runs, conversations, keys, hostile input, load, third-party clients.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod chat_completions;
mod clients;
mod conversations;
mod disconnects;
mod hostile;
mod load;
mod runs;
#[path = "../support/mod.rs"]
mod support;
