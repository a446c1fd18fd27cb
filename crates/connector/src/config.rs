//! Configuration of a connector, validated by the caller.

use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::access::Access;
use petasos_core::session::KeyOptions;
use petasos_core::{InstanceId, Redactor};
use petasos_gateway::home::bot_lock::BotLock;
use petasos_gateway::network::OutboundAddresses;
use petasos_platforms::Adapter;
use petasos_platforms::listener::ListenAddress;
use petasos_relay::session::SessionPolicy;

pub use petasos_store::connector::DATABASE;

#[derive(Debug)]
pub struct Config {
    pub home: PathBuf,
    pub listen: ListenAddress,
    /// Address for gateways, if it differs from the listen address.
    pub public_url: Option<String>,
    pub adapters: Vec<Adapter>,
    /// Credentials that only one process may use.
    pub sole: Vec<BotLock>,
    pub access: Access,
    /// Gets the messages of all authorised authors.
    pub single_instance: Option<InstanceId>,
    /// Must match the gateways' session keys.
    pub keys: KeyOptions,
    pub terms: SessionPolicy,
    /// Wake hosts that may be local or unencrypted.
    pub wake_hosts: Vec<String>,
    pub max_sockets: usize,
    /// Gateways, and instances, per tenant; those revoked within a month count.
    pub max_gateways: u32,
    /// A socket without any frame for this long is closed.
    pub silence: Duration,
    pub hello_within: Duration,
    /// Reads the outbound addresses: [`petasos_gateway::network::outbound_addresses`], or a fixture.
    pub outward: fn() -> OutboundAddresses,
    /// Hides secrets in the reasons of failed connections.
    pub redactor: Redactor,
    /// Replaces HTTP wake calls.
    #[cfg(feature = "simulation")]
    pub wake: Option<std::sync::Arc<dyn crate::simulation::Wake>>,
}

impl Config {
    pub fn new(home: &Path) -> Self {
        Self {
            home: home.into(),
            listen: ListenAddress { host: "127.0.0.1".into(), port: 8655, port_key: "connector.listen" },
            public_url: None,
            adapters: vec![],
            sole: vec![],
            access: Access::default(),
            single_instance: None,
            keys: KeyOptions::default(),
            terms: SessionPolicy::default(),
            wake_hosts: vec![],
            max_sockets: 10_000,
            max_gateways: 64,
            silence: Duration::from_secs(30),
            hello_within: Duration::from_secs(30),
            outward: OutboundAddresses::default,
            redactor: Redactor::default(),
            #[cfg(feature = "simulation")]
            wake: None,
        }
    }
}
