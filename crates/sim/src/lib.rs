//! Deterministic simulation: the shipped gateway in a world that fails on purpose.
//!
//! One thread, virtual time, one seed. The tasks of the gateway are the shipped ones (`gateway/`), scheduled by
//! `petasos_runtime::simulation`; the world (`outside.rs`) delays, loses, repeats and refuses; the process dies at commits
//! and anywhere else. The promises are checked after every commit and every request (`truth.rs`), under their names
//! (`promise.rs`). A case that fails is made smaller (`shrink.rs`) and says how to see it again. `plant.rs` names bugs that
//! must be found: a simulation that cannot fail proves nothing.
//!
//! Cases behind a connector are simulated in another way: `relay/` and `shell/` follow connector and gateway by hand, on
//! core and SQL alone (`sim.rs`).
//!
//! The store is the real one on a file of its own; what power loss leaves is shown elsewhere, with the real program.

#![allow(clippy::expect_used, reason = "a simulation that cannot go on stops")]

mod case;
mod clock;
mod fate;
mod gateway;
mod outside;
mod plant;
mod promise;
mod relay;
mod script;
mod shell;
mod shrink;
mod sim;
mod truth;

use std::path::Path;

use case::Plan;
pub use case::{Case, Scenario};
pub use plant::Bug;
pub use promise::{Promise, Violation};
pub use shrink::shrink;
pub use sim::Figures;

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
    if !Plan::of(case).relayed {
        return gateway::run(case, bug, home.path(), story).map(|(figures, _trace)| figures).map_err(broken);
    }
    let sim = sim::Sim::new(case, bug, &home.path().join("petasos.db"), story == Story::Told);
    sim.run().map_err(broken)
}

/// A hash of every decision in a run of the shipped gateway. `None`: the case is one of the connector, which is not
/// simulated that way, or it breaks a promise.
pub fn trace(case: &Case, folder: &Path) -> Option<u64> {
    let home = tempfile::tempdir_in(folder).expect("a folder of its own");
    let simulated = !Plan::of(case).relayed;
    simulated
        .then(|| gateway::run(case, None, home.path(), Story::Untold).ok())
        .flatten()
        .map(|(_, trace)| trace)
}

/// Where files cost nothing: in memory, if the system has such a place.
pub fn workshop() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let made = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    made.or_else(|_full| tempfile::tempdir()).expect("a temporary folder")
}
