//! How often one tenant may provision. Tenants are added by the owner, so what is remembered of them is bounded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use petasos_core::Millis;

const WINDOW: Duration = Duration::from_secs(60);
/// A gateway provisions once for each of its platforms whenever it starts without credentials.
const MOST: u32 = 60;

/// Requests of each tenant in its current window.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<HashMap<String, (Millis, u32)>>);

impl Pace {
    /// `Err`: how long to wait.
    pub(crate) fn take(&self, tenant: &str, now: Millis) -> Result<(), Duration> {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = tenants.entry(tenant.to_owned()).or_insert((now, 0));
        // A clock that was set back opens a new window.
        if now < *since || now >= since.after(WINDOW) {
            (*since, *count) = (now, 0);
        }
        if *count >= MOST {
            return Err(since.after(WINDOW).since(now));
        }
        *count += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_each_tenant_per_minute() {
        let pace = Pace::default();
        let at = |seconds: u64| Millis(1_000_000 + seconds * 1000);
        for _ in 0..MOST {
            assert_eq!(pace.take("a", at(0)), Ok(()));
        }
        assert_eq!(pace.take("a", at(20)), Err(Duration::from_secs(40)));
        assert_eq!(pace.take("b", at(20)), Ok(()));
        assert_eq!(pace.take("a", at(60)), Ok(()));
    }
}
