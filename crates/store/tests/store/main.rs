//! Tests of the public API of the store, on real files.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, reason = "tests damage, copy and compare files on purpose")]

mod access;
mod background;
mod boot;
mod connection;
mod connector;
mod fill;
mod fixture;
mod inbox;
mod maintenance;
mod model;
mod outbox;
mod salvage;
mod scale;
mod sessions;
mod turns;
