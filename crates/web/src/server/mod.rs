//! TCP and unix socket servers with bounded connections and graceful shutdown.
//!
//! Owns the connections. At the limit, the oldest connection that has not authenticated is closed for a new one
//! (`petasos_platforms::listener`). Shutdown ends open streams and waits for requests in progress at most
//! [`SHUTDOWN_GRACE`].

pub(crate) mod connection;

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::serve::Listener;
use axum::{Extension, Router};
use petasos_platforms::listener::{ConnectionSlot, ConnectionSlots};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use connection::{ConnectionTimeouts, serve_connection};

/// The time that requests in progress get at shutdown; a commit takes a fraction of it.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
const MAX_CONNECTIONS: usize = 512;

/// Signals shutdown to endless streams.
#[derive(Debug, Clone)]
pub(crate) struct StopSignal(watch::Receiver<bool>);

impl StopSignal {
    pub(crate) fn is_stopping(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn wait(&mut self) {
        if self.0.wait_for(|stopping| *stopping).await.is_err() {
            // The sender is gone: the server will never stop.
            std::future::pending::<()>().await;
        }
    }
}

impl<S: Sync> FromRequestParts<S> for StopSignal {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// A signal that never fires.
impl Default for StopSignal {
    fn default() -> Self {
        Self(watch::channel(false).1)
    }
}

/// Serves until `stop` resolves.
pub async fn serve_tcp(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    serve(NoDelay(listener), router, stop).await
}

/// Serves on a socket file with mode 0600 until `stop` resolves, then removes the file.
pub async fn serve_unix(
    path: impl AsRef<Path>,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let path = path.as_ref();
    let listener = bind_unix(path).await?;
    let served = serve(listener, router, stop).await;
    if let Err(error) = std::fs::remove_file(path) {
        debug!(%error, "control socket was already removed");
    }
    served
}

/// Creates a socket file with mode 0600. Replaces a stale socket; fails if another process listens on it or the file
/// is not a socket.
async fn bind_unix(path: impl AsRef<Path>) -> io::Result<UnixListener> {
    let path = path.as_ref();
    ensure_socket_free(path).await?;
    // Created under another name, so that it never exists at `path` with a wider mode.
    let fresh = temporary_path(path);
    remove_if_exists(&fresh)?;
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, path)?;
    Ok(listener)
}

async fn serve<L>(
    listener: L,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()>
where
    L: Listener,
{
    serve_with_limits(listener, router, stop, MAX_CONNECTIONS, ConnectionTimeouts::default()).await
}

async fn serve_with_limits<L>(
    mut listener: L,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
    connections: usize,
    timeouts: ConnectionTimeouts,
) -> io::Result<()>
where
    L: Listener,
{
    let (stop_sender, stop_receiver) = watch::channel(false);
    let stopping = StopSignal(stop_receiver);
    let router = router.layer(Extension(stopping.clone()));
    let mut slots = ConnectionSlots::new(connections);
    // Dropping the set aborts every connection.
    let mut open = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let stream = tokio::select! {
            (stream, _address) = listener.accept() => stream,
            Some(_closed) = open.join_next() => continue,
            () = &mut stop => break,
        };
        let permit = tokio::select! {
            permit = slots.acquire() => permit,
            () = &mut stop => break,
        };
        let slot = ConnectionSlot::default();
        let connection = serve_connection(stream, router.clone(), timeouts, stopping.clone(), slot.clone());
        let task = petasos_runtime::spawn_into(&mut open, async move {
            connection.await;
            drop(permit);
        });
        slots.register(task, slot);
    }
    drop(listener);
    stop_sender.send_replace(true);
    let all_closed = async { while open.join_next().await.is_some() {} };
    if timeout(SHUTDOWN_GRACE, all_closed).await.is_err() {
        debug!("shutdown aborted requests in progress");
    }
    Ok(())
}

async fn ensure_socket_free(path: &Path) -> io::Result<()> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.file_type().is_socket() {
        let message = format!("{} exists and is not a socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match UnixStream::connect(path).await {
        Ok(_) => {
            let message = format!("another gateway is listening on {}", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        },
    }
}

fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("~");
    PathBuf::from(name)
}

fn remove_if_exists(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Sends small chunks of a streamed answer without delay.
struct NoDelay(TcpListener);

impl Listener for NoDelay {
    type Io = tokio::net::TcpStream;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "cannot set TCP_NODELAY");
        }
        (stream, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

#[cfg(test)]
mod tests;
