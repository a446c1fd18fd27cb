//! What every task of a connector shares.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::Platform;
use petasos_core::access::Access;
use petasos_core::session::KeyOptions;
use petasos_gateway::shell::{Db, Stopper};
use petasos_platforms::Adapter;
use petasos_relay::session::Terms;
use tokio::sync::Semaphore;

use crate::guests::Guests;
use crate::instance::Instances;
use crate::pace::Pace;
use crate::queue::Queue;
use crate::requests::Requests;
use crate::wake::Waker;

#[derive(Debug)]
pub(crate) struct Shell {
    pub(crate) db: Db,
    pub(crate) queue: Queue,
    pub(crate) adapters: Adapters,
    pub(crate) access: Access,
    pub(crate) single: Option<String>,
    pub(crate) keys: KeyOptions,
    pub(crate) terms: Terms,
    pub(crate) waker: Waker,
    pub(crate) instances: Instances,
    pub(crate) requests: Requests,
    /// Sockets that may still be opened.
    pub(crate) seats: Arc<Semaphore>,
    /// The same for those who are told that they may not come in.
    pub(crate) strangers: Arc<Semaphore>,
    /// Files that may be on their way at the same time.
    pub(crate) files: Arc<Semaphore>,
    pub(crate) guests: Arc<Guests>,
    pub(crate) provisioning: Pace,
    /// Gateways, and agents, that one tenant may have.
    pub(crate) max_gateways: u32,
    pub(crate) silence: Duration,
    pub(crate) hello_within: Duration,
    /// Where gateways reach us.
    pub(crate) url: String,
    pub(crate) home: PathBuf,
    pub(crate) stopper: Stopper,
}

/// The platforms, in the order in which they were configured.
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

    /// What a gateway gets that asks for no platform in particular.
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
