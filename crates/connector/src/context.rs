//! State shared by all tasks of a connector.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::access::Access;
use petasos_core::session::KeyOptions;
use petasos_core::{Millis, Platform};
use petasos_gateway::clock;
use petasos_gateway::shell::{Db, ShutdownHandle};
use petasos_platforms::Adapter;
use petasos_relay::session::SessionPolicy;
use tokio::sync::Semaphore;

use crate::http::concurrency::ConcurrencyLimits;
use crate::http::provisioning::ProvisioningLimiter;
use crate::instances::queue::Queue;
use crate::instances::task::Instances;
use crate::instances::wake::WakeClient;
use crate::outbound::requests::{ANSWER_RETENTION, RequestTable};

#[derive(Debug)]
pub(crate) struct ConnectorContext {
    pub(crate) db: Db,
    pub(crate) queue: Queue,
    pub(crate) adapters: Adapters,
    pub(crate) access: Access,
    pub(crate) single: Option<String>,
    pub(crate) keys: KeyOptions,
    pub(crate) terms: SessionPolicy,
    pub(crate) wake_client: WakeClient,
    pub(crate) instances: Instances,
    pub(crate) requests: RequestTable,
    /// Time before which requests may have been performed without a row, after a salvage or a restore.
    pub(crate) requests_unknown_before: Option<Millis>,
    /// Limits open sockets.
    pub(crate) socket_slots: Arc<Semaphore>,
    /// Limits sockets that only receive a refusal.
    pub(crate) refusal_slots: Arc<Semaphore>,
    /// Limits concurrent file transfers.
    pub(crate) file_slots: Arc<Semaphore>,
    pub(crate) concurrency: Arc<ConcurrencyLimits>,
    pub(crate) provisioning: ProvisioningLimiter,
    /// Per tenant.
    pub(crate) max_gateways: u32,
    pub(crate) silence: Duration,
    pub(crate) hello_within: Duration,
    /// Public address for gateways.
    pub(crate) url: String,
    pub(crate) home: PathBuf,
    pub(crate) shutdown: ShutdownHandle,
}

impl ConnectorContext {
    /// How far back every performed request is known. A gateway repeats an older one with the mark of a possible duplicate.
    pub(crate) fn request_memory(&self) -> Duration {
        let known = self.requests_unknown_before.map_or(ANSWER_RETENTION, |at| clock::now().since(at));
        known.min(ANSWER_RETENTION)
    }
}

/// The platforms, in the order of the configuration.
#[derive(Debug)]
pub(crate) struct Adapters {
    first: Option<Platform>,
    all: BTreeMap<Platform, Arc<Adapter>>,
}

impl Adapters {
    pub(crate) fn new(adapters: Vec<Adapter>) -> Self {
        let first = adapters.first().map(Adapter::platform);
        let all = adapters.into_iter().map(|adapter| (adapter.platform(), Arc::new(adapter)));
        Self { first, all: all.collect() }
    }

    /// Default for a gateway that names no platform.
    pub(crate) fn first(&self) -> Option<&Arc<Adapter>> {
        self.of(self.first?)
    }

    pub(crate) fn of(&self, platform: Platform) -> Option<&Arc<Adapter>> {
        self.all.get(&platform)
    }

    pub(crate) fn named(&self, name: &str) -> Option<&Arc<Adapter>> {
        self.of(Platform::parse(name)?)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Adapter>> {
        self.all.values()
    }
}
