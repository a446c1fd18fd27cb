//! Which servers there are, and how they are reached.

use std::collections::BTreeMap;
use std::time::Duration;

use petasos_core::Secret;

/// One server, as its owner wants it.
#[derive(Debug, Clone)]
pub struct Server {
    pub name: String,
    pub way: Way,
    /// Only these of its tools; empty: all.
    pub include: Vec<String>,
    /// None of these.
    pub exclude: Vec<String>,
    /// Its calls may run beside others.
    pub parallel: bool,
    pub connect_within: Duration,
    pub call_within: Duration,
}

#[derive(Debug, Clone)]
pub enum Way {
    /// A program that we start, which speaks on its standard input and output.
    Command { command: String, args: Vec<String>, env: BTreeMap<String, Secret> },
    /// A server that is there.
    Http { url: String, headers: BTreeMap<String, Secret> },
}

impl Server {
    pub fn new(name: &str, way: Way) -> Self {
        Self {
            name: name.to_owned(),
            way,
            include: vec![],
            exclude: vec![],
            parallel: false,
            connect_within: Duration::from_secs(60),
            call_within: Duration::from_secs(300),
        }
    }

    /// What is said about a server, without what only its owner should read: addresses can hold keys.
    pub(super) fn without_secrets(&self, text: &str) -> String {
        let (url, secrets) = match &self.way {
            Way::Command { env, .. } => (None, env),
            Way::Http { url, headers } => (Some(url.as_str()), headers),
        };
        let hidden = url.into_iter().chain(secrets.values().map(Secret::expose));
        hidden.filter(|it| !it.is_empty()).fold(text.to_owned(), |text, it| text.replace(it, "[…]"))
    }

    pub(super) fn wants(&self, tool: &str) -> bool {
        let named = |list: &[String]| list.iter().any(|name| name == tool);
        (self.include.is_empty() || named(&self.include)) && !named(&self.exclude)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_about_a_server_holds_none_of_its_secrets() {
        let url = "https://mcp.example/sse?api_key=s3cret".to_owned();
        let headers = [("Authorization".to_owned(), Secret::new("Bearer t0ken"))].into();
        let server = Server::new("mail", Way::Http { url: url.clone(), headers });
        let said = server.without_secrets(&format!("mail failed: connecting to ({url}) with Bearer t0ken"));
        assert_eq!(said, "mail failed: connecting to ([…]) with […]");
    }
}
