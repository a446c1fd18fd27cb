//! Wall clock, monotonic clock and sleeps.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use petasos_core::Millis;
use tokio::time::{Instant, Sleep};

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
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Replaces the wall clock of the process. Only the first call has an effect.
#[doc(hidden)]
pub fn replace(clock: fn() -> Millis) {
    let _first = REPLACEMENT.set(clock);
}

/// The clock that sets file times, for the age of a file. It is not replaced, because files are real in a simulation too.
pub fn file_time() -> SystemTime {
    SystemTime::now()
}

/// The monotonic clock. Virtual in a simulation and on a runtime with paused time.
pub fn monotonic() -> Instant {
    Instant::now()
}

/// Sleeps on the monotonic clock. A test that sleeps in real time waits for a condition instead.
pub fn sleep(duration: Duration) -> Sleep {
    tokio::time::sleep(duration)
}

/// Sleeps for the difference to the wall clock; a later change of the clock is not noticed.
pub async fn sleep_until(at: Millis) {
    tokio::time::sleep(at.since(now())).await;
}
