//! Per-gateway concurrency limits.
//!
//! A permit is released on drop. A request beyond the limit waits briefly.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_store::connector::GatewayCredentials;
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

/// The limited resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum LimitKind {
    /// Sockets of a gateway: the current one, and lost ones not yet detected.
    Socket,
    /// HTTP requests of a gateway.
    Request,
    /// File transfers of a tenant. Each file is in memory as a whole.
    File,
}

impl LimitKind {
    const fn max(self) -> usize {
        match self {
            Self::Socket | Self::File => 8,
            Self::Request => 4,
        }
    }
}

/// Longest wait for a permit.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);

type LimitKey = (LimitKind, String);

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
    pub(crate) async fn acquire(
        self: &Arc<Self>,
        kind: LimitKind,
        gateway: &GatewayCredentials,
    ) -> Option<ConcurrencyPermit> {
        let mut permit = self.permit(kind, gateway);
        let semaphore = self.semaphore(&permit.key);
        permit.inner = timeout(ACQUIRE_TIMEOUT, semaphore.acquire_owned()).await.ok()?.ok();
        permit.inner.is_some().then_some(permit)
    }

    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        kind: LimitKind,
        gateway: &GatewayCredentials,
    ) -> Option<ConcurrencyPermit> {
        let mut permit = self.permit(kind, gateway);
        permit.inner = self.semaphore(&permit.key).try_acquire_owned().ok();
        permit.inner.is_some().then_some(permit)
    }

    fn permit(self: &Arc<Self>, kind: LimitKind, gateway: &GatewayCredentials) -> ConcurrencyPermit {
        let gateway = match kind {
            LimitKind::Socket | LimitKind::Request => &gateway.id,
            LimitKind::File => &gateway.tenant,
        };
        ConcurrencyPermit { limits: self.clone(), key: (kind, gateway.clone()), inner: None }
    }

    fn semaphore(&self, key: &LimitKey) -> Arc<Semaphore> {
        let max = key.0.max();
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

    fn gateway(id: &str, tenant: &str) -> GatewayCredentials {
        let id = id.to_owned();
        let tenant = tenant.to_owned();
        GatewayCredentials { instance: id.clone(), id, tenant, secrets: vec![], delivery_key: String::new() }
    }

    #[tokio::test]
    async fn limits_each_gateway_separately() {
        let limits = Arc::new(ConcurrencyLimits::default());
        let ann = gateway("a", "t1");
        let bob = gateway("b", "t1");
        let acquire = |kind, gateway| limits.try_acquire(kind, gateway);
        let mut permits: Vec<_> =
            (0..4).map(|_| acquire(LimitKind::Request, &ann).expect("a permit")).collect();
        assert!(acquire(LimitKind::Request, &ann).is_none());
        assert!(acquire(LimitKind::Request, &bob).is_some() && acquire(LimitKind::Socket, &ann).is_some());
        let (waited, ()) =
            tokio::join!(limits.acquire(LimitKind::Request, &ann), async { drop(permits.pop()) });
        assert!(waited.is_some(), "gets the released permit");
        // Files are counted by tenant.
        let files: Vec<_> = (0..8).map(|_| acquire(LimitKind::File, &ann).expect("a permit")).collect();
        assert!(acquire(LimitKind::File, &bob).is_none());
        drop((waited, permits, files));
        assert!(limits.lock().is_empty());
    }
}
