//! The gateway's own life: drains, stops, restarts, crashes, and what the next start makes of what it finds.
#![allow(clippy::expect_used, reason = "tests")]

mod support;

#[path = "lifecycle/boot.rs"]
mod boot;
#[path = "lifecycle/corners.rs"]
mod corners;
#[path = "lifecycle/drain.rs"]
mod drain;
#[path = "lifecycle/goodbye.rs"]
mod goodbye;
#[path = "lifecycle/held.rs"]
mod held;
#[path = "lifecycle/load.rs"]
mod load;
#[path = "lifecycle/notes.rs"]
mod notes;
#[path = "lifecycle/owed.rs"]
mod owed;
#[path = "lifecycle/resume.rs"]
mod resume;
#[path = "lifecycle/stop.rs"]
mod stop;
#[path = "lifecycle/suspects.rs"]
mod suspects;
