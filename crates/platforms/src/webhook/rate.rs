//! How many requests a route takes in a minute. Pure: the time is an argument.

use std::collections::HashMap;
use std::time::Duration;

/// Seconds.
const WINDOW: u64 = 60;

/// Counts per route; there are never more than routes that exist.
#[derive(Debug, Default)]
pub(super) struct Rates(HashMap<String, Count>);

#[derive(Debug, Default)]
struct Count {
    since: Duration,
    requests: u32,
}

impl Rates {
    /// Counts a request at `now` on a clock that only goes on. The error is the seconds until the next one is taken.
    pub(super) fn take(&mut self, route: &str, limit: u32, now: Duration) -> Result<(), u64> {
        let count = self.0.entry(route.to_owned()).or_default();
        let age = now.saturating_sub(count.since).as_secs();
        if count.requests == 0 || age >= WINDOW {
            *count = Count { since: now, requests: 0 };
        } else if count.requests >= limit {
            return Err((WINDOW - age).max(1));
        }
        count.requests += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_route_takes_so_many_in_a_minute_and_says_when_to_come_again() {
        let mut rates = Rates::default();
        let mut take = |route: &str, at| rates.take(route, 2, Duration::from_secs(at));
        assert_eq!(take("a", 0), Ok(()));
        assert_eq!(take("a", 10), Ok(()));
        assert_eq!(take("a", 20), Err(40));
        assert_eq!(take("b", 20), Ok(()), "another route");
        assert_eq!(take("a", 59), Err(1));
        assert_eq!(take("a", 60), Ok(()));
    }
}
