//! Rate limit for provisioning, per tenant. Only the owner adds tenants, so the map is bounded.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use petasos_core::{Millis, TenantId};

const WINDOW: Duration = Duration::from_secs(60);
/// A gateway without credentials provisions once per platform at each start.
const MAX_REQUESTS: u32 = 60;

#[derive(Debug, Default)]
pub(crate) struct ProvisioningLimiter(Mutex<HashMap<TenantId, (Millis, u32)>>);

impl ProvisioningLimiter {
    /// `Err`: the wait.
    pub(crate) fn try_acquire(&self, tenant: &TenantId, now: Millis) -> Result<(), Duration> {
        let mut tenants = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, count) = tenants.entry(tenant.clone()).or_insert((now, 0));
        // A clock that was set back opens a new window.
        if now < *since || now >= since.after(WINDOW) {
            (*since, *count) = (now, 0);
        }
        if *count >= MAX_REQUESTS {
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
        let limiter = ProvisioningLimiter::default();
        let at = |seconds: u64| Millis(1_000_000 + seconds * 1000);
        for _ in 0..MAX_REQUESTS {
            assert_eq!(limiter.try_acquire(&"a".into(), at(0)), Ok(()));
        }
        assert_eq!(limiter.try_acquire(&"a".into(), at(20)), Err(Duration::from_secs(40)));
        assert_eq!(limiter.try_acquire(&"b".into(), at(20)), Ok(()));
        assert_eq!(limiter.try_acquire(&"a".into(), at(60)), Ok(()));
    }
}
