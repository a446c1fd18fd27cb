//! Clock, randomness, tasks and blocking work: the only access to these for the whole program.
//!
//! Without the feature `simulation`, the functions are those of tokio and of the system. With it, on a thread that runs a
//! [`simulation::Simulation`], time is virtual, randomness comes from the seed, and one task runs at a time, chosen by the
//! seed. Other threads are not affected.

#![expect(clippy::disallowed_methods, reason = "the functions that the rest of the workspace uses instead")]

pub mod clock;
pub mod fault_injection;
pub mod random;
mod select;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod task;

pub use select::first_branch;
pub use task::{annotate, blocking, spawn, spawn_into};

#[doc(hidden)]
pub use tokio;

/// Whether this thread runs a simulation.
#[cfg(feature = "simulation")]
pub fn is_simulated() -> bool {
    simulation::current().is_some()
}

/// Whether this thread runs a simulation.
#[cfg(not(feature = "simulation"))]
pub const fn is_simulated() -> bool {
    false
}
