//! The wall clock.

use std::sync::OnceLock;

use petasos_core::Millis;

/// Set only by tests in which days pass in seconds.
static OTHER: OnceLock<fn() -> Millis> = OnceLock::new();

pub fn now() -> Millis {
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        return simulation.wall_clock();
    }
    if let Some(other) = OTHER.get() {
        return other();
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// From now on this is the wall clock of the process. The first one counts.
#[doc(hidden)]
pub fn replace(clock: fn() -> Millis) {
    let _first = OTHER.set(clock);
}

/// Sleeps until a wall-clock instant; returns at once when it has passed.
pub async fn sleep_until(at: Millis) {
    tokio::time::sleep(at.since(now())).await;
}
