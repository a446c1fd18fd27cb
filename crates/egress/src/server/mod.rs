//! The egress proxy: HTTP CONNECT, forwarding of plain HTTP, and SOCKS5.
//!
//! Every connection belongs to one sandbox, which it authenticates as: through the preamble of a bridge on a Unix socket, or with
//! the credentials of the proxy's URL on a TCP listener. Connections are independent tasks; dropping the future of a listener
//! closes all of its connections.

mod authentication;
mod connection;
mod forward;
mod http;
mod slots;
mod socks;
mod socks_session;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

use self::connection::ClientConnection;
use self::slots::{ConnectionTable, SessionSlots};
use crate::approver::Approver;
use crate::authorisation::Authoriser;
use crate::credentials::{CredentialIssuer, KEY_BYTES};
use crate::dial::DialTimeouts;
use crate::network::Network;
use crate::policy::NetworkPolicy;

/// Wait after a failure to accept, such as too many open files.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);

#[derive(Debug, Clone)]
pub struct EgressLimits {
    pub connections: usize,
    pub connections_per_session: usize,
    /// Time for a client to send its preamble, its request head, or a SOCKS message.
    pub handshake: Duration,
    /// A connection without traffic is closed after this time.
    pub idle: Duration,
    pub resolve: Duration,
    /// For each address of a host.
    pub connect: Duration,
    /// A question that is not answered in this time is a refusal.
    pub question: Duration,
}

impl Default for EgressLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_session: 256,
            handshake: Duration::from_secs(15),
            idle: Duration::from_secs(600),
            resolve: Duration::from_secs(10),
            connect: Duration::from_secs(10),
            question: Duration::from_secs(60),
        }
    }
}

#[derive(Debug)]
pub struct EgressConfig {
    pub policy: NetworkPolicy,
    pub limits: EgressLimits,
    /// Signs the credentials; secret, and the same after a restart.
    pub key: [u8; KEY_BYTES],
    pub network: Arc<dyn Network>,
}

/// The proxy. Clones share connections, questions and limits.
#[derive(Debug, Clone)]
pub struct EgressServer(Arc<ServerState>);

#[derive(Debug)]
struct ServerState {
    authoriser: Arc<Authoriser>,
    credentials: CredentialIssuer,
    network: Arc<dyn Network>,
    limits: EgressLimits,
    sessions: Arc<SessionSlots>,
    free: Arc<Semaphore>,
}

/// How a connection says which sandbox it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entrance {
    /// The preamble of a bridge.
    Bridge,
    /// Credentials in the proxy protocol.
    Direct,
}

/// The stream of a client, of either kind of listener.
trait ClientStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ClientStream for S {}

#[derive(Debug)]
enum ProxyListener {
    Bridges(UnixListener),
    Direct(TcpListener),
}

impl ProxyListener {
    async fn accept(&self) -> io::Result<(Box<dyn ClientStream>, Entrance)> {
        match self {
            Self::Bridges(listener) => Ok((Box::new(listener.accept().await?.0), Entrance::Bridge)),
            Self::Direct(listener) => Ok((Box::new(listener.accept().await?.0), Entrance::Direct)),
        }
    }
}

impl EgressServer {
    pub fn new(config: EgressConfig, approver: Arc<dyn Approver>) -> Self {
        let EgressConfig { policy, limits, key, network } = config;
        Self(Arc::new(ServerState {
            authoriser: Arc::new(Authoriser::new(policy, approver, limits.question)),
            credentials: CredentialIssuer::new(&key),
            network,
            sessions: SessionSlots::new(limits.connections_per_session),
            free: Arc::new(Semaphore::new(limits.connections)),
            limits,
        }))
    }

    /// Serves bridges until the future is dropped.
    pub async fn serve_bridges(&self, listener: UnixListener) {
        self.serve(ProxyListener::Bridges(listener)).await;
    }

    /// Serves programs that connect directly, until the future is dropped. Errors unless the listener is on a loopback address,
    /// because the proxy is for this machine only.
    pub async fn serve_direct(&self, listener: TcpListener) -> io::Result<()> {
        if !listener.local_addr()?.ip().is_loopback() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the egress proxy listens on loopback only",
            ));
        }
        self.serve(ProxyListener::Direct(listener)).await;
        Ok(())
    }

    async fn serve(&self, listener: ProxyListener) {
        let mut table = ConnectionTable::new(self.0.free.clone());
        loop {
            let (stream, entrance) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection of a command");
                    petasos_runtime::clock::sleep(ACCEPT_RETRY).await;
                    continue;
                }
            };
            let Some(slot) = table.acquire().await else { return };
            let connection = ClientConnection::new(self.0.clone(), entrance, slot.authenticated.clone());
            table.spawn(slot, connection.serve(stream));
        }
    }
}

impl ServerState {
    fn dial_timeouts(&self) -> DialTimeouts {
        DialTimeouts { resolve: self.limits.resolve, connect: self.limits.connect }
    }
}
