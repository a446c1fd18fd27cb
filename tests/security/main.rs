//! Boundaries of the gateway: file permissions and secrets.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod audit;
mod permissions;
mod secrets;
#[path = "../support/mod.rs"]
mod support;
