//! Client of MCP servers (Model Context Protocol), based on the official SDK.
//!
//! Owns one task per server. Results are untrusted and marked so (`tools/output.rs`). An unavailable server
//! does not block a turn: calls to its tools fail at once.

mod config;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod policy;
mod server;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Map, Value};

pub use config::{McpServerConfig, McpTransport};
pub use server::{McpCallError, McpServerState};

use crate::model::request::ToolSpec;
use server::ServerConnection;

pub(crate) const PREFIX: &str = "mcp__";

#[derive(Debug, Clone, Default)]
pub struct McpServers(Arc<Vec<ServerConnection>>);

impl McpServers {
    /// Starts one task per server; requires a runtime.
    pub fn start(servers: Vec<McpServerConfig>) -> Self {
        Self(Arc::new(servers.into_iter().map(ServerConnection::start).collect()))
    }

    /// The tools offered now. A turn calls this once and keeps the result.
    pub fn specs(&self) -> impl Iterator<Item = ToolSpec> {
        self.0.iter().flat_map(ServerConnection::specs)
    }

    pub fn states(&self) -> Vec<(String, McpServerState)> {
        self.0.iter().map(|link| (link.server.name.clone(), link.state())).collect()
    }

    pub fn knows(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether its calls may run concurrently with others.
    pub fn parallel(&self, name: &str) -> bool {
        self.find(name).is_some_and(|link| link.server.parallel)
    }

    /// Waits until the first attempt to connect to each server has ended, up to this time.
    pub async fn wait_first_attempts(&self, within: Duration) {
        // Slow servers appear later.
        let _late =
            tokio::time::timeout(within, join_all(self.0.iter().map(ServerConnection::wait_first_attempts)))
                .await;
    }

    pub async fn call(&self, name: &str, arguments: Map<String, Value>) -> Result<Value, McpCallError> {
        match self.find(name) {
            Some(link) => link.call(name, arguments).await,
            None => Err(McpCallError::Failed(format!("No server offers {name}."))),
        }
    }

    fn find(&self, name: &str) -> Option<&ServerConnection> {
        self.0.iter().find(|link| link.has(name))
    }
}
