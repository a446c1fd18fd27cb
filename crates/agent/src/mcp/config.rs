//! Configuration of MCP servers.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_core::Secret;

#[derive(Debug, Clone)]
pub struct McpServerConfig {
    pub name: String,
    pub transport: McpTransport,
    /// Allowed tools; empty: all.
    pub include: Vec<String>,
    pub exclude: Vec<String>,
    /// Its calls may run concurrently with others.
    pub parallel: bool,
    pub connect_within: Duration,
    pub call_within: Duration,
}

#[derive(Debug, Clone)]
pub enum McpTransport {
    /// A program that we start and talk to over its standard input and output.
    Command {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, Secret>,
    },
    Http {
        url: String,
        headers: BTreeMap<String, Secret>,
    },
}

impl McpServerConfig {
    pub fn new(name: &str, transport: McpTransport) -> Self {
        Self {
            name: name.to_owned(),
            transport,
            include: vec![],
            exclude: vec![],
            parallel: false,
            connect_within: Duration::from_secs(60),
            call_within: Duration::from_secs(300),
        }
    }

    /// Masks the server's URL and secrets in a message.
    pub(super) fn redact(&self, text: &str) -> String {
        let (url, secrets) = match &self.transport {
            McpTransport::Command { env, .. } => (None, env),
            McpTransport::Http { url, headers } => (Some(url.as_str()), headers),
        };
        let hidden = url.into_iter().chain(secrets.values().map(Secret::expose));
        hidden.filter(|it| !it.is_empty()).fold(text.to_owned(), |text, it| text.replace(it, "[…]"))
    }

    pub(super) fn allows(&self, tool: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == tool);
        (self.include.is_empty() || named(&self.include)) && !named(&self.exclude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redacts_url_and_secrets_of_a_server() {
        let url = "https://mcp.example/sse?api_key=s3cret".to_owned();
        let headers = [("Authorization".to_owned(), Secret::new("Bearer t0ken"))].into();
        let server = McpServerConfig::new("mail", McpTransport::Http { url: url.clone(), headers });
        let said = server.redact(&format!("mail failed: connecting to ({url}) with Bearer t0ken"));
        assert_eq!(said, "mail failed: connecting to ([…]) with […]");
    }
}
