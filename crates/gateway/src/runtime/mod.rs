//! Basics of all tasks: clock and randomness, named tasks, commit points, fault injection.

pub mod clock;
pub(crate) mod commit;
pub(crate) mod fault_injection;
#[cfg(feature = "simulation")]
pub mod simulation;
pub(crate) mod tasks;
