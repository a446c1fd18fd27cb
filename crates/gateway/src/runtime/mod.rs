//! What every task builds on: clock and randomness, named tasks, commit points, fault injection.

pub mod clock;
pub(crate) mod commit;
pub(crate) mod fault_injection;
pub(crate) mod tasks;
