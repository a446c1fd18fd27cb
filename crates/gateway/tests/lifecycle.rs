//! Lifecycle: drain, shutdown, restart and crash, and the recovery at the next start.
#![allow(clippy::expect_used, reason = "tests")]

mod support;

#[path = "lifecycle/boot.rs"]
mod boot;
#[path = "lifecycle/drain.rs"]
mod drain;
#[path = "lifecycle/edge_cases.rs"]
mod edge_cases;
#[path = "lifecycle/held.rs"]
mod held;
#[path = "lifecycle/load.rs"]
mod load;
#[path = "lifecycle/notes.rs"]
mod notes;
#[path = "lifecycle/notices.rs"]
mod notices;
#[path = "lifecycle/resume.rs"]
mod resume;
#[path = "lifecycle/stop.rs"]
mod stop;
#[path = "lifecycle/suspects.rs"]
mod suspects;
#[path = "lifecycle/undelivered.rs"]
mod undelivered;
