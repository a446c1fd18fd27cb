//! Tools, approvals, delegation, jobs and background work.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod approvals;
mod async_delivery;
mod completions;
mod cron;
mod delegation;
mod footprint;
mod mcp;
mod sandbox;
#[path = "../support/mod.rs"]
mod support;
mod tools;
