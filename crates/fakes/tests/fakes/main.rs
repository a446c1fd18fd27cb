//! Tests of the fakes themselves, over real sockets and with a client that hides nothing.

#![expect(clippy::disallowed_methods, reason = "clients run in threads, and durations are measured")]
#![allow(clippy::unwrap_used, reason = "helpers outside #[test] functions fail by panicking too")]

mod client;
mod discord;
mod faults;
mod load;
mod model;
mod quirks;
mod telegram;
