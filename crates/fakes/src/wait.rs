//! Polling waits, for conditions that no notification announces: a file, a row, a child process.

use std::thread;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_millis(5);

/// The result of a condition: a bool, or an option with a value.
pub trait Condition {
    type Value;

    fn value(self) -> Option<Self::Value>;
}

impl Condition for bool {
    type Value = ();

    fn value(self) -> Option<()> {
        self.then_some(())
    }
}

impl<T> Condition for Option<T> {
    type Value = T;

    fn value(self) -> Self {
        self
    }
}

/// Polls until the condition holds. `None`: the timeout elapsed.
pub fn poll<C: Condition>(timeout: Duration, mut condition: impl FnMut() -> C) -> Option<C::Value> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = condition().value() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(INTERVAL);
    }
}

/// Polls until the condition holds.
///
/// # Panics
/// With the description, when the timeout elapses.
#[track_caller]
pub fn eventually<C: Condition>(
    description: &str,
    timeout: Duration,
    condition: impl FnMut() -> C,
) -> C::Value {
    match poll(timeout, condition) {
        Some(value) => value,
        None => panic!("not within {timeout:?}: {description}"),
    }
}

/// [`eventually`] without blocking the thread. The timeout is wall-clock time, even on a runtime with a paused clock.
///
/// # Panics
/// With the description, when the timeout elapses.
pub async fn eventually_async<C: Condition>(
    description: &str,
    timeout: Duration,
    mut condition: impl FnMut() -> C,
) -> C::Value {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = condition().value() {
            return value;
        }
        assert!(Instant::now() < deadline, "not within {timeout:?}: {description}");
        tokio::time::sleep(INTERVAL).await;
    }
}
