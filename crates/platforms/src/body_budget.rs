//! Memory that request bodies may take in this process, from their first byte until the request is answered.
//!
//! Small bodies are not counted: the connection limits bound them. Listeners that read a body before they know its
//! sender have a budget of their own, so that strangers cannot use up that of authenticated callers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Of each body so much is not counted.
pub const UNCOUNTED: usize = 64 * 1024;

/// Bodies of webhooks, whose signature covers the body.
pub static WEBHOOKS: Budget = Budget::new(16 << 20);
/// Bodies that gateways send to a connector: files, once they have authenticated.
pub static GATEWAYS: Budget = Budget::new(64 << 20);
/// Bodies of the page and the API.
pub static CALLERS: Budget = Budget::new(48 << 20);

/// Bytes that may be held at the same time.
#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: AtomicUsize,
}

/// The budget is used up for the moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many request bodies at once; try again in a moment")]
pub struct Exhausted;

impl Budget {
    pub const fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0) }
    }

    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    fn take(&self, bytes: usize) -> Result<(), Exhausted> {
        let taken = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|held| *held <= self.limit)
        });
        taken.map(drop).map_err(|_full| Exhausted)
    }
}

/// Bytes of the budget held by one request; released on drop.
#[derive(Debug)]
pub struct Charge {
    budget: &'static Budget,
    /// Bytes that came, counted or not.
    came: AtomicUsize,
    taken: AtomicUsize,
}

impl Charge {
    pub fn new(budget: &'static Budget) -> Self {
        Self { budget, came: AtomicUsize::new(0), taken: AtomicUsize::new(0) }
    }

    /// So many bytes more came.
    pub fn add(&self, bytes: usize) -> Result<(), Exhausted> {
        let before = self.came.fetch_add(bytes, Ordering::Relaxed);
        let counted = |came: usize| came.saturating_sub(UNCOUNTED);
        let more = counted(before.saturating_add(bytes)) - counted(before);
        self.budget.take(more)?;
        self.taken.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(*self.taken.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_is_shared_and_given_back() {
        static BUDGET: Budget = Budget::new(1000);
        let (first, second) = (Charge::new(&BUDGET), Charge::new(&BUDGET));
        assert_eq!(first.add(UNCOUNTED), Ok(()));
        assert_eq!(BUDGET.held(), 0, "small bodies are free");
        assert_eq!(first.add(900), Ok(()));
        assert_eq!(second.add(UNCOUNTED + 101), Err(Exhausted));
        assert_eq!(BUDGET.held(), 900);
        drop(first);
        assert_eq!(BUDGET.held(), 0);
        let third = Charge::new(&BUDGET);
        assert_eq!(third.add(UNCOUNTED + 1000), Ok(()));
        assert_eq!(third.add(1), Err(Exhausted));
        drop((second, third));
        assert_eq!(BUDGET.held(), 0);
    }
}
