//! State that tests can wait on: one lock, and one bell that rings after every change.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug, Default)]
pub(crate) struct Watched<S> {
    state: Mutex<S>,
    changed: Condvar,
}

impl<S> Watched<S> {
    pub(crate) fn new(state: S) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn read<T>(&self, look: impl FnOnce(&S) -> T) -> T {
        look(&self.lock())
    }

    pub(crate) fn change<T>(&self, act: impl FnOnce(&mut S) -> T) -> T {
        let done = act(&mut self.lock());
        self.changed.notify_all();
        done
    }

    /// Looks now and after every change, until `look` finds something or time is up.
    pub(crate) fn wait_until<T>(
        &self,
        timeout: Duration,
        mut look: impl FnMut(&S) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            if let Some(found) = look(&state) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A test that panicked while looking has not broken the state: only we change it.
    fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
