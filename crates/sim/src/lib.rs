//! Deterministic simulation: the shipped gateway in a world that fails on purpose.
//!
//! One thread, virtual time, one seed. The tasks of the gateway are the shipped ones (`gateway/`), and so are those of the
//! connector that some cases have (`relay/`); both are scheduled by `petasos_runtime::simulation`, as processes of their
//! own. The world (`outside.rs`) delays, loses, repeats and refuses; processes die at commits and anywhere else. The promises are checked after every commit and every request (`truth.rs`), under their names
//! (`promise.rs`). A case that fails is made smaller (`shrink.rs`) and says how to see it again. `plant.rs` names bugs that
//! must be found: a simulation that cannot fail proves nothing.
//!
//! The store is the real one on a file of its own; what power loss leaves is shown elsewhere, with the real program.

#![allow(clippy::expect_used, reason = "a simulation that cannot go on stops")]

mod case;
mod figures;
mod gateway;
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

/// A case that broke a promise.
#[derive(Debug)]
pub struct Broken {
    pub case: Case,
    pub violation: Violation,
    /// The last things that happened, if somebody wanted to know.
    pub story: Vec<String>,
}

/// Whether the last steps are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Story {
    Told,
    Untold,
}

/// Runs one case in a folder that is emptied first.
pub fn run(case: &Case, bug: Option<Bug>, folder: &Path, story: Story) -> Result<Figures, Box<Broken>> {
    let home = tempfile::tempdir_in(folder).expect("a folder of its own");
    let broken = |(violation, story)| Box::new(Broken { case: *case, violation, story });
    gateway::run(case, bug, home.path(), story).map(|(figures, _trace)| figures).map_err(broken)
}

/// A hash of every decision in a run. `None`: it breaks a promise.
pub fn trace(case: &Case, folder: &Path) -> Option<u64> {
    let home = tempfile::tempdir_in(folder).expect("a folder of its own");
    gateway::run(case, None, home.path(), Story::Untold).ok().map(|(_figures, trace)| trace)
}

/// Where files cost nothing: in memory, if the system has such a place.
pub fn workshop() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.or_else(|_full| tempfile::tempdir()).expect("a temporary folder")
}
