use std::os::unix::fs::PermissionsExt;

use axum::routing::get;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};

use super::*;

#[tokio::test]
async fn the_control_socket_is_for_its_owner_only() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("control.sock");
    let _listener = bind_unix(&path).await.unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_socket_that_a_dead_process_left_is_replaced() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("control.sock");
    drop(UnixListener::bind(&path).unwrap());
    let _listener = bind_unix(&path).await.unwrap();
    assert!(UnixStream::connect(&path).await.is_ok());
}

#[tokio::test]
async fn a_socket_that_somebody_answers_on_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("control.sock");
    let _first = bind_unix(&path).await.unwrap();
    let error = bind_unix(&path).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    assert!(UnixStream::connect(&path).await.is_ok());
}

#[tokio::test]
async fn a_file_that_is_no_socket_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("control.sock");
    std::fs::write(&path, "precious").unwrap();
    let error = bind_unix(&path).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
}

#[tokio::test]
async fn a_stop_does_not_wait_for_those_who_only_watch() {
    let (entered, mut inside) = mpsc::channel(1);
    let watching = move |Extension(mut stop): Extension<Stop>| async move {
        entered.send(()).await.unwrap();
        stop.asked().await;
        "goodbye"
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel();
    let router = Router::new().route("/", get(watching));
    let serving = tokio::spawn(serve_tcp(listener, router, async { stopped.await.unwrap() }));
    let mut reader = TcpStream::connect(address).await.unwrap();
    reader.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    inside.recv().await.unwrap();
    let _silent = TcpStream::connect(address).await.unwrap();
    stop.send(()).unwrap();
    timeout(GRACE / 2, serving).await.expect("stops at once").unwrap().unwrap();
}

/// A gateway's page that waits for nobody for long.
async fn impatient(router: Router, connections: usize) -> std::net::SocketAddr {
    let brief = Duration::from_millis(200);
    let patience = Patience { head: brief, body: brief, write: brief };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let never = std::future::pending();
    tokio::spawn(serve_within(NoDelay(listener), router, never, connections, patience));
    address
}

async fn connect(address: std::net::SocketAddr, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(said.as_bytes()).await.unwrap();
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut heard = Vec::new();
    let reading = stream.read_to_end(&mut heard);
    // A connection that was cut off has said what it said.
    let _ = timeout(Duration::from_secs(20), reading).await.expect("it ends");
    String::from_utf8_lossy(&heard).into_owned()
}

#[tokio::test]
async fn whoever_is_slow_with_a_head_makes_room_for_the_next() {
    let address = impatient(Router::new().route("/", get(async || "here")), 2).await;
    // Nothing, and something that never ends.
    let slow = [connect(address, "").await, connect(address, "GET / HTTP/1.1\r\nX: ").await];
    let next = connect(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(rest(next).await.ends_with("here"));
    for slow in slow {
        assert_eq!(rest(slow).await, "");
    }
}

#[tokio::test]
async fn a_connection_that_asks_for_nothing_more_is_closed() {
    let address = impatient(Router::new().route("/", get(async || "here")), 1).await;
    let idle = connect(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(rest(idle).await.ends_with("here"));
}

#[tokio::test]
async fn a_body_that_does_not_come_is_an_error_to_whoever_reads_it() {
    let read = async |request: axum::extract::Request| {
        let error = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap_err();
        error.to_string()
    };
    let address = impatient(Router::new().route("/", axum::routing::post(read)), 1).await;
    let slow = connect(address, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf").await;
    assert!(rest(slow).await.contains("did not come in time"));
}

#[tokio::test]
async fn whoever_does_not_read_is_left() {
    let endless = async || {
        let more = futures_util::stream::repeat_with(|| Ok::<_, io::Error>(vec![b'x'; 1 << 16]));
        axum::body::Body::from_stream(more)
    };
    let address = impatient(Router::new().route("/", get(endless)), 1).await;
    let deaf = connect(address, "GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let next = connect(address, "GET /nowhere HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(rest(next).await.starts_with("HTTP/1.1 404"), "the only seat is free again");
    drop(deaf);
}

async fn patient(router: Router) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve_tcp(listener, router, std::future::pending()));
    address
}

#[tokio::test]
async fn slow_strangers_do_not_keep_an_honest_caller_out() {
    let address = patient(Router::new().route("/", get(async || "here"))).await;
    let mut slow = Vec::new();
    for number in 0..CONNECTIONS + 20 {
        slow.push(connect(address, ["", "GET / HTTP/1.1\r\nX: "][number % 2]).await);
    }
    let honest = async {
        rest(connect(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await).await
    };
    assert!(timeout(Duration::from_secs(2), honest).await.expect("in time").ends_with("here"));
}

#[tokio::test]
async fn authenticated_watchers_are_not_displaced() {
    let watching = async |Extension(seat): Extension<Seat>| {
        seat.keep();
        let more = futures_util::stream::pending::<io::Result<Vec<u8>>>();
        let first = futures_util::stream::iter([Ok(b"first".to_vec())]);
        axum::body::Body::from_stream(futures_util::StreamExt::chain(first, more))
    };
    let router = Router::new().route("/watch", get(watching)).route("/", get(async || "here"));
    let address = patient(router).await;
    let mut watcher = connect(address, "GET /watch HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains("first") {
        watcher.read_buf(&mut heard).await.unwrap();
    }
    let mut slow = Vec::new();
    for _ in 0..CONNECTIONS + 20 {
        slow.push(connect(address, "").await);
    }
    let next = connect(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(rest(next).await.ends_with("here"));
    let silent = timeout(Duration::from_millis(100), watcher.read_buf(&mut heard)).await;
    assert!(silent.is_err(), "the watcher was closed: {silent:?}");
}

#[tokio::test]
async fn unfinished_bodies_of_callers_stay_within_their_budget() {
    use petasos_platforms::body_budget::CALLERS;
    let (done, mut told) = mpsc::channel(60);
    let read = async move |request: axum::extract::Request| {
        let error = axum::body::to_bytes(request.into_body(), 10 << 20).await.unwrap_err();
        let exhausted = crate::connection::is_caused_by::<petasos_platforms::body_budget::Exhausted>(&error);
        done.send(exhausted).await.unwrap();
        "refused"
    };
    let address = patient(Router::new().route("/", axum::routing::post(read))).await;
    let body = vec![b'x'; 1 << 20];
    let mut senders = Vec::new();
    for _ in 0..60 {
        let body = body.clone();
        senders.push(tokio::spawn(async move {
            let head = format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", 10 << 20);
            let mut stream = connect(address, &head).await;
            // One that is refused is cut off while it sends.
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
        assert!(timeout(Duration::from_secs(30), told.recv()).await.expect("in time").expect("told"));
        assert!(CALLERS.held() <= CALLERS.limit());
    }
    senders.into_iter().for_each(|sender| sender.abort());
}
