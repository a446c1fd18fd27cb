use std::os::unix::fs::PermissionsExt;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::*;

#[tokio::test]
async fn control_socket_has_owner_only_mode() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("control.sock");
    let _listener = bind_unix(&path).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn replaces_stale_socket() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("control.sock");
    drop(UnixListener::bind(&path).unwrap());
    let _listener = bind_unix(&path).await.unwrap();
    assert!(UnixStream::connect(&path).await.is_ok());
}

#[tokio::test]
async fn keeps_socket_in_use() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("control.sock");
    let _first = bind_unix(&path).await.unwrap();
    let error = bind_unix(&path).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(UnixStream::connect(&path).await.is_ok());
}

#[tokio::test]
async fn keeps_file_that_is_not_a_socket() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("control.sock");
    std::fs::write(&path, "precious").unwrap();
    let error = bind_unix(&path).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn shutdown_does_not_wait_for_open_streams() {
    let (entered, mut inside) = mpsc::channel(1);
    let watching = move |Extension(mut stop): Extension<StopSignal>| async move {
        entered.send(()).await.unwrap();
        stop.wait().await;
        "goodbye"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let router = Router::new().route("/", get(watching));
    let serving = petasos_runtime::spawn(serve_tcp(listener, router, async { stopped.await.unwrap() }));
    let mut reader = TcpStream::connect(address).await.unwrap();
    reader.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    inside.recv().await.unwrap();
    let _silent = TcpStream::connect(address).await.unwrap();
    stop.send(()).unwrap();
    timeout(SHUTDOWN_GRACE / 2, serving).await.expect("stops at once").unwrap().unwrap();
}

async fn serve_with_short_timeouts(router: Router, connections: usize) -> std::net::SocketAddr {
    let brief = Duration::from_millis(200);
    let timeouts = ConnectionTimeouts { head: brief, body: brief, write: brief };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let never = std::future::pending();
    petasos_runtime::spawn(serve_with_limits(NoDelay(listener), router, never, connections, timeouts));
    address
}

async fn connect(address: std::net::SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

async fn read_all(mut stream: TcpStream) -> String {
    let mut received = Vec::new();
    let reading = stream.read_to_end(&mut received);
    // A reset connection still yields the bytes received before it.
    let _ = timeout(Duration::from_secs(20), reading).await.expect("it ends");
    String::from_utf8_lossy(&received).into_owned()
}

#[tokio::test]
async fn slow_request_head_frees_its_slot() {
    let address = serve_with_short_timeouts(Router::new().route("/", get(async || "here")), 2).await;
    // An empty request, and a head that never ends.
    let slow = [connect(address, "").await, connect(address, "GET / HTTP/1.1\r\nX: ").await];
    let next = connect(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(read_all(next).await.ends_with("here"));
    for slow in slow {
        assert_eq!(read_all(slow).await, "");
    }
}

#[tokio::test]
async fn closes_idle_connection() {
    let address = serve_with_short_timeouts(Router::new().route("/", get(async || "here")), 1).await;
    let idle = connect(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(read_all(idle).await.ends_with("here"));
}

#[tokio::test]
async fn body_timeout_fails_the_read() {
    let read = async |request: axum::extract::Request| {
        let error = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap_err();
        error.to_string()
    };
    let address = serve_with_short_timeouts(Router::new().route("/", axum::routing::post(read)), 1).await;
    let slow = connect(address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").await;
    assert!(read_all(slow).await.contains("did not arrive in time"));
}

#[tokio::test]
async fn disconnects_client_that_does_not_read() {
    let endless = async || {
        let more = futures_util::stream::repeat_with(|| Ok::<_, io::Error>(vec![b'x'; 1 << 16]));
        axum::body::Body::from_stream(more)
    };
    let address = serve_with_short_timeouts(Router::new().route("/", get(endless)), 1).await;
    let stalled_reader = connect(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let next = connect(address, "GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(read_all(next).await.starts_with("HTTP/1.1 404"), "the only slot is free again");
    drop(stalled_reader);
}

async fn serve_with_defaults(router: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    petasos_runtime::spawn(serve_tcp(listener, router, std::future::pending()));
    address
}

#[tokio::test]
async fn slow_clients_do_not_block_others() {
    let address = serve_with_defaults(Router::new().route("/", get(async || "here"))).await;
    let mut slow = Vec::new();
    for number in 0..MAX_CONNECTIONS + 20 {
        slow.push(connect(address, ["", "GET / HTTP/1.1\r\nX: "][number % 2]).await);
    }
    let other_client = async {
        read_all(connect(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await).await
    };
    assert!(timeout(Duration::from_secs(2), other_client).await.expect("in time").ends_with("here"));
}

#[tokio::test]
async fn keeps_authenticated_streams_at_connection_limit() {
    let watching = async |Extension(slot): Extension<ConnectionSlot>| {
        slot.mark_authenticated();
        let more = futures_util::stream::pending::<io::Result<Vec<u8>>>();
        let first = futures_util::stream::iter([Ok(b"first".to_vec())]);
        axum::body::Body::from_stream(futures_util::StreamExt::chain(first, more))
    };
    let router = Router::new().route("/watch", get(watching)).route("/", get(async || "here"));
    let address = serve_with_defaults(router).await;
    let mut watcher = connect(address, "GET /watch HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("first") {
        watcher.read_buf(&mut received).await.unwrap();
    }
    let mut slow = Vec::new();
    for _ in 0..MAX_CONNECTIONS + 20 {
        slow.push(connect(address, "").await);
    }
    let next = connect(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(read_all(next).await.ends_with("here"));
    let silent = timeout(Duration::from_millis(100), watcher.read_buf(&mut received)).await;
    assert!(silent.is_err(), "the watcher was closed: {silent:?}");
}

#[tokio::test]
async fn unfinished_bodies_stay_within_memory_budget() {
    use petasos_platforms::body_budget::API_CLIENTS;
    let (done, mut results) = mpsc::channel(60);
    let read = async move |request: axum::extract::Request| {
        let error = axum::body::to_bytes(request.into_body(), 10 << 20).await.unwrap_err();
        let exhausted =
            crate::server::connection::is_caused_by::<petasos_platforms::body_budget::Exhausted>(&error);
        done.send(exhausted).await.unwrap();
        "refused"
    };
    let address = serve_with_defaults(Router::new().route("/", axum::routing::post(read))).await;
    let body = vec![b'x'; 1 << 20];
    let mut senders = Vec::new();
    for _ in 0..60 {
        let body = body.clone();
        senders.push(petasos_runtime::spawn(async move {
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 10 << 20);
            let mut stream = connect(address, &head).await;
            // The connection is reset when its body is rejected.
            for _ in 0..9 {
                if stream.write_all(&body).await.is_err() {
                    break;
                }
            }
            stream
        }));
    }
    // 60 bodies of 9 MB: at least 54 do not fit.
    for _ in 0..54 {
        assert!(timeout(Duration::from_secs(30), results.recv()).await.expect("in time").expect("a result"));
        assert!(API_CLIENTS.held() <= API_CLIENTS.limit());
    }
    senders.into_iter().for_each(|sender| sender.abort());
}
