//! Time and chance: the only place that asks the machine for either.

use std::sync::OnceLock;

use petasos_core::Millis;

/// Set only by tests in which days pass in seconds.
static OTHER: OnceLock<fn() -> Millis> = OnceLock::new();

/// The wall clock.
pub fn now() -> Millis {
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

/// A roll of the dice from 0 to 1000, for jitter.
pub fn roll() -> u64 {
    u64::from(u16::from_le_bytes(random())) % 1001
}

/// Bytes nobody can guess.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if getrandom::fill(&mut bytes).is_err() {
        // The operating system has no randomness to give: going on would make guessable secrets.
        std::process::abort();
    }
    bytes
}

/// A secret for a link or a cookie: 32 random bytes in hex.
pub fn secret() -> String {
    random::<32>().iter().map(|byte| format!("{byte:02x}")).collect()
}
