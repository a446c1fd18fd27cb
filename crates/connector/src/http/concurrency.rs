//! Per-gateway concurrency limits. A permit is released on drop; a request beyond the limit waits briefly.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_core::{GatewayId, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// Limits of the whole connector, and of each gateway.
#[derive(Debug)]
pub(crate) struct ServerLimits {
    pub(crate) sockets: Arc<Semaphore>,
    /// Sockets that only receive a refusal.
    pub(crate) refusals: Arc<Semaphore>,
    pub(crate) transfers: Arc<Semaphore>,
    pub(crate) gateways: Arc<ConcurrencyLimits>,
}

pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

/// A limited resource and its holder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum LimitKey {
    /// The current socket, and lost ones not yet detected.
    Socket(GatewayId),
    Request(GatewayId),
    /// File transfers. Each file is in memory as a whole.
    File(TenantId),
}

impl LimitKey {
    const fn max(&self) -> usize {
        match self {
            Self::Socket(_) | Self::File(_) => 8,
            Self::Request(_) => 4,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ConcurrencyLimits(Mutex<HashMap<LimitKey, Arc<Semaphore>>>);

#[derive(Debug)]
pub(crate) struct ConcurrencyPermit {
    limits: Arc<ConcurrencyLimits>,
    key: LimitKey,
    inner: Option<OwnedSemaphorePermit>,
}

impl ConcurrencyLimits {
    /// `None`: the limit is reached.
    pub(crate) async fn acquire(self: &Arc<Self>, key: LimitKey) -> Option<ConcurrencyPermit> {
        let mut permit = self.permit(key);
        let semaphore = self.semaphore(&permit.key);
        permit.inner = timeout(ACQUIRE_TIMEOUT, semaphore.acquire_owned()).await.ok()?.ok();
        permit.inner.is_some().then_some(permit)
    }

    pub(crate) fn try_acquire(self: &Arc<Self>, key: LimitKey) -> Option<ConcurrencyPermit> {
        let mut permit = self.permit(key);
        permit.inner = self.semaphore(&permit.key).try_acquire_owned().ok();
        permit.inner.is_some().then_some(permit)
    }

    fn permit(self: &Arc<Self>, key: LimitKey) -> ConcurrencyPermit {
        ConcurrencyPermit { limits: self.clone(), key, inner: None }
    }

    fn semaphore(&self, key: &LimitKey) -> Arc<Semaphore> {
        let max = key.max();
        self.lock().entry(key.clone()).or_insert_with(|| Arc::new(Semaphore::new(max))).clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<LimitKey, Arc<Semaphore>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConcurrencyPermit {
    fn drop(&mut self) {
        drop(self.inner.take());
        let mut all = self.limits.lock();
        // Permits and waiters hold a reference, too.
        if all.get(&self.key).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            all.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn limits_each_gateway_separately() {
        let limits = Arc::new(ConcurrencyLimits::default());
        let request = |gateway: &str| LimitKey::Request(gateway.into());
        let file = |tenant: &str| limits.try_acquire(LimitKey::File(tenant.into()));
        let mut permits: Vec<_> =
            (0..4).map(|_| limits.try_acquire(request("a")).expect("a permit")).collect();
        assert!(limits.try_acquire(request("a")).is_none());
        assert!(limits.try_acquire(request("b")).is_some());
        assert!(limits.try_acquire(LimitKey::Socket("a".into())).is_some());
        let (waited, ()) = tokio::join!(limits.acquire(request("a")), async { drop(permits.pop()) });
        assert!(waited.is_some(), "gets the released permit");
        let files: Vec<_> = (0..8).map(|_| file("a").expect("a permit")).collect();
        assert!(file("a").is_none() && file("b").is_some());
        drop((waited, permits, files));
        assert!(limits.lock().is_empty());
    }
}
