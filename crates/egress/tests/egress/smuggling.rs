//! Forwarded requests: framing, headers and host at the server are the proxy's own.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::UnboundedReceiver;

use crate::support::{PATIENCE, TestProxy, origin, read_answer, status};

async fn fixture() -> (TestProxy, UnboundedReceiver<String>) {
    let proxy = TestProxy::allowing(&["example.org"]).await;
    let (server, reports) = origin().await;
    proxy.network.name("example.org", &[&["93.184.216.34"]]);
    proxy.network.server("93.184.216.34:80", server);
    (proxy, reports)
}

async fn report(reports: &mut UnboundedReceiver<String>) -> String {
    tokio::time::timeout(PATIENCE, reports.recv()).await.expect("a request").expect("a server")
}

#[tokio::test]
async fn requests_arrive_rewritten() {
    let (proxy, mut reports) = fixture().await;
    let request = format!(
        "GET http://EXAMPLE.org/a/b?c=d HTTP/1.1\r\nHost: internal.victim\r\nUser-Agent: x\r\nProxy-Connection: keep-alive\r\n\
         Connection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: websocket\r\nExpect: 100-continue\r\nCookie: a=b\r\n{}\r\n",
        proxy.authorization("s")
    );
    let answer = proxy.send(request.as_bytes()).await;
    assert!(status(&answer) == 200 && answer.ends_with("hello"), "{answer}");
    let mut lines: Vec<String> =
        report(&mut reports).await.trim_end().lines().map(str::to_lowercase).collect();
    assert_eq!(lines.remove(0), "get /a/b?c=d http/1.1");
    lines.sort();
    assert_eq!(lines, ["connection: close", "cookie: a=b", "host: example.org", "user-agent: x"]);
}

#[tokio::test]
async fn ambiguous_requests_reach_no_server() {
    let (proxy, _reports) = fixture().await;
    let authorization = proxy.authorization("s");
    for headers in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: -1\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        " Transfer-Encoding: chunked\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chun\0ked\r\n",
        "Host: second.example.org\r\n",
        "X: a\rb\r\n",
    ] {
        let request = format!(
            "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\n{authorization}{headers}\r\n0\r\n\r\nGET http://example.org/x HTTP/1.1\r\n\r\n"
        );
        let answer = proxy.send(request.as_bytes()).await;
        assert_eq!(status(&answer), 400, "{headers:?}: {answer}");
    }
    assert_eq!(proxy.network.connected(), Vec::<String>::new());
}

#[tokio::test]
async fn bytes_behind_a_body_are_a_request_to_the_proxy() {
    for (framing, body) in [
        ("Content-Length: 5", "12345"),
        ("Transfer-Encoding: chunked", "5\r\n12345\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "5;ext=1\r\n12345\r\n0\r\nX-Trailer: 1\r\n\r\n"),
    ] {
        let (proxy, mut reports) = fixture().await;
        let authorization = proxy.authorization("s");
        let request = format!(
            "POST http://example.org/first HTTP/1.1\r\nHost: example.org\r\n{framing}\r\n{authorization}\r\n{body}\
             GET http://other.example.org/second HTTP/1.1\r\nHost: other.example.org\r\n{authorization}\r\n"
        );
        let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(status(&read_answer(&mut stream).await), 200, "{framing}");
        assert_eq!(status(&read_answer(&mut stream).await), 403, "the second request is judged on its own");
        let arrived = report(&mut reports).await;
        assert!(arrived.contains("12345") && !arrived.contains("second"), "{framing}: {arrived}");
        assert_eq!(proxy.approver.asked(), ["other.example.org"]);
    }
}

#[tokio::test]
async fn chunks_count_where_a_length_contradicts_them() {
    for framing in [
        "Content-Length: 99\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 1",
    ] {
        let (proxy, mut reports) = fixture().await;
        let authorization = proxy.authorization("s");
        let request = format!(
            "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\n{framing}\r\n{authorization}\r\n\
             5\r\n12345\r\n0\r\n\r\nGET http://example.org/second HTTP/1.1\r\nHost: example.org\r\n{authorization}\r\n"
        );
        let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(status(&read_answer(&mut stream).await), 200, "{framing}");
        assert_eq!(read_answer(&mut stream).await, "", "no further request on this connection");
        let arrived = report(&mut reports).await.to_lowercase();
        assert!(arrived.contains("12345") && !arrived.contains("second"), "{framing}: {arrived}");
        assert!(arrived.contains("chunked") && !arrived.contains("content-length"), "{framing}: {arrived}");
    }
}

#[tokio::test]
async fn malformed_chunks_end_the_connection() {
    for chunk in ["zz\r\n", "-1\r\n", "5 5\r\n", "FFFFFFFFFFFFFFFFF\r\n", "5\n12345"] {
        let (proxy, mut reports) = fixture().await;
        let request = format!(
            "POST http://example.org/ HTTP/1.1\r\nHost: example.org\r\nTransfer-Encoding: chunked\r\n{}\r\n{chunk}",
            proxy.authorization("s")
        );
        let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let _answer = read_answer(&mut stream).await;
        drop(stream);
        let arrived = report(&mut reports).await;
        assert!(!arrived.contains("zz") && !arrived.ends_with("0\r\n\r\n"), "{chunk:?}: {arrived}");
    }
}

#[tokio::test]
async fn keep_alive_requests_are_judged_one_by_one() {
    let (proxy, mut reports) = fixture().await;
    let authorization = proxy.authorization("s");
    let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
    for (host, want) in [("example.org", 200), ("denied.example.org", 403), ("example.org", 200)] {
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{authorization}\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(status(&read_answer(&mut stream).await), want, "{host}");
    }
    for _request in 0..2 {
        assert_eq!(
            report(&mut reports).await.matches("HTTP/1.1").count(),
            1,
            "one request on one connection"
        );
    }
}
