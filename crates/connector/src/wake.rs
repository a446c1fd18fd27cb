//! Calls the address that wakes an instance: one GET, with nothing of ours in it, and nothing is learnt from its answer.
//!
//! The address comes from whoever runs the gateway, so it may only lead to the open internet, encrypted, and to the very
//! address that was judged; no redirect is followed. The owner may name hosts for which that does not hold.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use petasos_core::net;
use petasos_platforms::download;
use reqwest::{Client, Url};

use crate::shell::Shell;

const WITHIN: Duration = Duration::from_secs(5);
/// Of the answer nothing is used; so much is read that the other end can finish.
const READ: usize = 1024;

#[derive(Debug)]
pub(crate) struct Waker {
    /// Named by the owner: `host` or `host:port`.
    hosts: Vec<String>,
    /// Made when first needed: it reads the system's certificates.
    open: OnceLock<Client>,
    #[cfg(feature = "simulation")]
    given: Option<Arc<dyn crate::simulation::Wake>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCalled {
    #[error("it is no address")]
    Malformed,
    #[error("it is not encrypted")]
    Plain,
    #[error("it leads to a {0}")]
    Barred(net::Refused),
    #[error("{0}")]
    Failed(String),
}

impl Waker {
    pub(crate) fn new(hosts: Vec<String>) -> Self {
        Self {
            hosts,
            open: OnceLock::new(),
            #[cfg(feature = "simulation")]
            given: None,
        }
    }

    /// One that calls what a simulation gives, if it gives anything.
    #[cfg(feature = "simulation")]
    pub(crate) fn with(self, given: Option<Arc<dyn crate::simulation::Wake>>) -> Self {
        Self { given, ..self }
    }

    async fn call(&self, url: &str) -> Result<(), NotCalled> {
        #[cfg(feature = "simulation")]
        if let Some(given) = &self.given {
            given.wake(url).await;
            return Ok(());
        }
        let url = Url::parse(url).map_err(|_| NotCalled::Malformed)?;
        let client = self.client_for(&url)?;
        let failed = |error: reqwest::Error| NotCalled::Failed(error.without_url().to_string());
        let mut response = client.get(url).timeout(WITHIN).send().await.map_err(failed)?;
        let mut read = 0;
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            read += chunk.len();
            if read >= READ {
                break;
            }
        }
        Ok(())
    }

    /// The client for this address, if it may be called.
    fn client_for(&self, url: &Url) -> Result<Client, NotCalled> {
        let host = url.host_str().ok_or(NotCalled::Malformed)?;
        let named = |one: &String| {
            one == host || url.port_or_known_default().is_some_and(|port| *one == format!("{host}:{port}"))
        };
        let failed = |error: reqwest::Error| NotCalled::Failed(error.to_string());
        if self.hosts.iter().any(named) && matches!(url.scheme(), "http" | "https") {
            return petasos_platforms::http::client(url, None).map_err(failed);
        }
        if url.scheme() != "https" {
            return Err(NotCalled::Plain);
        }
        net::host(host).map_err(NotCalled::Barred)?;
        if let Some(open) = self.open.get() {
            return Ok(open.clone());
        }
        let made = download::outward().map_err(failed)?;
        Ok(self.open.get_or_init(|| made).clone())
    }
}

/// Whether it worked shows in that somebody comes.
pub(crate) async fn poke(shell: Arc<Shell>, instance: String) {
    let of = instance.clone();
    let url = match shell.db.read(move |reader| reader.instance(&of)).await {
        Ok(found) => found.and_then(|instance| instance.wake_url),
        Err(error) => {
            tracing::warn!(instance, %error, "its wake address cannot be read");
            return;
        }
    };
    let Some(url) = url else { return };
    match shell.waker.call(&url).await {
        Ok(()) => tracing::info!(instance, "woken"),
        Err(error) => tracing::warn!(instance, %error, "its wake address was not called"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_open_internet_is_called_unless_the_owner_says_so() {
        let waker = Waker::new(vec!["127.0.0.1:8080".into(), "wake.lan".into()]);
        for (url, may) in [
            ("https://app.example.com/wake?k=1", true),
            ("http://app.example.com/wake", false),
            ("https://127.0.0.1/", false),
            ("https://169.254.169.254/latest/meta-data", false),
            ("https://10.1.2.3/", false),
            ("https://[::1]/", false),
            ("https://2130706433/", false),
            ("https://localhost/", false),
            ("https://metadata.google.internal/", false),
            ("ftp://app.example.com/", false),
            ("http://127.0.0.1:8080/wake", true),
            ("http://127.0.0.1:8081/wake", false),
            ("http://wake.lan/x", true),
            ("file:///etc/passwd", false),
        ] {
            let url = Url::parse(url).expect("an address");
            assert_eq!(waker.client_for(&url).is_ok(), may, "{url}");
        }
    }
}
