//! The Slack adapter against a fake Slack, over real sockets.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod bounds;
mod cursor;
mod files;
mod gaps;
mod link;
#[path = "../listening/mod.rs"]
mod listening;
mod rig;
mod send;
mod workspaces;
