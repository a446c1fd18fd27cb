//! Rate limit of each route. Pure: the time is an argument.

use std::collections::HashMap;
use std::time::Duration;

const WINDOW_SECONDS: u64 = 60;

/// By route; only existing routes are counted.
#[derive(Debug, Default)]
pub(in crate::webhook) struct RequestCounts(HashMap<String, RouteWindow>);

#[derive(Debug, Default)]
struct RouteWindow {
    since: Duration,
    requests: u32,
}

impl RequestCounts {
    /// `now`: of a monotonic clock. The error is the seconds until the next request is accepted.
    pub(super) fn count(&mut self, route: &str, limit: u32, now: Duration) -> Result<(), u64> {
        let window = self.0.entry(route.to_owned()).or_default();
        let age = now.saturating_sub(window.since).as_secs();
        if window.requests == 0 || age >= WINDOW_SECONDS {
            *window = RouteWindow { since: now, requests: 0 };
        } else if window.requests >= limit {
            return Err((WINDOW_SECONDS - age).max(1));
        }
        window.requests += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_each_route_per_minute_and_names_the_wait() {
        let mut counts = RequestCounts::default();
        let mut count = |route: &str, at| counts.count(route, 2, Duration::from_secs(at));
        assert_eq!(count("a", 0), Ok(()));
        assert_eq!(count("a", 10), Ok(()));
        assert_eq!(count("a", 20), Err(40));
        assert_eq!(count("b", 20), Ok(()), "another route");
        assert_eq!(count("a", 59), Err(1));
        assert_eq!(count("a", 60), Ok(()));
    }
}
