//! The store through its public face, on real files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod delivery;
mod fixture;
mod groups;
mod intake;
mod jobs;
mod model;
mod opening;
mod questions;
mod rest;
mod sessions;
mod transcripts;
