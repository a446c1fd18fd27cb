//! Kills, damaged and removed database files, backup and restore.

#![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

mod backup;
mod foreign_access;
mod kill;
mod restarts;
mod salvage;
#[path = "../support/mod.rs"]
mod support;
