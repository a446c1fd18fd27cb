//! The platforms that the connector serves, in the order of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use petasos_core::Platform;
use petasos_platforms::Adapter;

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
