//! A running gateway with both listeners, a temporary home and a fake model.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::{ModelConfig, Provider};
use petasos_core::Secret;
use petasos_core::lifecycle::State;
use petasos_fakes::Gate;
use petasos_fakes::model::{Model, Point};
use petasos_gateway::{Config, ExitInfo, Handle, LifecycleSnapshot, RunningGateway};
use petasos_web::{AccessCredentials, PublicOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;

pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const STRONG_SECRET: &str = "Zk3vQ9xW1bT7mN5pL8rS2dF4gH6jK0yUcVeAoIiEuYt";
pub const DRAIN: &str = "/api/gateway/drain";

pub type Header<'a> = (&'a str, &'a str);

pub struct GatewayFixture {
    pub home: TempDir,
    pub handle: Handle,
    pub model: Model,
    /// `Cookie` header of a signed-in browser.
    pub cookie: String,
    running: RunningGateway,
    address: SocketAddr,
    socket: PathBuf,
}

#[derive(Debug)]
pub struct FixtureResponse {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl GatewayFixture {
    pub async fn start(credentials: AccessCredentials) -> Self {
        let home = TempDir::new().unwrap();
        let model = Model::start().unwrap();
        let (handle, running) = petasos_gateway::start(config(&home, &model)).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let socket = home.path().join("petasos.sock");
        let public =
            petasos_web::public(handle.clone(), PublicOptions { credentials, ..PublicOptions::default() });
        petasos_runtime::spawn(petasos_web::serve_tcp(listener, public, std::future::pending()));
        let control = petasos_web::control(handle.clone());
        petasos_runtime::spawn(petasos_web::serve_unix(socket.clone(), control, std::future::pending()));
        let token = handle.login_link_token().await.unwrap();
        let login = handle.redeem(&token).await.unwrap().unwrap();
        let cookie = format!("petasos_{}={login}", address.port());
        let gateway = Self { home, handle, model, cookie, running, address, socket };
        gateway.wait_until(|now| now.state == State::Running).await;
        while UnixStream::connect(&gateway.socket).await.is_err() {
            tokio::task::yield_now().await;
        }
        gateway
    }

    pub async fn with_secret() -> Self {
        Self::start(AccessCredentials {
            drain_secret: Some(Secret::new(STRONG_SECRET)),
            ..AccessCredentials::default()
        })
        .await
    }

    /// Sends a request to the public listener.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[Header<'_>],
        body: &str,
    ) -> FixtureResponse {
        exchange(
            TcpStream::connect(self.address).await.unwrap(),
            &self.address.to_string(),
            method,
            path,
            headers,
            body,
        )
        .await
    }

    /// Sends a request to the public listener with the cookie.
    pub async fn request_signed_in(&self, method: &str, path: &str, body: &str) -> FixtureResponse {
        let headers = [("cookie", self.cookie.as_str()), ("content-type", "application/json")];
        self.request(method, path, &headers, body).await
    }

    /// Sends a request to the control socket.
    pub async fn request_on_socket(&self, method: &str, path: &str, body: &str) -> FixtureResponse {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        exchange(stream, "petasos", method, path, &[("content-type", "application/json")], body).await
    }

    pub fn marker(&self) -> Option<Vec<u8>> {
        std::fs::read(self.home.path().join(".drain_request.json")).ok()
    }

    pub fn principal(&self) -> String {
        let marker: Value = serde_json::from_slice(&self.marker().unwrap()).unwrap();
        marker["principal"].as_str().unwrap().to_owned()
    }

    pub async fn wait_until(&self, reached: impl Fn(&LifecycleSnapshot) -> bool) {
        let mut changes = self.handle.changes();
        let reaching = async {
            while !reached(&self.handle.snapshot()) {
                changes.changed().await.unwrap();
            }
        };
        let waited = timeout(TIMEOUT, reaching).await;
        assert!(waited.is_ok(), "{:?}", self.handle.snapshot());
    }

    pub async fn wait_for_exit(self) -> ExitInfo {
        timeout(TIMEOUT, self.running.wait()).await.expect("exits in time")
    }

    pub async fn post_message(&self, chat: &str, text: &str) -> FixtureResponse {
        let body = json!({ "text": text, "id": "m1" }).to_string();
        self.request_signed_in("POST", &format!("/api/chats/web/{chat}/messages"), &body).await
    }

    /// Starts a turn in each chat; the turns run until the gate opens.
    pub async fn start_blocked_turns(&self, chats: &[&str]) -> Gate {
        let gate = self.model.gate(Point::Before);
        for chat in chats {
            assert_eq!(self.post_message(chat, "hello").await.status, 202);
        }
        self.wait_until(|now| {
            now.holders.iter().filter(|holder| holder.turn.is_some()).count() == chats.len()
        })
        .await;
        gate
    }
}

impl FixtureResponse {
    #[track_caller]
    pub fn assert_is(&self, status: u16, body: &Value) {
        assert_eq!((self.status, &self.body), (status, body));
    }
}

fn config(home: &TempDir, model: &Model) -> Config {
    let mut model_config = ModelConfig::new(Provider::Custom, "fake");
    model_config.base_url = Some(format!("{}/v1", model.url()));
    model_config.api_key = Some(Secret::new("sk-test"));
    Config::new(home.path(), model_config)
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    method: &str,
    path: &str,
    headers: &[Header<'_>],
    body: &str,
) -> FixtureResponse {
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if headers.iter().all(|(name, _)| *name != "host") {
        request.push_str(&format!("host: {host}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut response)).await.expect("a response").unwrap();
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").expect("a complete response");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    FixtureResponse {
        status,
        head: head.to_ascii_lowercase(),
        body: serde_json::from_str(body).unwrap_or_default(),
    }
}
