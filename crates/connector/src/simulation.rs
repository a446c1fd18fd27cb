//! What a simulation provides instead of the network: a door for sockets, and the call of a wake address.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::config::Config;
use crate::shell::Shell;
use crate::start::{Running, StartError};
use crate::{routes, socket};

/// Calls the wake address of an instance.
pub trait Wake: fmt::Debug + Send + Sync {
    fn wake<'a>(&'a self, url: &'a str) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>;
}

/// The way in for sockets.
#[derive(Debug, Clone)]
pub struct Door(Arc<Shell>);

impl Door {
    pub(crate) const fn new(shell: Arc<Shell>) -> Self {
        Self(shell)
    }

    /// The upgrade of `GET /relay`, and the socket behind it.
    ///
    /// # Errors
    /// The status of a refusal.
    pub async fn open<S>(&self, authorization: Option<&str>, io: S) -> Result<(), u16>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let guest =
            routes::guest(&self.0, authorization).await.map_err(|response| response.status().as_u16())?;
        let shell = self.0.clone();
        petasos_runtime::spawn(async move {
            socket::serve(shell, io, guest.who).await;
            drop((guest.seat, guest.place));
        });
        Ok(())
    }
}

/// Starts a connector that has no listener.
///
/// # Errors
/// As `start`.
pub async fn start(config: Config) -> Result<(Door, Running), StartError> {
    crate::start::start_given(config).await
}
