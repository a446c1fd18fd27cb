//! Listening, and stopping without waiting for those who only watch.
//!
//! Owns the connections: there is a limit on their number, and the oldest one that has not authenticated is closed for
//! a new one when it is reached (`petasos_platforms::seats`).

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
use petasos_platforms::seats::{Seat, Seats};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use crate::connection::{Patience, converse};

/// A request that is being answered gets this long after a stop; a commit takes a fraction of it.
const GRACE: Duration = Duration::from_secs(2);
/// Callers at the same time, those who only watch included.
const CONNECTIONS: usize = 512;

/// The wish to stop, as streams without an end see it.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Receiver<bool>);

impl Stop {
    pub(crate) fn is_asked(&self) -> bool {
        *self.0.borrow()
    }

    pub(crate) async fn asked(&mut self) {
        if self.0.wait_for(|asked| *asked).await.is_err() {
            // Whoever could ask is gone without asking.
            std::future::pending::<()>().await;
        }
    }
}

/// As handlers get it; never asked for in tests without a server.
impl<S: Sync> FromRequestParts<S> for Stop {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}

/// Never asked.
impl Default for Stop {
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

/// Serves on a socket file that only the owner may open, until `stop` resolves; the file goes with it.
pub async fn serve_unix(
    path: impl AsRef<Path>,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let path = path.as_ref();
    let listener = bind_unix(path).await?;
    let served = serve(listener, router, stop).await;
    if let Err(error) = std::fs::remove_file(path) {
        debug!(%error, "control socket was already gone");
    }
    served
}

/// A socket file with mode 0600. One that a dead process left is replaced; one that somebody answers on,
/// or that is not a socket, is an error.
pub async fn bind_unix(path: impl AsRef<Path>) -> io::Result<UnixListener> {
    let path = path.as_ref();
    check_free(path).await?;
    // Made under another name, so that it is never there with a wider mode.
    let fresh = beside(path);
    remove_if_there(&fresh)?;
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
    serve_within(listener, router, stop, CONNECTIONS, Patience::default()).await
}

async fn serve_within<L>(
    mut listener: L,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
    connections: usize,
    patience: Patience,
) -> io::Result<()>
where
    L: Listener,
{
    let (ask, asked) = watch::channel(false);
    let stopping = Stop(asked);
    let router = router.layer(Extension(stopping.clone()));
    let mut seats = Seats::new(connections);
    // Dropped with us, and with it every connection.
    let mut open = JoinSet::new();
    let mut stop = pin!(stop);
    loop {
        let stream = tokio::select! {
            (stream, _address) = listener.accept() => stream,
            Some(_left) = open.join_next() => continue,
            () = &mut stop => break,
        };
        let permit = tokio::select! {
            permit = seats.take() => permit,
            () = &mut stop => break,
        };
        let (router, stopping, seat) = (router.clone(), stopping.clone(), Seat::default());
        let its = seat.clone();
        let task = open.spawn(async move {
            converse(stream, router, patience, stopping, its).await;
            drop(permit);
        });
        seats.occupy(task, seat);
    }
    drop(listener);
    ask.send_replace(true);
    let all_left = async { while open.join_next().await.is_some() {} };
    if timeout(GRACE, all_left).await.is_err() {
        debug!("requests were cut off by the stop");
    }
    Ok(())
}

async fn check_free(path: &Path) -> io::Result<()> {
    let Ok(meta) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !meta.file_type().is_socket() {
        let message = format!("{} is there and is not a socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
    }
    match UnixStream::connect(path).await {
        Ok(_) => {
            let message = format!("another gateway answers on {}", path.display());
            Err(io::Error::new(io::ErrorKind::AddrInUse, message))
        }
        Err(error) => match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        },
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("~");
    PathBuf::from(name)
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// A word of a streamed answer leaves at once.
struct NoDelay(TcpListener);

impl Listener for NoDelay {
    type Io = tokio::net::TcpStream;
    type Addr = std::net::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        if let Err(error) = stream.set_nodelay(true) {
            debug!(%error, "no TCP_NODELAY");
        }
        (stream, address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
