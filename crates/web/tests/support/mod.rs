//! A gateway in this process with both doors open: real home, real sockets, a fake model on loopback.
#![allow(
    dead_code,
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "each test file uses the part it needs"
)]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use petasos_agent::{ModelConfig, Provider};
use petasos_core::Secret;
use petasos_core::lifecycle::State;
use petasos_fakes::Gate;
use petasos_fakes::model::{Model, Point};
use petasos_gateway::{Config, End, Handle, Running, Situation};
use petasos_web::{Doors, Options};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;

pub const SOON: Duration = Duration::from_secs(60);
pub const STRONG: &str = "Zk3vQ9xW1bT7mN5pL8rS2dF4gH6jK0yUcVeAoIiEuYt";
pub const DRAIN: &str = "/api/gateway/drain";

pub type Header<'a> = (&'a str, &'a str);

pub struct World {
    pub home: TempDir,
    pub handle: Handle,
    pub model: Model,
    /// A signed-in browser's header.
    pub cookie: String,
    running: Running,
    address: SocketAddr,
    socket: PathBuf,
}

#[derive(Debug)]
pub struct Told {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl World {
    pub async fn start(doors: Doors) -> Self {
        let home = TempDir::new().unwrap();
        let model = Model::start().unwrap();
        let (handle, running) = petasos_gateway::start(config(&home, &model)).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, socket) = (listener.local_addr().unwrap(), home.path().join("petasos.sock"));
        let public = petasos_web::public(handle.clone(), Options { doors, ..Options::default() });
        tokio::spawn(petasos_web::serve_tcp(listener, public, std::future::pending()));
        let control = petasos_web::control(handle.clone());
        tokio::spawn(petasos_web::serve_unix(socket.clone(), control, std::future::pending()));
        let token = handle.login_link_token().await.unwrap();
        let login = handle.redeem(&token).await.unwrap().unwrap();
        let cookie = format!("petasos_{}={login}", address.port());
        let world = Self { home, handle, model, cookie, running, address, socket };
        world.until(|now| now.state == State::Running).await;
        while UnixStream::connect(&world.socket).await.is_err() {
            tokio::task::yield_now().await;
        }
        world
    }

    pub async fn with_secret() -> Self {
        Self::start(Doors { drain_secret: Some(Secret::new(STRONG)), ..Doors::default() }).await
    }

    /// Through the public door, as somebody whom the headers do not name.
    pub async fn stranger(&self, method: &str, path: &str, headers: &[Header<'_>], body: &str) -> Told {
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

    /// Through the public door, signed in.
    pub async fn browser(&self, method: &str, path: &str, body: &str) -> Told {
        let headers = [("cookie", self.cookie.as_str()), ("content-type", "application/json")];
        self.stranger(method, path, &headers, body).await
    }

    /// Through the control socket.
    pub async fn owner(&self, method: &str, path: &str, body: &str) -> Told {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        exchange(stream, "petasos", method, path, &[("content-type", "application/json")], body).await
    }

    /// The marker as it lies in the home.
    pub fn marker(&self) -> Option<Vec<u8>> {
        std::fs::read(self.home.path().join(".drain_request.json")).ok()
    }

    pub fn principal(&self) -> String {
        let marker: Value = serde_json::from_slice(&self.marker().unwrap()).unwrap();
        marker["principal"].as_str().unwrap().to_owned()
    }

    pub async fn until(&self, reached: impl Fn(&Situation) -> bool) {
        let mut changes = self.handle.changes();
        let reaching = async {
            while !reached(&self.handle.situation()) {
                changes.changed().await.unwrap();
            }
        };
        let waited = timeout(SOON, reaching).await;
        assert!(waited.is_ok(), "{:?}", self.handle.situation());
    }

    /// Waits until the gateway has left.
    pub async fn end(self) -> End {
        timeout(SOON, self.running.wait()).await.expect("it leaves")
    }

    pub async fn say(&self, chat: &str, text: &str) -> Told {
        let body = json!({ "text": text, "id": "m1" }).to_string();
        self.browser("POST", &format!("/api/chats/web/{chat}/messages"), &body).await
    }

    /// A turn in each of these chats that goes on until the gate opens.
    pub async fn busy(&self, chats: &[&str]) -> Gate {
        let gate = self.model.gate(Point::Before);
        for chat in chats {
            assert_eq!(self.say(chat, "hello").await.status, 202);
        }
        self.until(|now| now.holders.iter().filter(|holder| holder.turn.is_some()).count() == chats.len())
            .await;
        gate
    }
}

impl Told {
    #[track_caller]
    pub fn is(&self, status: u16, body: &Value) {
        assert_eq!((self.status, &self.body), (status, body));
    }
}

fn config(home: &TempDir, model: &Model) -> Config {
    let mut ask = ModelConfig::new(Provider::Custom, "fake");
    ask.base_url = Some(format!("{}/v1", model.url()));
    ask.api_key = Some(Secret::new("sk-test"));
    Config::new(home.path(), ask)
}

async fn exchange(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    host: &str,
    method: &str,
    path: &str,
    headers: &[Header<'_>],
    body: &str,
) -> Told {
    let mut request = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n");
    if headers.iter().all(|(name, _)| *name != "host") {
        request.push_str(&format!("host: {host}\r\n"));
    }
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    timeout(SOON, stream.read_to_end(&mut answer)).await.expect("an answer").unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("a whole answer");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Told { status, head: head.to_ascii_lowercase(), body: serde_json::from_str(body).unwrap_or_default() }
}
