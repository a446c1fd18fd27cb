//! Seams for a simulation: sockets without a listener, and wake calls without a network.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Config;
use crate::http::routes::HttpServer;
use crate::socket;
use crate::start::{RunningConnector, StartError};

/// Calls the wake address of an instance.
pub trait Wake: fmt::Debug + Send + Sync {
    fn wake<'a>(&'a self, url: &'a str) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// Accepts sockets in place of the listener.
#[derive(Debug, Clone)]
pub struct Door(Arc<HttpServer>);

impl Door {
    pub(crate) const fn new(server: Arc<HttpServer>) -> Self {
        Self(server)
    }

    /// Upgrades `GET /relay` and serves the socket.
    ///
    /// # Errors
    /// The HTTP status of a refusal.
    pub async fn open<S>(&self, authorization: Option<&str>, io: S) -> Result<(), u16>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let accepted =
            self.0.accept_socket(authorization).await.map_err(|response| response.status().as_u16())?;
        let sockets = self.0.sockets.clone();
        petasos_runtime::spawn(async move {
            socket::serve(sockets, io, accepted.gateway).await;
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
