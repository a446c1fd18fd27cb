//! The bridge: listens on the loopback interface of a sandbox's network namespace and passes every connection to the gateway's Unix
//! socket, behind a preamble that names the sandbox. A process of its own ([`run`]) or a thread of the launcher ([`spawn_thread`]).
//!
//! It runs in the network namespace of the sandbox but outside its other restrictions, because programs in the sandbox can reach no
//! Unix socket. It holds no connection to an absent gateway: each connection of a program waits for the gateway for a few seconds.

pub mod config;

use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use petasos_runtime::clock;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::config::BridgeConfig;
use crate::policy::host_port::HostPort;
use crate::preamble::Preamble;

/// More connections wait until one ends.
const MAX_CONNECTIONS: usize = 512;
/// How long a connection waits for a gateway that restarts.
pub const PATIENCE: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(100);
/// Time to read what a program has sent before its connection is closed, so that the close does not discard the answer.
const LINGER: Duration = Duration::from_secs(1);
const BUFFER: usize = 16 * 1024;

const UNAVAILABLE: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: \
close\r\n\r\npetasos: the gateway, through which commands reach the network, is not running. Try again when it is back.\n";
/// SOCKS5: no acceptable method.
const SOCKS_UNAVAILABLE: [u8; 2] = [5, 0xff];

/// Listening sockets of a bridge.
#[derive(Debug)]
pub struct Bridge {
    listeners: Vec<(TcpListener, Arc<Passage>)>,
    connections: Arc<Semaphore>,
}

/// Where the connections of one listener go.
#[derive(Debug)]
struct Passage {
    socket: PathBuf,
    preamble: String,
    patience: Duration,
}

impl Bridge {
    /// Binds the ports on the loopback interface of the current network namespace.
    pub async fn bind(config: &BridgeConfig, patience: Duration) -> io::Result<Self> {
        let proxy = (config.port, None);
        let service = |port: &u16| (*port, HostPort::new("127.0.0.1", *port).ok());
        let mut listeners = Vec::new();
        for (port, to) in std::iter::once(proxy).chain(config.services.iter().map(service)) {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
            let preamble = Preamble { credential: config.credential.clone(), to }.line();
            listeners
                .push((listener, Arc::new(Passage { socket: config.socket.clone(), preamble, patience })));
        }
        Ok(Self { listeners, connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)) })
    }

    /// The port of the proxy.
    pub fn port(&self) -> io::Result<u16> {
        let (proxy, _) = self.listeners.first().ok_or(io::ErrorKind::NotConnected)?;
        Ok(proxy.local_addr()?.port())
    }

    /// Serves until the future is dropped, which closes all connections.
    pub async fn serve(self) {
        let Self { listeners, connections } = self;
        let mut all = JoinSet::new();
        for (listener, passage) in listeners {
            petasos_runtime::spawn_into(&mut all, accept(listener, passage, connections.clone()));
        }
        while all.join_next().await.is_some() {}
    }
}

/// The program `sandbox-bridge`: reads its configuration from `input`, writes a line to `output` when it listens, and serves until
/// `input` ends. The launcher holds the other end of `input` as long as the sandbox lives.
pub async fn run(
    mut input: impl AsyncRead + Unpin,
    mut output: impl AsyncWrite + Unpin,
    patience: Duration,
) -> io::Result<()> {
    let config = config::read(&mut input).await?;
    let bridge = Bridge::bind(&config, patience).await?;
    output.write_all(format!("listening on {}\n", bridge.port()?).as_bytes()).await?;
    output.flush().await?;
    petasos_runtime::select! {
        () = bridge.serve() => Ok(()),
        ended = until_end(&mut input) => ended,
    }
}

/// Serves on a thread of its own until the process ends. When this returns, the ports are bound: in the network namespace of the
/// calling thread.
#[expect(clippy::disallowed_methods, reason = "a launcher has no other thread")]
pub fn spawn_thread(config: &BridgeConfig, patience: Duration) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    let bridge = runtime.block_on(Bridge::bind(config, patience))?;
    std::thread::Builder::new().name("bridge".into()).spawn(move || runtime.block_on(bridge.serve()))?;
    Ok(())
}

async fn until_end(input: &mut (impl AsyncRead + Unpin)) -> io::Result<()> {
    tokio::io::copy(input, &mut tokio::io::sink()).await.map(drop)
}

async fn accept(listener: TcpListener, passage: Arc<Passage>, connections: Arc<Semaphore>) {
    let mut running = JoinSet::new();
    loop {
        while running.try_join_next().is_some() {}
        let Ok(permit) = connections.clone().acquire_owned().await else { return };
        let Ok((program, _)) = listener.accept().await else {
            clock::sleep(RETRY).await;
            continue;
        };
        let passage = passage.clone();
        petasos_runtime::spawn_into(&mut running, async move {
            let _permit = permit;
            passage.pass(program).await;
        });
    }
}

impl Passage {
    async fn pass(&self, mut program: TcpStream) {
        // Small messages must not wait for the acknowledgement of earlier ones; a failure only makes them slower.
        let _ = program.set_nodelay(true);
        let Ok(mut gateway) = self.connect().await else { return refuse(program).await };
        // An error ends both connections, which is all that the program can see.
        let _ended =
            tokio::io::copy_bidirectional_with_sizes(&mut program, &mut gateway, BUFFER, BUFFER).await;
    }

    /// Connects to the gateway, waiting for one that restarts.
    async fn connect(&self) -> io::Result<UnixStream> {
        let deadline = clock::monotonic() + self.patience;
        loop {
            match self.try_connect().await {
                Ok(gateway) => return Ok(gateway),
                Err(error) if clock::monotonic() >= deadline => return Err(error),
                Err(_absent) => clock::sleep(RETRY).await,
            }
        }
    }

    async fn try_connect(&self) -> io::Result<UnixStream> {
        let mut gateway = UnixStream::connect(&self.socket).await?;
        gateway.write_all(self.preamble.as_bytes()).await?;
        Ok(gateway)
    }
}

/// Answers in the protocol of the program that there is no gateway.
async fn refuse(mut program: TcpStream) {
    let mut first = [0];
    let answer = match timeout(LINGER, program.peek(&mut first)).await {
        Ok(Ok(1)) if first == [5] => &SOCKS_UNAVAILABLE[..],
        Ok(Ok(1)) => UNAVAILABLE.as_bytes(),
        Ok(Ok(_) | Err(_)) | Err(_) => return,
    };
    let answered = async {
        program.write_all(answer).await?;
        program.shutdown().await?;
        let mut rest = [0; 1024];
        while program.read(&mut rest).await? > 0 {}
        io::Result::Ok(())
    };
    // The program is gone, or keeps its end open: nothing more to tell it.
    let _lingered = timeout(LINGER, answered).await;
}
