//! The wall clock.

use std::sync::OnceLock;

use petasos_core::Millis;

/// Set only by tests with accelerated time.
static REPLACEMENT: OnceLock<fn() -> Millis> = OnceLock::new();

pub fn now() -> Millis {
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        return simulation.wall_clock();
    }
    if let Some(replacement) = REPLACEMENT.get() {
        return replacement();
    }
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Replaces the wall clock of the process. Only the first call has an effect.
#[doc(hidden)]
pub fn replace(clock: fn() -> Millis) {
    let _first = REPLACEMENT.set(clock);
}

pub async fn sleep_until(at: Millis) {
    tokio::time::sleep(at.since(now())).await;
}
