//! `select!` whose first polled branch a simulation decides.

/// `tokio::select!`, except that a simulation decides which branch is polled first.
///
/// It enters tokio's macro behind the place where that draws a random number: a tokio that changes this does not build.
#[macro_export]
macro_rules! select {
    (biased; $($branches:tt)*) => {
        $crate::tokio::select! { biased; $($branches)* }
    };
    ($($branches:tt)*) => {
        $crate::tokio::select!(@{ start={ $crate::first_branch(BRANCHES) }; () } $($branches)*)
    };
}

/// Which of so many branches is polled first.
pub fn first_branch(branches: u32) -> u32 {
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        return simulation.below(branches);
    }
    tokio::macros::support::thread_rng_n(branches)
}
