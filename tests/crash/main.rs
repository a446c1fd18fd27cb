//! `kill -9`, damaged and removed database files, backup and restore.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod backup;
mod kill;
mod outside;
mod restarts;
mod salvage;
#[path = "../support/mod.rs"]
mod support;
