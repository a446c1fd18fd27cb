//! The store through its public face, on real files.
#![allow(clippy::unwrap_used, clippy::expect_used)]
#![allow(clippy::disallowed_methods, reason = "tests damage, copy and compare files on purpose")]

mod archive;
mod backups;
mod boot;
mod checkpoints;
mod connector;
mod dead_chats;
mod delivery;
mod detached;
mod fill;
mod fixture;
mod groups;
mod intake;
mod jobs;
mod model;
mod opening;
mod ownership;
mod page_check;
mod questions;
mod rest;
mod routing;
mod runs;
mod salvage;
mod scale;
mod sessions;
mod suspects;
mod transcripts;
