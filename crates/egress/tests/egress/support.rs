//! A proxy with a network of invented hosts, and servers behind it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use petasos_egress::{
    AddressOwner, Approver, CredentialIssuer, DecisionFuture, EgressConfig, EgressLimits, EgressServer,
    HostDecision, HostRule, KEY_BYTES, Network, NetworkFuture, NetworkPolicy, ProxyCredential, SandboxId,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const KEY: [u8; KEY_BYTES] = [42; KEY_BYTES];
/// No single wait of a test takes longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct FakeNetwork {
    /// Answers of the resolver, used up one by one; the last one stays.
    names: Mutex<BTreeMap<String, Vec<Vec<IpAddr>>>>,
    /// The real servers of invented addresses.
    servers: Mutex<BTreeMap<SocketAddr, SocketAddr>>,
    pub(crate) resolved: Mutex<Vec<String>>,
    pub(crate) connected: Mutex<Vec<SocketAddr>>,
}

impl FakeNetwork {
    pub(crate) fn name(&self, name: &str, answers: &[&[&str]]) {
        let parse = |all: &&[&str]| all.iter().map(|ip| ip.parse().unwrap()).collect();
        let answers = answers.iter().map(parse).collect();
        self.names.lock().unwrap().insert(name.to_owned(), answers);
    }

    pub(crate) fn server(&self, at: &str, real: SocketAddr) {
        self.servers.lock().unwrap().insert(at.parse().unwrap(), real);
    }

    pub(crate) fn connected(&self) -> Vec<String> {
        self.connected.lock().unwrap().iter().map(ToString::to_string).collect()
    }

    pub(crate) fn resolved(&self) -> Vec<String> {
        self.resolved.lock().unwrap().clone()
    }
}

impl Network for FakeNetwork {
    fn resolve<'a>(&'a self, name: &'a str) -> NetworkFuture<'a, Vec<IpAddr>> {
        self.resolved.lock().unwrap().push(name.to_owned());
        let mut names = self.names.lock().unwrap();
        let answers = names.get_mut(name);
        let answer = answers.map(|all| if all.len() > 1 { all.remove(0) } else { all[0].clone() });
        Box::pin(async move { answer.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }

    fn connect(&self, at: SocketAddr) -> NetworkFuture<'_, TcpStream> {
        self.connected.lock().unwrap().push(at);
        let real = self.servers.lock().unwrap().get(&at).copied();
        Box::pin(async move {
            match real {
                Some(real) => TcpStream::connect(real).await,
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }

    fn owner(&self, ip: IpAddr) -> AddressOwner {
        if ip.is_loopback() { AddressOwner::ThisMachine } else { AddressOwner::Other }
    }
}

/// Decides at once, as it was told, and denies everything else.
#[derive(Debug, Default)]
pub(crate) struct ScriptedApprover {
    decisions: Mutex<BTreeMap<String, HostDecision>>,
    pub(crate) asked: Mutex<Vec<String>>,
}

impl ScriptedApprover {
    pub(crate) fn decide(&self, host: &str, decision: HostDecision) {
        self.decisions.lock().unwrap().insert(host.to_owned(), decision);
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Approver for ScriptedApprover {
    fn is_granted<'a>(&'a self, _: &'a SandboxId, _: &'a HostRule) -> DecisionFuture<'a, bool> {
        Box::pin(async { false })
    }

    fn ask<'a>(&'a self, _: &'a SandboxId, host: &'a HostRule) -> DecisionFuture<'a, HostDecision> {
        self.asked.lock().unwrap().push(host.to_string());
        let decision = self.decisions.lock().unwrap().get(&host.to_string()).copied();
        Box::pin(async move { decision.unwrap_or(HostDecision::Denied) })
    }
}

pub(crate) fn rules(all: &[&str]) -> Vec<HostRule> {
    all.iter().map(|rule| rule.parse().unwrap()).collect()
}

pub(crate) fn sandbox(session: &str) -> SandboxId {
    SandboxId::new(session, "run").unwrap()
}

/// A running proxy with both listeners.
#[derive(Debug)]
pub(crate) struct TestProxy {
    pub(crate) network: Arc<FakeNetwork>,
    pub(crate) approver: Arc<ScriptedApprover>,
    pub(crate) direct: SocketAddr,
    pub(crate) socket: PathBuf,
    policy: NetworkPolicy,
    limits: EgressLimits,
    tasks: Vec<JoinHandle<()>>,
    folder: TempDir,
}

impl TestProxy {
    pub(crate) async fn start() -> Self {
        Self::with(NetworkPolicy::default(), EgressLimits::default()).await
    }

    pub(crate) async fn allowing(rules_of_test: &[&str]) -> Self {
        let policy = NetworkPolicy { allow: rules(rules_of_test), ..NetworkPolicy::default() };
        Self::with(policy, EgressLimits::default()).await
    }

    pub(crate) async fn with(policy: NetworkPolicy, limits: EgressLimits) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut proxy = Self {
            network: Arc::default(),
            approver: Arc::default(),
            direct: SocketAddr::from(([127, 0, 0, 1], 0)),
            socket: folder.path().join("egress.sock"),
            policy,
            limits,
            tasks: vec![],
            folder,
        };
        proxy.listen().await;
        proxy
    }

    async fn listen(&mut self) {
        let config = EgressConfig {
            policy: self.policy.clone(),
            limits: self.limits.clone(),
            key: KEY,
            network: self.network.clone(),
        };
        let server = EgressServer::new(config, self.approver.clone());
        let direct = TcpListener::bind(self.direct).await.unwrap();
        self.direct = direct.local_addr().unwrap();
        let bridges = UnixListener::bind(&self.socket).unwrap();
        let second = server.clone();
        self.tasks.push(tokio::spawn(async move { server.serve_bridges(bridges).await }));
        self.tasks.push(tokio::spawn(async move { second.serve_direct(direct).await.unwrap() }));
    }

    /// Closes listeners and connections, as a gateway that ends.
    pub(crate) async fn stop(&mut self) {
        for task in self.tasks.drain(..) {
            task.abort();
            let _aborted = task.await;
        }
        std::fs::remove_file(&self.socket).unwrap();
    }

    pub(crate) async fn restart(&mut self) {
        self.listen().await;
    }

    pub(crate) fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    pub(crate) fn credential(&self, session: &str) -> ProxyCredential {
        CredentialIssuer::new(&KEY).issue(&sandbox(session))
    }

    pub(crate) fn url(&self, session: &str) -> String {
        let ProxyCredential { name, token } = self.credential(session);
        format!("http://{name}:{}@{}", token.expose(), self.direct)
    }

    /// The header that authenticates a session.
    pub(crate) fn authorization(&self, session: &str) -> String {
        use base64::Engine;
        let ProxyCredential { name, token } = self.credential(session);
        let text = base64::engine::general_purpose::STANDARD.encode(format!("{name}:{}", token.expose()));
        format!("Proxy-Authorization: Basic {text}\r\n")
    }

    /// Sends bytes on a connection of their own and reads one answer.
    pub(crate) async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.direct).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        read_answer(&mut stream).await
    }

    /// The status of a CONNECT.
    pub(crate) async fn connect_status(&self, session: &str, authority: &str) -> u16 {
        let head = format!("CONNECT {authority} HTTP/1.1\r\nHost: x\r\n{}\r\n", self.authorization(session));
        let mut stream = TcpStream::connect(self.direct).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        status(&read_head(&mut stream).await)
    }
}

/// Reads to the end of the connection; a reset is an end, too.
pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ended = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an end");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a head and the body of its length.
pub(crate) async fn read_answer(stream: &mut TcpStream) -> String {
    let head = read_head(stream).await;
    let lower = head.to_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or_default()];
    // Shorter if the connection ends.
    let _ended = tokio::time::timeout(PATIENCE, stream.read_exact(&mut body)).await.expect("a body");
    head + &String::from_utf8_lossy(&body)
}

/// Reads up to the empty line; shorter if the connection ends before it.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        match tokio::time::timeout(PATIENCE, stream.read_u8()).await.expect("an answer") {
            Ok(byte) => bytes.push(byte),
            Err(_ended) => break,
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// 0 without an answer.
pub(crate) fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_default()
}

/// A server that answers every connection with `hello` and reports all bytes that it got on one.
pub(crate) async fn origin() -> (SocketAddr, mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let (report, reports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, report.clone()));
        }
    });
    (at, reports)
}

async fn answer(mut stream: TcpStream, report: mpsc::UnboundedSender<String>) {
    let mut bytes = Vec::new();
    let mut answered = false;
    let mut buffer = [0; 4096];
    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
        bytes.extend_from_slice(&buffer[..read]);
        if !answered && bytes.windows(4).any(|it| it == b"\r\n\r\n") {
            answered = true;
            let _gone =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Origin: 1\r\n\r\nhello").await;
        }
    }
    let _test_ended = report.send(String::from_utf8_lossy(&bytes).into_owned());
}

/// A server that sends back what it gets.
pub(crate) async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                let _ended = tokio::io::copy(&mut read, &mut write).await;
            });
        }
    });
    at
}

pub(crate) fn is_installed(program: &str) -> bool {
    let found = Command::new(program).arg("--version").output().is_ok();
    if !found {
        eprintln!("{program} is not installed: its part of the test is skipped");
    }
    found
}

/// Runs a program to its end, beside the runtime.
pub(crate) async fn run(mut command: Command) -> Output {
    command.env_remove("no_proxy").env_remove("NO_PROXY");
    let program = format!("{command:?}");
    let running = tokio::task::spawn_blocking(move || command.output());
    let ended =
        tokio::time::timeout(PATIENCE, running).await.unwrap_or_else(|_| panic!("{program} does not end"));
    ended.unwrap().unwrap_or_else(|error| panic!("{program}: {error}"))
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
