//! Limits of size, time and number.

use std::time::{Duration, Instant};

use petasos_egress::{EgressLimits, NetworkPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{TestProxy, echo, origin, read_answer, read_head, rules, status};

fn policy() -> NetworkPolicy {
    NetworkPolicy { allow: rules(&["example.org", "example.org:7"]), ..NetworkPolicy::default() }
}

async fn proxy(limits: EgressLimits) -> TestProxy {
    let proxy = TestProxy::with(policy(), limits).await;
    proxy.network.name("example.org", &[&["93.184.216.34"]]);
    proxy.network.server("93.184.216.34:443", origin().await.0);
    proxy.network.server("93.184.216.34:7", echo().await);
    proxy
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    let proxy = proxy(EgressLimits::default()).await;
    let long = "x".repeat(100_000);
    for head in [
        format!("GET http://example.org/{long} HTTP/1.1\r\n\r\n"),
        format!("CONNECT example.org:443 HTTP/1.1\r\nX: {long}\r\n\r\n"),
        format!("CONNECT example.org:443 HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(5000)),
    ] {
        let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
        // The proxy may close before everything is written.
        let _closed = stream.write_all(head.as_bytes()).await;
        let answer = read_answer(&mut stream).await;
        assert!(matches!(status(&answer), 431 | 414 | 0), "{}", &answer[..answer.len().min(200)]);
    }
    assert_eq!(proxy.connect_status("s", "example.org:443").await, 200, "the proxy goes on");
}

#[tokio::test]
async fn slow_clients_are_closed_after_the_handshake_limit() {
    let limits = EgressLimits { handshake: Duration::from_millis(300), ..EgressLimits::default() };
    let proxy = proxy(limits).await;
    for begun in ["", "C", "CONNECT example.org:443 HTTP/1.1\r\nX: ", "\x05", "\x05\x01\x02"] {
        let began = Instant::now();
        let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
        stream.write_all(begun.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        assert!(began.elapsed() < Duration::from_secs(10), "{begun:?} is closed");
        assert!(!answer.starts_with(b"HTTP/1.1 200"), "{begun:?}");
    }
}

#[tokio::test]
async fn anonymous_connections_do_not_shut_others_out() {
    let limits = EgressLimits { connections: 32, ..EgressLimits::default() };
    let proxy = proxy(limits).await;
    let mut slow = Vec::new();
    for _connection in 0..200 {
        let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
        // Connections may be closed for newer ones already.
        let _closed = stream.write_all(b"CONNECT example.org:443 HTTP/1.1\r\n").await;
        slow.push(stream);
    }
    assert_eq!(proxy.connect_status("s", "example.org:443").await, 200);
}

#[tokio::test]
async fn one_session_cannot_use_all_connections() {
    let limits = EgressLimits { connections: 64, connections_per_session: 8, ..EgressLimits::default() };
    let proxy = proxy(limits).await;
    let mut tunnels = Vec::new();
    let mut statuses = Vec::new();
    for _connection in 0..12 {
        let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
        let head = format!("CONNECT example.org:7 HTTP/1.1\r\n{}\r\n", proxy.authorization("greedy"));
        stream.write_all(head.as_bytes()).await.unwrap();
        statuses.push(status(&read_head(&mut stream).await));
        tunnels.push(stream);
    }
    assert_eq!(statuses, [vec![200; 8], vec![503; 4]].concat());
    assert_eq!(proxy.connect_status("other", "example.org:7").await, 200);
    drop(tunnels);
    // The places are free as soon as the proxy has seen the ends.
    while proxy.connect_status("greedy", "example.org:7").await != 200 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_a_thousand_connections_at_once() {
    let limits = EgressLimits { connections: 1024, connections_per_session: 600, ..EgressLimits::default() };
    let proxy = std::sync::Arc::new(proxy(limits).await);
    let mut clients = tokio::task::JoinSet::new();
    for index in 0..1000 {
        let proxy = proxy.clone();
        clients.spawn(async move {
            let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
            let session = if index % 2 == 0 { "even" } else { "odd" };
            let head = format!("CONNECT example.org:7 HTTP/1.1\r\n{}\r\n", proxy.authorization(session));
            stream.write_all(head.as_bytes()).await.unwrap();
            assert_eq!(status(&read_head(&mut stream).await), 200);
            let sent = format!("{index:04}");
            stream.write_all(sent.as_bytes()).await.unwrap();
            let mut back = [0; 4];
            stream.read_exact(&mut back).await.unwrap();
            assert_eq!(back, sent.as_bytes());
            stream
        });
    }
    let open = clients.join_all().await;
    assert_eq!(open.len(), 1000);
}

#[tokio::test]
async fn idle_tunnels_are_closed() {
    let limits = EgressLimits { idle: Duration::from_millis(300), ..EgressLimits::default() };
    let proxy = proxy(limits).await;
    let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
    let head = format!("CONNECT example.org:7 HTTP/1.1\r\n{}\r\n", proxy.authorization("s"));
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(status(&read_head(&mut stream).await), 200);
    stream.write_all(b"once").await.unwrap();
    let mut back = Vec::new();
    let _reset =
        tokio::time::timeout(crate::support::PATIENCE, stream.read_to_end(&mut back)).await.expect("an end");
    assert_eq!(back, b"once");
}

#[tokio::test]
async fn servers_that_do_not_answer_are_given_up() {
    let limits = EgressLimits { idle: Duration::from_millis(300), ..EgressLimits::default() };
    let proxy = proxy(limits).await;
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    proxy.network.server("93.184.216.34:80", silent.local_addr().unwrap());
    let request =
        format!("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n{}\r\n", proxy.authorization("s"));
    let answer = proxy.send(request.as_bytes()).await;
    assert_eq!(answer, "", "the connection ends");
}
