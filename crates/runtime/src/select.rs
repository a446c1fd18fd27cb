//! `select!` with a branch order that a simulation can decide.

/// `tokio::select!`, with the first polled branch decided by a simulation.
///
/// Enters tokio's macro after the point where it draws a random number; does not compile if tokio changes that.
#[macro_export]
macro_rules! select {
    (biased; $($branches:tt)*) => {
        $crate::tokio::select! { biased; $($branches)* }
    };
    ($($branches:tt)*) => {
        $crate::tokio::select!(@{ start={ $crate::first_branch(BRANCHES) }; () } $($branches)*)
    };
}

/// The index of the branch that is polled first.
pub fn first_branch(branches: u32) -> u32 {
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        return simulation.below(branches);
    }
    tokio::macros::support::thread_rng_n(branches)
}
