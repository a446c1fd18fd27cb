//! Programs over HTTP: chat completions on connections that stay open, as a load generator asks for them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Bench, PATIENCE, cpu, end, mb, ms, row, rss};

const KEY: &str = "k-bench-0123456789abcdef";

/// One client after the other's answer, then 64 of them.
pub(super) fn measure() {
    let bench = Bench::new();
    let mut gateway = bench.launch_with(&[("API_SERVER_KEY", KEY), ("API_SERVER_PORT", "0")]);
    let address = address(&bench);
    one_client(&address, gateway.id());
    many_clients(&address, gateway.id());
    end(&mut gateway);
}

fn one_client(address: &str, gateway: u32) {
    const TURNS: usize = 1000;
    let mut client = Client::connect(address);
    for _ in 0..100 {
        client.ask();
    }
    let before = cpu(gateway);
    let mut taken: Vec<_> = (0..TURNS).map(|_| client.ask()).collect();
    let spent = cpu(gateway) - before;
    taken.sort_unstable();
    let (middle, last) = (taken[TURNS / 2], taken[TURNS * 99 / 100]);
    row("API: latency, one client, p50 / p99", &format!("{} / {}", ms(middle), ms(last)));
    row("API: CPU per turn, one client", &ms(spent / 1000));
}

fn many_clients(address: &str, gateway: u32) {
    const CLIENTS: usize = 64;
    const TURNS: usize = 12_000;
    let left = AtomicUsize::new(TURNS);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(address)).collect();
    for client in &mut clients {
        client.ask();
    }
    let (started, before) = (Instant::now(), cpu(gateway));
    let mut taken: Vec<Duration> = std::thread::scope(|scope| {
        let asking: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                let left = &left;
                scope.spawn(move || {
                    let mut taken = Vec::new();
                    while left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |it| it.checked_sub(1))
                        .is_ok()
                    {
                        taken.push(client.ask());
                    }
                    taken
                })
            })
            .collect();
        asking.into_iter().flat_map(|it| it.join().expect("a client")).collect()
    });
    let (wall, spent) = (started.elapsed(), cpu(gateway) - before);
    taken.sort_unstable();
    let turns = f64::from(u32::try_from(TURNS).unwrap_or(u32::MAX));
    row("API: turns per second, 64 clients", &format!("{:.0}", turns / wall.as_secs_f64()));
    let (middle, last) = (taken[TURNS / 2], taken[TURNS * 99 / 100]);
    row("API: latency, 64 clients, p50 / p99", &format!("{} / {}", ms(middle), ms(last)));
    row("API: CPU per turn, 64 clients", &ms(spent.div_f64(turns)));
    row("API: RSS after 13,000 turns", &mb(rss(gateway)));
}

fn address(bench: &Bench) -> String {
    let (path, until) = (bench.home.path().join("gateway.lock"), Instant::now() + PATIENCE);
    loop {
        let found = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        if let Some(url) = found.as_ref().and_then(|it| it["url"].as_str()) {
            return url.trim_start_matches("http://").trim_end_matches('/').to_owned();
        }
        assert!(Instant::now() < until, "never listens: {found:?}");
    }
}

/// A connection that stays open.
struct Client {
    stream: BufReader<TcpStream>,
    request: Vec<u8>,
}

impl Client {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).expect("a connection");
        stream.set_nodelay(true).expect("no delay");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let body = r#"{"model":"petasos","messages":[{"role":"user","content":"hello"}]}"#;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {KEY}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        Self { stream: BufReader::new(stream), request: head.into_bytes() }
    }

    fn ask(&mut self) -> Duration {
        let asked = Instant::now();
        self.stream.get_mut().write_all(&self.request).expect("sent");
        let (mut first, mut length) = (String::new(), 0);
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
        asked.elapsed()
    }
}
