//! HTTP API: chat completions over keep-alive connections.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::figure::{Figure, per_turn, percentiles};
use super::fixture::GatewayFixture;
use super::process::{cpu, end, rss};
use super::{Load, TIMEOUT};

const KEY: &str = "k-bench-0123456789abcdef";

/// First one client, then 64 concurrent clients.
pub(super) fn measure(program: &Path, load: &Load) -> Vec<Figure> {
    let fixture = GatewayFixture::new();
    let mut gateway = fixture.launch_with(program, &[("API_SERVER_KEY", KEY), ("API_SERVER_PORT", "0")]);
    let address = address(&fixture);
    let mut figures = one_client(&address, gateway.id(), load.api_turns);
    figures.extend(many_clients(&address, gateway.id(), load.api_crowd_turns));
    figures.push(Figure::memory("API: RSS after all of these turns", rss(gateway.id())));
    end(&mut gateway);
    figures
}

fn one_client(address: &str, gateway: u32, turns: usize) -> Vec<Figure> {
    let mut client = ApiClient::connect(address);
    for _ in 0..100 {
        client.complete();
    }
    let before = cpu(gateway);
    let mut taken: Vec<_> = (0..turns).map(|_| client.complete()).collect();
    let spent = cpu(gateway) - before;
    let mut figures = Vec::from(percentiles("API: latency, one client", &mut taken));
    figures.push(per_turn("API: CPU per turn, one client", spent, turns));
    figures
}

fn many_clients(address: &str, gateway: u32, turns: usize) -> Vec<Figure> {
    const CLIENTS: usize = 64;
    let left = AtomicUsize::new(turns);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| ApiClient::connect(address)).collect();
    for client in &mut clients {
        client.complete();
    }
    let started = Instant::now();
    let before = cpu(gateway);
    let mut taken: Vec<Duration> = std::thread::scope(|scope| {
        let running: Vec<_> =
            clients.into_iter().map(|client| scope.spawn(|| complete_while(&left, client))).collect();
        running.into_iter().flat_map(|it| it.join().expect("a client")).collect()
    });
    let wall = started.elapsed();
    let spent = cpu(gateway) - before;
    let mut figures = vec![Figure::rate("API: turns per second, 64 clients", turns, wall)];
    figures.extend(percentiles("API: latency, 64 clients", &mut taken));
    figures.push(per_turn("API: CPU per turn, 64 clients", spent, turns));
    figures
}

/// Sends requests until the shared budget is used up.
fn complete_while(left: &AtomicUsize, mut client: ApiClient) -> Vec<Duration> {
    let mut taken = Vec::new();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1)).is_ok() {
        taken.push(client.complete());
    }
    taken
}

fn address(fixture: &GatewayFixture) -> String {
    let path = fixture.home.path().join("gateway.lock");
    let until = Instant::now() + TIMEOUT;
    loop {
        let found = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        if let Some(url) = found.as_ref().and_then(|it| it["url"].as_str()) {
            return url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        }
        assert!(Instant::now() < until, "never listens: {found:?}");
    }
}

/// A keep-alive connection.
struct ApiClient {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl ApiClient {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a limit");
        let body = r#"{"model":"petasos","messages":[{"role":"user","content":"hello"}]}"#;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Self { stream: BufReader::new(stream), request: head.into_bytes() }
    }

    fn complete(&mut self) -> Duration {
        let sent = Instant::now();
        self.stream.get_mut().write_all(&self.request).expect("sent");
        let mut first = String::new();
        let mut length = 0;
        self.stream.read_line(&mut first).expect("a status");
        assert!(first.starts_with("HTTP/1.1 200"), "{first}");
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("a header");
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(value) = line.strip_prefix("content-length: ") {
                length = value.parse().expect("a length");
            }
            if line.is_empty() {
                break;
            }
        }
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        sent.elapsed()
    }
}
