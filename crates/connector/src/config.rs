//! What a connector is started with. Checked by whoever builds it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::access::Access;
use petasos_core::session::KeyOptions;
use petasos_gateway::home::bot_lock::Sole;
use petasos_gateway::network::Outward;
use petasos_platforms::Adapter;
use petasos_platforms::listener::Place;
use petasos_relay::session::Terms;

pub use petasos_store::connector::DATABASE;

#[derive(Debug)]
pub struct Config {
    pub home: PathBuf,
    pub listen: Place,
    /// Under which address gateways reach us, if it is not the one we listen on.
    pub public_url: Option<String>,
    pub adapters: Vec<Adapter>,
    /// What nobody else on this machine may use while we do.
    pub sole: Vec<Sole>,
    /// Who may talk, where one instance has everybody.
    pub access: Access,
    /// The one agent to which everybody belongs who may talk.
    pub single_instance: Option<String>,
    /// How gateways name their conversations.
    pub keys: KeyOptions,
    pub terms: Terms,
    /// Hosts that may be called to wake an instance although they are near, or not encrypted.
    pub wake_hosts: Vec<String>,
    /// Gateways that may be connected at the same time.
    pub max_sockets: usize,
    /// Gateways, and agents, that one tenant may have; those that were revoked in the last month count.
    pub max_gateways: u32,
    /// A socket that says nothing for so long, not even that it lives, is dead.
    pub silence: Duration,
    /// How long a socket may take to say who it is.
    pub hello_within: Duration,
    /// Which addresses we have towards the world: [`petasos_gateway::network::outward`], or what a test says.
    pub outward: fn() -> Outward,
    /// What a simulation calls to wake an instance.
    #[cfg(feature = "simulation")]
    pub wake: Option<std::sync::Arc<dyn crate::simulation::Wake>>,
}

impl Config {
    pub fn new(home: &Path) -> Self {
        Self {
            home: home.into(),
            listen: Place { host: "127.0.0.1".into(), port: 8655, port_key: "connector.listen" },
            public_url: None,
            adapters: vec![],
            sole: vec![],
            access: Access::default(),
            single_instance: None,
            keys: KeyOptions::default(),
            terms: Terms::default(),
            wake_hosts: vec![],
            max_sockets: 10_000,
            max_gateways: 64,
            silence: Duration::from_secs(30),
            hello_within: Duration::from_secs(30),
            outward: Outward::default,
            #[cfg(feature = "simulation")]
            wake: None,
        }
    }
}
