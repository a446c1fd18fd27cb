use std::os::unix::fs::PermissionsExt;

use axum::routing::get;
use tokio::io::AsyncWriteExt;
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
