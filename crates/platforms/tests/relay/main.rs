//! The relay's adapter against a fake connector.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

mod auth;
mod framing;
mod idle;
mod link;
mod rig;
mod send;
