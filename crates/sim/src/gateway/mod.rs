//! The shipped gateway in a simulated world: one thread, virtual time, one seed. Some cases have a connector as well: see
//! `relay/`.
//!
//! `petasos_runtime::simulation` schedules the gateway's own tasks. This folder is everything around them: platforms
//! (`adapter.rs`), the model and its tools (`model.rs`), the disk (`disk.rs`), people and operators (`events.rs`), the
//! process itself (`life.rs`). `observe.rs` hands what is on disk and what people see to the checker (`truth.rs`).
//!
//! At a crash the process is frozen: none of its tasks is polled again and no destructor of theirs runs before the verdict.
//! The next process starts on what `kill -9` or a power cut leaves of its files (`home.rs`). SQLite has to roll back what
//! is there of an uncommitted transaction.

pub(crate) mod adapter;
mod consent;
pub(crate) mod disk;
mod events;
mod files;
mod life;
mod model;
mod observe;
mod programs;
pub(crate) mod state;

use std::path::Path;

use petasos_core::Millis;
use petasos_gateway::simulation as injected;
use petasos_runtime::simulation::Simulation;

use crate::Story;
use crate::case::Case;
use crate::figures::{Figures, START};
use crate::plant::Bug;
use crate::promise::Violation;

use self::disk::Disk;
use self::state::{Outside, Stage};

/// Figures of a run, with a hash of every decision in it.
pub(crate) type Done = (Figures, u64);

/// Runs one case of the shipped gateway; its home is made in `folder`.
pub(crate) fn run(
    case: &Case,
    bug: Option<Bug>,
    folder: &Path,
    story: Story,
) -> Result<Done, (Violation, Vec<String>)> {
    let simulation = Simulation::new(case.seed, START);
    let outside = Outside::new(case, folder, simulation.clone(), story == Story::Told);
    injected::install(Box::new(Disk(outside.clone())), bug.map(Bug::planted));
    let main = outside.clone();
    let ended = simulation.run(async move { main.run().await });
    injected::uninstall();
    let mut state = outside.lock();
    // They know the world, and would keep it for ever.
    let handles = (std::mem::replace(&mut state.stage, Stage::Down), std::mem::take(&mut state.left_behind));
    let relay = state.relay.as_mut().map(crate::relay::Relay::take_handles);
    drop(state);
    drop((handles, relay));
    let mut state = outside.lock();
    match ended {
        Ok(()) => {
            state.figures.steps = simulation.steps();
            Ok((state.figures, simulation.trace()))
        }
        Err((promise, what, at)) => {
            let story = std::mem::take(&mut state.story);
            Err((Violation { promise, what, at: Millis(at.0 - START.0) }, story))
        }
    }
}
