//! Logs name hosts, ports and byte counts, and nothing that a program sends.

use std::io;
use std::sync::{Arc, Mutex};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{TestProxy, origin, read_answer};

#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn logs_contain_hosts_and_byte_counts_only() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let _default = tracing::subscriber::set_default(subscriber);
    let proxy = TestProxy::allowing(&["example.org"]).await;
    let (server, mut reports) = origin().await;
    proxy.network.name("example.org", &[&["93.184.216.34"]]);
    proxy.network.server("93.184.216.34:80", server);
    let request = format!(
        "POST http://example.org/canary-path?canary-query HTTP/1.1\r\nHost: example.org\r\nX: canary-header\r\n\
         Content-Length: 11\r\nConnection: close\r\n{}\r\ncanary-body",
        proxy.authorization("s")
    );
    let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_answer(&mut stream).await.ends_with("hello"));
    drop(stream);
    assert!(reports.recv().await.unwrap().contains("canary-body"));
    assert_eq!(proxy.connect_status("s", "denied.example.org:443").await, 403);
    let written = || String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    while !written().contains("closed") {
        tokio::task::yield_now().await;
    }
    let text = written();
    assert!(text.contains("host=example.org port=80") && text.contains("received="), "{text}");
    assert!(
        text.contains("host=denied.example.org port=443") && text.contains("denied by a person"),
        "{text}"
    );
    let token = proxy.credential("s").token;
    for secret in ["canary", token.expose(), &proxy.authorization("s")[27..60]] {
        assert!(!text.contains(secret), "{secret}: {text}");
    }
}
