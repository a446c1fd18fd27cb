//! Clock, randomness, tasks and blocking work: the only place that asks the machine for any of them.
//!
//! Without the feature `simulation` every function here is the one of tokio or of the system. With it, and on a thread
//! that runs a [`simulation::Simulation`], time is virtual, randomness comes from the seed, one task runs at a time and
//! the seed decides which one. A thread without a simulation sees no difference.

pub mod clock;
pub mod fault_injection;
pub mod random;
mod select;
#[cfg(feature = "simulation")]
pub mod simulation;
pub mod task;

pub use select::first_branch;
pub use task::{annotate, blocking, scheduled, spawn};

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
