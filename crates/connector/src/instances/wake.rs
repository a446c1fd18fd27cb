//! Calls the wake address of an instance: one GET without credentials. The address comes from the gateway, so it must
//! use HTTPS and lead to a public address, unless the owner exempts its host.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use petasos_core::{InstanceId, net};
use petasos_platforms::download;
use reqwest::{Client, Url};

use super::queue::Queue;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of the response that are read, so that the peer can finish.
const MAX_RESPONSE: usize = 1024;

#[derive(Debug)]
pub(crate) struct WakeClient {
    /// Exempt: `host` or `host:port`.
    hosts: Vec<String>,
    /// Lazy, because it loads the system's certificates.
    public_client: OnceLock<Client>,
    #[cfg(feature = "simulation")]
    simulated: Option<Arc<dyn crate::simulation::Wake>>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum WakeError {
    #[error("it is not a valid URL")]
    Malformed,
    #[error("it does not use https")]
    NotEncrypted,
    #[error("it leads to a {0}")]
    Blocked(net::BlockedAddress),
    #[error("{0}")]
    Failed(String),
}

impl WakeClient {
    pub(crate) fn new(hosts: Vec<String>) -> Self {
        Self {
            hosts,
            public_client: OnceLock::new(),
            #[cfg(feature = "simulation")]
            simulated: None,
        }
    }

    #[cfg(feature = "simulation")]
    pub(crate) fn with_simulated(self, simulated: Option<Arc<dyn crate::simulation::Wake>>) -> Self {
        Self { simulated, ..self }
    }

    async fn call(&self, url: &str) -> Result<(), WakeError> {
        #[cfg(feature = "simulation")]
        if let Some(simulated) = &self.simulated {
            simulated.wake(url).await;
            return Ok(());
        }
        let url = Url::parse(url).map_err(|_| WakeError::Malformed)?;
        let client = self.client_for(&url)?;
        let failed = |error: reqwest::Error| WakeError::Failed(error.without_url().to_string());
        let mut response = client.get(url).timeout(TIMEOUT).send().await.map_err(failed)?;
        let mut read = 0;
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            read += chunk.len();
            if read >= MAX_RESPONSE {
                break;
            }
        }
        Ok(())
    }

    /// Selects the client for an address, if calling it is allowed.
    fn client_for(&self, url: &Url) -> Result<Client, WakeError> {
        let host = url.host_str().ok_or(WakeError::Malformed)?;
        let exempt = |one: &String| {
            one == host || url.port_or_known_default().is_some_and(|port| *one == format!("{host}:{port}"))
        };
        let failed = |error: reqwest::Error| WakeError::Failed(error.to_string());
        if self.hosts.iter().any(exempt) && matches!(url.scheme(), "http" | "https") {
            return petasos_platforms::http::client(url, None).map_err(failed);
        }
        if url.scheme() != "https" {
            return Err(WakeError::NotEncrypted);
        }
        net::check_host(host).map_err(WakeError::Blocked)?;
        if let Some(public_client) = self.public_client.get() {
            return Ok(public_client.clone());
        }
        let made = download::public_only_client().map_err(failed)?;
        Ok(self.public_client.get_or_init(|| made).clone())
    }
}

pub(crate) async fn wake(queue: Queue, client: Arc<WakeClient>, instance: InstanceId) {
    let url = match queue.wake_url(&instance).await {
        Ok(url) => url,
        Err(error) => {
            tracing::warn!(%instance, %error, "cannot read the wake address");
            return;
        }
    };
    let Some(url) = url else { return };
    match client.call(&url).await {
        Ok(()) => tracing::info!(%instance, "instance woken"),
        Err(error) => tracing::warn!(%instance, %error, "wake call failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_only_public_https_unless_exempted() {
        let client = WakeClient::new(vec!["127.0.0.1:8080".into(), "wake.lan".into()]);
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
            assert_eq!(client.client_for(&url).is_ok(), may, "{url}");
        }
    }
}
