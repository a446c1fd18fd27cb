//! Seams for a simulation: sockets without a listener, and wake calls without a network.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Config;
use crate::context::ConnectorContext;
use crate::http::routes;
use crate::socket;
use crate::start::{RunningConnector, StartError};

/// Calls the wake address of an instance.
pub trait Wake: fmt::Debug + Send + Sync {
    fn wake<'a>(&'a self, url: &'a str) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// Accepts sockets in place of the listener.
#[derive(Debug, Clone)]
pub struct Door(Arc<ConnectorContext>);

impl Door {
    pub(crate) const fn new(connector: Arc<ConnectorContext>) -> Self {
        Self(connector)
    }

    /// Upgrades `GET /relay` and serves the socket.
    ///
    /// # Errors
    /// The HTTP status of a refusal.
    pub async fn open<S>(&self, authorization: Option<&str>, io: S) -> Result<(), u16>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let accepted = routes::accept_socket(&self.0, authorization)
            .await
            .map_err(|response| response.status().as_u16())?;
        let connector = self.0.clone();
        petasos_runtime::spawn(async move {
            socket::serve(connector, io, accepted.gateway).await;
            drop((accepted.slot, accepted.permit));
        });
        Ok(())
    }
}

/// Starts a connector without a listener.
///
/// # Errors
/// As `start`.
pub async fn start(config: Config) -> Result<(Door, RunningConnector), StartError> {
    crate::start::start_without_listener(config).await
}
