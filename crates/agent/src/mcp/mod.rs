//! Tools of other people's servers (Model Context Protocol), by the official SDK.
//!
//! Owns one task per server. What a server says was written by strangers and is marked so (`outcome.rs`). A server that is
//! away keeps nobody waiting: its tools say so.

mod config;
mod policy;
mod server;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value};

pub use config::{Server, Way};
pub use server::{NotDone, State};

use crate::request::ToolSpec;
use server::Link;

/// How names of their tools begin.
pub(crate) const PREFIX: &str = "mcp__";

#[derive(Debug, Clone, Default)]
pub struct Servers(Arc<Vec<Link>>);

impl Servers {
    /// In a runtime: each gets a task.
    pub fn start(servers: Vec<Server>) -> Self {
        Self(Arc::new(servers.into_iter().map(Link::start).collect()))
    }

    /// What they offer now. A turn asks once and keeps it.
    pub fn specs(&self) -> impl Iterator<Item = ToolSpec> {
        self.0.iter().flat_map(Link::specs)
    }

    pub fn states(&self) -> Vec<(String, State)> {
        self.0.iter().map(|link| (link.server.name.clone(), link.state())).collect()
    }

    pub fn knows(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Its owner says that its calls may run beside others.
    pub fn parallel(&self, name: &str) -> bool {
        self.find(name).is_some_and(|link| link.server.parallel)
    }

    /// Waits until all of them have been tried, for this long.
    pub async fn tried(&self, within: Duration) {
        // Whoever is late comes later.
        let _late = tokio::time::timeout(within, join_all(self.0.iter().map(Link::tried))).await;
    }

    pub async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<Value, NotDone> {
        match self.find(name) {
            Some(link) => link.call(name, arguments).await,
            None => Err(NotDone::Surely(format!("No server offers {name}."))),
        }
    }

    fn find(&self, name: &str) -> Option<&Link> {
        self.0.iter().find(|link| link.has(name))
    }
}
