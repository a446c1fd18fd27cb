//! One connection of a program: which sandbox it belongs to, and which protocol it speaks.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::slots::{AuthenticationMark, SessionSlot};
use super::{ClientStream, Entrance, ServerState, http, socks, socks_session};
use crate::credentials::{ProxyCredential, SandboxId};
use crate::dial::dial;
use crate::policy::host_port::HostPort;
use crate::preamble::{MAX_PREAMBLE_BYTES, Preamble};
use crate::refusal::Refusal;
use crate::traffic::{IdleClock, Metered, TrafficLog};

/// Buffer of each direction of a tunnel.
const TUNNEL_BUFFER: usize = 16 * 1024;

/// The stream to a program.
pub(super) type ProgramStream = BufReader<Metered<Box<dyn ClientStream>>>;
/// The stream to a server.
pub(super) type ServerStream = Metered<TcpStream>;

#[derive(Debug)]
pub(super) struct ClientConnection {
    pub(super) server: Arc<ServerState>,
    entrance: Entrance,
    idle: Arc<IdleClock>,
    mark: AuthenticationMark,
    identity: Mutex<Option<Identity>>,
    /// Connections to servers of forwarded requests; closed with this connection.
    pub(super) drivers: Mutex<JoinSet<()>>,
}

#[derive(Debug)]
struct Identity {
    sandbox: SandboxId,
    _slot: SessionSlot,
}

enum Protocol {
    Http,
    Socks,
    /// A tunnel to the destination of the preamble.
    Fixed(HostPort),
}

impl ClientConnection {
    pub(super) fn new(server: Arc<ServerState>, entrance: Entrance, mark: AuthenticationMark) -> Arc<Self> {
        let idle = IdleClock::start();
        Arc::new(Self { server, entrance, idle, mark, identity: Mutex::default(), drivers: Mutex::default() })
    }

    pub(super) async fn serve(self: Arc<Self>, stream: Box<dyn ClientStream>) {
        let stream = BufReader::new(Metered::client(stream, self.idle.clone()));
        petasos_runtime::select! {
            () = self.clone().converse(stream) => {}
            () = self.idle.expired(self.server.limits.idle) => {}
        }
    }

    async fn converse(self: Arc<Self>, mut stream: ProgramStream) {
        match timeout(self.server.limits.handshake, self.open_protocol(&mut stream)).await {
            Ok(Some(Protocol::Http)) => http::serve(self, stream).await,
            Ok(Some(Protocol::Socks)) => socks_session::serve(&self, stream).await,
            Ok(Some(Protocol::Fixed(to))) => self.serve_fixed(stream, &to).await,
            // No protocol in which to answer.
            Ok(None) | Err(_) => {}
        }
    }

    /// Reads the preamble of a bridge, and the first byte of the protocol.
    async fn open_protocol(&self, stream: &mut ProgramStream) -> Option<Protocol> {
        if self.entrance == Entrance::Bridge {
            let preamble = read_preamble(stream).await?;
            if let Err(refusal) = self.authenticate(Some(&preamble.credential)) {
                tracing::warn!(reason = refusal.as_str(), "connection of a bridge refused");
                return None;
            }
            if let Some(to) = preamble.to {
                return Some(Protocol::Fixed(to));
            }
        }
        let first = *stream.fill_buf().await.ok()?.first()?;
        Some(if first == socks::VERSION { Protocol::Socks } else { Protocol::Http })
    }

    async fn serve_fixed(&self, mut stream: ProgramStream, to: &HostPort) {
        let Ok(sandbox) = self.authenticate(None) else { return };
        if let Some(Ok(server)) = self.open_while_connected(&mut stream, &sandbox, to).await {
            tunnel(&mut stream, server).await;
        }
    }

    /// The sandbox of this connection, which never changes. A bridge has named it; otherwise the credential must.
    pub(super) fn authenticate(&self, credential: Option<&ProxyCredential>) -> Result<SandboxId, Refusal> {
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        if self.entrance == Entrance::Bridge
            && let Some(known) = &*identity
        {
            return Ok(known.sandbox.clone());
        }
        let verify = |it: &ProxyCredential| self.server.credentials.verify(&it.name, it.token.expose());
        let claimed = credential.and_then(verify).ok_or(Refusal::Unauthenticated)?;
        match &*identity {
            Some(known) if known.sandbox == claimed => Ok(claimed),
            Some(_) => Err(Refusal::Unauthenticated),
            None => {
                let slot = self.server.sessions.acquire(claimed.session());
                let slot = slot.ok_or(Refusal::TooManyConnections)?;
                self.mark.set();
                *identity = Some(Identity { sandbox: claimed.clone(), _slot: slot });
                Ok(claimed)
            }
        }
    }

    /// Authorises the destination and connects to it.
    pub(super) async fn open(&self, sandbox: &SandboxId, to: &HostPort) -> Result<ServerStream, Refusal> {
        let opened = self.open_unlogged(sandbox, to).await;
        if let Err(refusal) = &opened {
            let reason = refusal.as_str();
            tracing::info!(session = sandbox.session(), host = %to.host, port = to.port, reason, "network access refused");
        }
        opened
    }

    async fn open_unlogged(&self, sandbox: &SandboxId, to: &HostPort) -> Result<ServerStream, Refusal> {
        // A person may take longer to answer than an idle connection may live.
        let _pause = self.idle.pause();
        let server = &self.server;
        let scope = server.authoriser.authorise(sandbox, to).await?;
        let policy = &server.authoriser.policy;
        let stream = dial(server.network.as_ref(), policy, server.dial_timeouts(), to, scope).await?;
        Ok(Metered::server(stream, self.idle.clone(), TrafficLog::new(sandbox, to)))
    }

    /// `open`, given up when the program closes its end: `None`.
    pub(super) async fn open_while_connected(
        &self,
        stream: &mut ProgramStream,
        sandbox: &SandboxId,
        to: &HostPort,
    ) -> Option<Result<ServerStream, Refusal>> {
        petasos_runtime::select! {
            opened = self.open(sandbox, to) => Some(opened),
            () = closed(stream) => None,
        }
    }
}

/// Resolves when the program closes its end before it has sent anything more.
async fn closed(stream: &mut ProgramStream) {
    if stream.fill_buf().await.is_ok_and(|bytes| !bytes.is_empty()) {
        std::future::pending().await
    }
}

async fn read_preamble(stream: &mut ProgramStream) -> Option<Preamble> {
    let mut line = Vec::new();
    stream.take(MAX_PREAMBLE_BYTES).read_until(b'\n', &mut line).await.ok()?;
    Preamble::parse(std::str::from_utf8(&line).ok()?)
}

/// Copies until both ends are closed. The end of a tunnel needs no explanation, so errors are dropped.
pub(super) async fn tunnel<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin>(
    program: &mut S,
    mut server: ServerStream,
) {
    let _ended =
        tokio::io::copy_bidirectional_with_sizes(program, &mut server, TUNNEL_BUFFER, TUNNEL_BUFFER).await;
}
