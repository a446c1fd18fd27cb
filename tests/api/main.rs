//! The API as programs use it: chat, runs, conversations, keys, hostile input, load, clients of other makers.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod clients;
mod hangup;
mod hostile;
mod load;
mod runs;
mod runs_and_chat;
#[path = "../support/mod.rs"]
mod support;
mod talk;
