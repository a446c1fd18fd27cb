//! The relay: a gateway behind a fake connector, and the real connector.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod connector;
mod damage;
mod gateway;
#[path = "../support/mod.rs"]
mod support;
