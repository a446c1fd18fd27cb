//! Deterministic simulation of the shipped gateway and connector under faults.
//!
//! One thread, virtual time, one seed. `gateway` and `relay` run the shipped tasks as processes of
//! `petasos_runtime::simulation`. The environment (`outside`) delays, loses, repeats and refuses; processes are killed
//! at commits and in between. `truth` checks the guarantees of `promise` after every commit and every request.
//! `shrink` reduces a failing case and `plant` names bugs that the simulation must find.
//!
//! The store is the real one in a file. Its file operations are recorded, and a crash is `kill -9` or a power cut by the
//! seed: see `home`.

#![allow(clippy::expect_used, reason = "a simulation that cannot go on stops")]

mod case;
mod figures;
mod gateway;
mod home;
mod outside;
mod plant;
mod promise;
mod relay;
mod script;
mod shrink;
mod truth;

use std::path::Path;

pub use case::{Case, Scenario};
pub use figures::Figures;
pub use plant::Bug;
pub use promise::{Promise, Violation};
pub use shrink::shrink;

/// A case that broke a guarantee.
#[derive(Debug)]
pub struct Broken {
    pub case: Case,
    pub violation: Violation,
    /// The last events, if recorded.
    pub story: Vec<String>,
}

/// Whether to record the last events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Story {
    Told,
    Untold,
}

/// Runs one case in a folder that is cleared first.
pub fn run(case: &Case, bug: Option<Bug>, folder: &Path, story: Story) -> Result<Figures, Box<Broken>> {
    let home = tempfile::tempdir_in(folder).expect("a folder of its own");
    let broken = |(violation, story)| Box::new(Broken { case: *case, violation, story });
    gateway::run(case, bug, home.path(), story).map(|(figures, _trace)| figures).map_err(broken)
}

/// Hash of all decisions of a run. `None`: a guarantee was broken.
pub fn trace(case: &Case, folder: &Path) -> Option<u64> {
    let home = tempfile::tempdir_in(folder).expect("a folder of its own");
    gateway::run(case, None, home.path(), Story::Untold).ok().map(|(_figures, trace)| trace)
}

/// A folder in memory, if the system has one.
pub fn workshop() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.or_else(|_full| tempfile::tempdir()).expect("a temporary folder")
}
