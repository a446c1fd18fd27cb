//! Drives both listeners of a running gateway.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a test may panic")]

mod drain;
mod lifecycle;
mod support;
