//! The relay with the real programs: a gateway behind a connector, and the connector itself.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod connector;
mod gateway;
#[path = "../support/mod.rs"]
mod support;
