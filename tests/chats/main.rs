//! Chat platforms: answers, files, routing, links, rate limits.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod discord;
mod links;
mod media;
mod platforms;
mod rate_limits;
mod routing;
#[path = "../support/mod.rs"]
mod support;
mod webhook;
