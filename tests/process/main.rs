//! Lifecycle of the process: drain, stop, restart, service units, `petasos prove`.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod lifecycle;
mod prove;
mod service;
#[path = "../support/mod.rs"]
mod support;
