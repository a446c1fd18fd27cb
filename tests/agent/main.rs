//! Tools, approvals, delegation, jobs and background work with the real program.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod approvals;
mod completions;
mod cron;
mod delegation;
mod footprint;
mod later;
mod mcp;
#[path = "../support/mod.rs"]
mod support;
mod tools;
