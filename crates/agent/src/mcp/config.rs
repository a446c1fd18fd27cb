//! Configuration of MCP servers.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_core::{Secret, credentials};

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

    /// Masks the server's URL and secrets in a message. A URL may be a credential as a whole, so all of it is
    /// masked, as configured and as the HTTP client writes it.
    pub(super) fn redact(&self, text: &str) -> String {
        let (url, secrets) = match &self.transport {
            McpTransport::Command { env, .. } => (None, env),
            McpTransport::Http { url, headers } => (Some(url.as_str()), headers),
        };
        let normal = url.and_then(|url| reqwest::Url::parse(url).ok()).map(String::from);
        let parts = url.into_iter().flat_map(credentials::url_credentials);
        let hidden = url.into_iter().chain(normal.as_deref()).chain(parts);
        let hidden = hidden.chain(secrets.values().map(Secret::expose));
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

    #[test]
    fn redacts_url_as_written_by_the_http_client() {
        let transport = |url: &str| McpTransport::Http { url: url.to_owned(), headers: BTreeMap::new() };
        for (url, written) in [
            ("https://mcp.example?api_key=s3cret", "https://mcp.example/?api_key=s3cret"),
            ("HTTPS://MCP.example:443/a b?k=s3cret", "https://mcp.example/a%20b?k=s3cret"),
            ("https://me:s3cret@mcp.example/", "GET https://mcp.example/ as me:s3cret"),
        ] {
            let said = McpServerConfig::new("mail", transport(url)).redact(written);
            assert!(!said.contains("s3cret"), "{said}");
        }
    }
}
