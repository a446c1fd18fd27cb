//! Memory budgets of request bodies, held from the first byte until the response.
//!
//! Small bodies are not counted: the connection limits bound them. Listeners that read a body before they
//! authenticate its sender have their own budget, so strangers cannot use up that of authenticated callers.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of each body that are free.
pub const UNCOUNTED: usize = 64 * 1024;

/// Webhooks: the signature covers the body.
pub static WEBHOOKS: Budget = Budget::new(16 << 20);
/// Files that authenticated gateways send to a connector.
pub static GATEWAYS: Budget = Budget::new(64 << 20);
/// Web page and API.
pub static API_CLIENTS: Budget = Budget::new(48 << 20);

#[derive(Debug)]
pub struct Budget {
    limit: usize,
    held: AtomicUsize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many request bodies at once; try again in a moment")]
pub struct Exhausted;

impl Budget {
    pub const fn new(limit: usize) -> Self {
        Self { limit, held: AtomicUsize::new(0) }
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub fn limit(&self) -> usize {
        self.limit
    }

    fn reserve(&self, bytes: usize) -> Result<(), Exhausted> {
        let reserved = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |held| {
            held.checked_add(bytes).filter(|held| *held <= self.limit)
        });
        reserved.map(drop).map_err(|_full| Exhausted)
    }
}

/// One request's share of the budget; released on drop.
#[derive(Debug)]
pub struct Charge {
    budget: &'static Budget,
    /// Counted and free bytes.
    received: AtomicUsize,
    reserved: AtomicUsize,
}

impl Charge {
    pub fn new(budget: &'static Budget) -> Self {
        Self { budget, received: AtomicUsize::new(0), reserved: AtomicUsize::new(0) }
    }

    pub fn add(&self, bytes: usize) -> Result<(), Exhausted> {
        let before = self.received.fetch_add(bytes, Ordering::Relaxed);
        let counted = |received: usize| received.saturating_sub(UNCOUNTED);
        let more = counted(before.saturating_add(bytes)) - counted(before);
        self.budget.reserve(more)?;
        self.reserved.fetch_add(more, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.held.fetch_sub(*self.reserved.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_and_releases_the_budget() {
        static BUDGET: Budget = Budget::new(1000);
        let first = Charge::new(&BUDGET);
        let second = Charge::new(&BUDGET);
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
