//! The bridge, in this process and in a real network namespace.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use petasos_egress::bridge::config::BridgeConfig;
use petasos_egress::bridge::{self, Bridge};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{PATIENCE, TestProxy, echo, is_installed, origin, read_all, read_head, status};

fn config(proxy: &TestProxy, services: &[u16]) -> BridgeConfig {
    let credential = proxy.credential("s");
    BridgeConfig { socket: proxy.socket.clone(), credential, port: 0, services: services.to_vec() }
}

/// A bridge in this process, and the port of its proxy.
async fn start(proxy: &TestProxy, patience: Duration) -> u16 {
    let bridge = Bridge::bind(&config(proxy, &[]), patience).await.unwrap();
    let port = bridge.port().unwrap();
    tokio::spawn(bridge.serve());
    port
}

async fn fixture() -> TestProxy {
    let proxy = TestProxy::allowing(&["example.org", "echo.example.org:7", "127.0.0.1:5432"]).await;
    proxy.network.name("example.org", &[&["93.184.216.34"]]);
    proxy.network.name("echo.example.org", &[&["93.184.216.34"]]);
    proxy.network.server("93.184.216.34:80", origin().await.0);
    proxy.network.server("93.184.216.34:7", echo().await);
    proxy.network.server("127.0.0.1:5432", echo().await);
    proxy
}

async fn connect(port: u16, authority: &str) -> (u16, TcpStream) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    stream.write_all(format!("CONNECT {authority} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    (status(&read_head(&mut stream).await), stream)
}

#[tokio::test]
async fn programs_behind_a_bridge_need_no_credentials() {
    let proxy = fixture().await;
    let port = start(&proxy, PATIENCE).await;
    let (status, mut stream) = connect(port, "echo.example.org:7").await;
    assert_eq!(status, 200);
    stream.write_all(b"through").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stream).await, "through");
    assert_eq!(connect(port, "denied.example.org:443").await.0, 403);
}

#[tokio::test]
async fn connections_wait_for_a_gateway_that_restarts() {
    let mut proxy = fixture().await;
    let port = start(&proxy, PATIENCE).await;
    let (_, mut before) = connect(port, "echo.example.org:7").await;
    proxy.stop().await;
    assert_eq!(read_all(&mut before).await, "", "an open tunnel ends with the gateway");
    let waiting = tokio::spawn(async move { connect(port, "echo.example.org:7").await });
    // The bridge has the connection and no gateway.
    tokio::task::yield_now().await;
    proxy.restart().await;
    assert_eq!(waiting.await.unwrap().0, 200, "the credential is valid at the next gateway");
}

#[tokio::test]
async fn connections_fail_cleanly_without_a_gateway() {
    let mut proxy = fixture().await;
    let port = start(&proxy, Duration::from_millis(50)).await;
    proxy.stop().await;
    let (answer, mut stream) = connect(port, "example.org:443").await;
    assert_eq!(answer, 503);
    assert!(
        read_all(&mut stream)
            .await
            .contains("the gateway, through which commands reach the network, is not running")
    );
    let mut socks = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    socks.write_all(&[5, 1, 0]).await.unwrap();
    let mut answer = Vec::new();
    socks.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, [5, 0xff]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_serves_without_a_runtime_of_the_caller() {
    let proxy = fixture().await;
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    let config = BridgeConfig { port, ..config(&proxy, &[]) };
    let second = config.clone();
    let start = |config: BridgeConfig| move || bridge::spawn_thread(&config, PATIENCE);
    let taken = tokio::task::spawn_blocking(start(second)).await.unwrap().unwrap_err();
    assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
    drop(free);
    tokio::task::spawn_blocking(start(config)).await.unwrap().unwrap();
    assert_eq!(connect(port, "echo.example.org:7").await.0, 200);
}

#[tokio::test]
async fn the_bridge_ends_with_its_input() {
    let proxy = fixture().await;
    let (mut input, far_input) = tokio::io::duplex(4096);
    let (mut output, far_output) = tokio::io::duplex(4096);
    let running = tokio::spawn(bridge::run(far_input, far_output, PATIENCE));
    input.write_all(config(&proxy, &[]).encode().unwrap().as_bytes()).await.unwrap();
    let mut line = [0; 13];
    output.read_exact(&mut line).await.unwrap();
    assert_eq!(&line, b"listening on ");
    drop(input);
    tokio::time::timeout(PATIENCE, running).await.expect("an end").unwrap().unwrap();
}

#[tokio::test]
async fn invalid_configurations_stop_the_bridge() {
    for (input, want) in
        [("port=1\n\n", "has no name="), ("x\n\n", "not one of"), ("socket=/x", "end of file")]
    {
        let stopped = bridge::run(input.as_bytes(), tokio::io::sink(), PATIENCE).await.unwrap_err();
        assert!(stopped.to_string().contains(want), "{input:?}: {stopped}");
    }
    let endless = "x".repeat(10_000);
    let stopped = bridge::run(endless.as_bytes(), tokio::io::sink(), PATIENCE).await.unwrap_err();
    assert!(stopped.to_string().contains("too long"), "{stopped}");
}

/// The program that `runs_in_a_network_namespace` starts in the namespace; alone it does nothing.
#[tokio::test]
#[ignore = "started by another test, with a configuration on its standard input"]
async fn bridge_program() {
    if std::env::var_os("BRIDGE_OF_TEST").is_some() {
        let input = tokio::fs::File::open("/dev/stdin").await.unwrap();
        let ended = bridge::run(input, tokio::io::sink(), PATIENCE).await;
        assert!(ended.is_ok(), "{ended:?}");
    }
}

/// Runs in a namespace with a loopback interface and nothing else.
const IN_NAMESPACE: &str = r#"
ip link set lo up || exit 90
exec 3<&0
BRIDGE_OF_TEST=1 "$1" --exact bridge::bridge_program --ignored <&3 >/dev/null 2>&1 &
until curl -s -o /dev/null http://127.0.0.1:3128/; do :; done
echo "proxied: $(curl -sS --proxy http://127.0.0.1:3128 http://example.org/)"
echo "denied: $(curl -s -o /dev/null -w '%{http_connect}' --proxy http://127.0.0.1:3128 https://denied.example.org/)"
echo "socks: $(curl -sS --proxy socks5h://127.0.0.1:3128 http://example.org/)"
echo "direct: $(curl -s --noproxy '*' --max-time 5 http://93.184.216.34/ || echo refused)"
echo "service: $(python3 -c '
import socket
s = socket.create_connection(("127.0.0.1", 5432)); s.sendall(b"ping"); s.shutdown(socket.SHUT_WR); print(s.recv(9).decode())')"
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn runs_in_a_network_namespace() {
    let namespaces = Command::new("unshare").args(["-Urn", "true"]).status().is_ok_and(|it| it.success());
    if !namespaces
        || !["curl", "python3"].into_iter().all(is_installed)
        || Command::new("ip").output().is_err()
    {
        eprintln!("no network namespaces, or a tool is missing: skipped");
        return;
    }
    let proxy = fixture().await;
    let config = BridgeConfig { port: 3128, ..config(&proxy, &[5432]) }.encode().unwrap();
    let program = std::env::current_exe().unwrap();
    let running = tokio::task::spawn_blocking(move || {
        let mut shell = Command::new("unshare")
            .args(["-Urn", "sh", "-c", IN_NAMESPACE, "sh"])
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = shell.stdin.take().unwrap();
        input.write_all(config.as_bytes()).unwrap();
        let mut output = String::new();
        std::io::Read::read_to_string(&mut shell.stdout.take().unwrap(), &mut output).unwrap();
        let status = shell.wait().unwrap();
        // Only now the bridge ends.
        drop(input);
        (status, output)
    });
    let (status, output) = tokio::time::timeout(PATIENCE, running).await.expect("an end").unwrap();
    let want = "proxied: hello\ndenied: 403\nsocks: hello\ndirect: refused\nservice: ping\n";
    assert!(status.success() && output == want, "{status}: {output}");
    assert_eq!(proxy.approver.asked(), ["denied.example.org"]);
}
