//! Platform adapters against fake services, over real sockets.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod conformance;
mod discord;
mod harness;
mod rate_limits;
mod relay;
mod slack;
mod telegram;
mod webhook;
