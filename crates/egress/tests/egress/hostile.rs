//! Destinations and credentials that must be refused, whatever their spelling and protocol.

use petasos_egress::{EgressLimits, HostDecision, NetworkPolicy};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::support::{TestProxy, echo, origin, read_answer, read_head, rules, status};

/// Every name and address that leads to the metadata service or to this machine's network.
const INTERNAL: [&str; 26] = [
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "169.254.43518",
    "169.254.169.254.",
    "[::ffff:169.254.169.254]",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::1]",
    "[fd00:ec2::254]",
    "100.100.100.200",
    "metadata.google.internal",
    "10.0.0.1",
    "0x0a.1",
    "012.0.0.1",
    "172.16.0.1",
    "192.168.257",
    "[::ffff:192.168.1.1]",
    "[fd12::1]",
    "[fe80::1]",
    "0.0.0.0",
    "0",
    "[::]",
    "255.255.255.255",
    "intranet",
];

async fn socks_reply(proxy: &TestProxy, session: &str, host: &str, port: u16) -> u8 {
    let credential = proxy.credential(session);
    let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
    let counted = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let host = host.trim_matches(['[', ']']);
    let messages = [
        &[5, 1, 2][..],
        &[1],
        &counted(&credential.name),
        &counted(credential.token.expose()),
        &[5, 1, 0, 3],
        &counted(host),
        &port.to_be_bytes(),
    ];
    stream.write_all(&messages.concat()).await.unwrap();
    let mut answer = [0; 14];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..4], [5, 2, 1, 0], "the login of {session} is accepted");
    answer[5]
}

#[tokio::test]
async fn internal_destinations_are_refused_in_every_protocol() {
    let proxy = TestProxy::start().await;
    for host in INTERNAL {
        assert_eq!(proxy.connect_status("s", &format!("{host}:80")).await, 403, "CONNECT {host}");
        let request = format!(
            "GET http://{host}/latest/meta-data/ HTTP/1.1\r\nHost: {host}\r\n{}\r\n",
            proxy.authorization("s")
        );
        let answer = proxy.send(request.as_bytes()).await;
        assert!(matches!(status(&answer), 403 | 400), "GET {host}: {answer}");
        assert_eq!(socks_reply(&proxy, "s", host, 80).await, 2, "SOCKS {host}");
    }
    assert_eq!(proxy.network.connected(), Vec::<String>::new());
    assert_eq!(proxy.network.resolved(), Vec::<String>::new(), "no name is resolved for a refused host");
    assert_eq!(
        proxy.approver.asked(),
        Vec::<String>::new(),
        "no question about a host that cannot be allowed"
    );
}

#[tokio::test]
async fn names_of_internal_addresses_are_refused_despite_approval() {
    let proxy = TestProxy::start().await;
    for (index, ip) in [
        "127.0.0.1",
        "::1",
        "10.1.2.3",
        "169.254.169.254",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "0.0.0.0",
        "fe80::1",
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("n{index}.example.org");
        proxy.approver.decide(&name, HostDecision::Always);
        proxy.network.name(&name, &[&[ip]]);
        assert_eq!(proxy.connect_status("s", &format!("{name}:443")).await, 403, "{ip}");
        // One internal address among public ones is enough.
        proxy.network.name(&name, &[&["93.184.216.34", ip]]);
        assert_eq!(
            proxy.connect_status("s", &format!("{name}:443")).await,
            403,
            "{ip} behind a public address"
        );
        assert_eq!(socks_reply(&proxy, "s", &name, 443).await, 2, "SOCKS {ip}");
    }
    assert_eq!(proxy.network.connected(), Vec::<String>::new());
}

#[tokio::test]
async fn the_connection_uses_the_address_that_was_checked() {
    let proxy = TestProxy::allowing(&["rebind.example.org"]).await;
    let (server, _reports) = origin().await;
    proxy.network.name("rebind.example.org", &[&["93.184.216.34"], &["127.0.0.1"]]);
    proxy.network.server("93.184.216.34:443", server);
    assert_eq!(proxy.connect_status("s", "rebind.example.org:443").await, 200);
    assert_eq!(proxy.network.resolved(), ["rebind.example.org"], "one resolution for one connection");
    assert_eq!(
        proxy.connect_status("s", "rebind.example.org:443").await,
        403,
        "the second answer is internal"
    );
    assert_eq!(proxy.network.connected(), ["93.184.216.34:443"]);
}

#[tokio::test]
async fn loopback_services_need_a_grant_for_their_port() {
    let policy = NetworkPolicy {
        allow: rules(&["127.0.0.1:5000"]),
        own_ports: vec![8642],
        ..NetworkPolicy::default()
    };
    let proxy = TestProxy::with(policy, EgressLimits::default()).await;
    let server = echo().await;
    for port in [5000, 5001, 5002, 8642] {
        proxy.network.server(&format!("127.0.0.1:{port}"), server);
    }
    proxy.approver.decide("127.0.0.1:5001", HostDecision::Once);
    for (authority, want) in [
        ("localhost:5000", 200),
        ("0x7f.1:5001", 200),
        ("127.0.0.1:5002", 403),
        ("localhost:8642", 403),
        ("[::ffff:7f00:1]:8642", 403),
        ("127.0.0.2:8642", 403),
    ] {
        assert_eq!(proxy.connect_status("s", authority).await, want, "{authority}");
    }
    assert_eq!(proxy.approver.asked(), ["127.0.0.1:5001", "127.0.0.1:5002"]);
    assert_eq!(proxy.network.connected(), ["127.0.0.1:5000", "127.0.0.1:5001"]);
}

#[tokio::test]
async fn refusals_tell_the_program_how_to_get_the_permission() {
    let proxy = TestProxy::start().await;
    let head = format!("CONNECT db.example.org:5432 HTTP/1.1\r\n{}\r\n", proxy.authorization("s"));
    let answer = proxy.send(head.as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 403")
            && answer.contains("the user denied access to db.example.org:5432"),
        "{answer}"
    );
    assert_eq!(proxy.approver.asked(), ["db.example.org:5432"]);
    // The denial stands for the session.
    assert_eq!(proxy.connect_status("s", "db.example.org:5432").await, 403);
    assert_eq!(proxy.approver.asked().len(), 1);
}

#[tokio::test]
async fn requests_without_valid_credentials_are_refused() {
    let proxy = TestProxy::allowing(&["example.org"]).await;
    let other = proxy.credential("other");
    let encode = |text: &str| {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(text)
    };
    let mine = proxy.credential("s");
    for header in [
        String::new(),
        format!("Proxy-Authorization: Basic {}\r\n", encode("s.run:")),
        format!("Proxy-Authorization: Basic {}\r\n", encode(&format!("s.run:{}", "0".repeat(64)))),
        format!("Proxy-Authorization: Basic {}\r\n", encode(&format!("s.run:{}", other.token.expose()))),
        format!("Proxy-Authorization: Basic {}\r\n", encode(&format!("s.run:{}x", mine.token.expose()))),
        format!("Proxy-Authorization: Bearer {}\r\n", mine.token.expose()),
        format!("Authorization: Basic {}\r\n", encode(&format!("s.run:{}", mine.token.expose()))),
        format!("{}{}", proxy.authorization("s"), proxy.authorization("other")),
    ] {
        let connect =
            proxy.send(format!("CONNECT example.org:443 HTTP/1.1\r\n{header}\r\n").as_bytes()).await;
        assert_eq!(status(&connect), 407, "{header}: {connect}");
        assert!(connect.to_lowercase().contains("proxy-authenticate: basic"), "{connect}");
        let get = proxy
            .send(format!("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n{header}\r\n").as_bytes())
            .await;
        assert_eq!(status(&get), 407, "{header}: {get}");
    }
    assert_eq!(proxy.network.resolved(), Vec::<String>::new());
}

#[tokio::test]
async fn socks_without_valid_credentials_is_refused() {
    let proxy = TestProxy::allowing(&["example.org"]).await;
    for (bytes, want) in [
        (vec![5, 1, 0], vec![5, 0xff]),
        (vec![5, 0], vec![5, 0xff]),
        (vec![5, 2, 0, 2, 1, 5, b's', b'.', b'r', b'u', b'n', 1, b'x'], vec![5, 2, 1, 1]),
        (vec![5, 1, 2, 9], vec![5, 2]),
    ] {
        let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, want, "{bytes:?}");
    }
}

#[tokio::test]
async fn a_connection_cannot_change_its_session() {
    let proxy = TestProxy::allowing(&["example.org"]).await;
    proxy.network.name("example.org", &[&["93.184.216.34"]]);
    let (server, _reports) = origin().await;
    proxy.network.server("93.184.216.34:80", server);
    let request = |session: &str| {
        let authorization = proxy.authorization(session);
        format!("GET http://example.org/ HTTP/1.1\r\nHost: example.org\r\n{authorization}\r\n")
    };
    let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
    stream.write_all((request("s") + &request("other")).as_bytes()).await.unwrap();
    assert_eq!(status(&read_answer(&mut stream).await), 200);
    assert_eq!(status(&read_answer(&mut stream).await), 407);
}

#[tokio::test]
async fn bridges_need_a_valid_preamble() {
    let proxy = TestProxy::allowing(&["example.org"]).await;
    let token = proxy.credential("s").token;
    for preamble in [
        "CONNECT example.org:443 HTTP/1.1\r\n\r\n".to_owned(),
        "\n".to_owned(),
        "petasos-egress/1 s.run 00\nCONNECT example.org:443 HTTP/1.1\r\n\r\n".to_owned(),
        format!("petasos-egress/1 other.run {}\nCONNECT example.org:443 HTTP/1.1\r\n\r\n", token.expose()),
        format!("petasos-egress/1 s.run {} not-a-destination\n", token.expose()),
        "x".repeat(5000),
    ] {
        let mut stream = UnixStream::connect(&proxy.socket).await.unwrap();
        // The proxy may close before everything is written.
        let _closed = stream.write_all(preamble.as_bytes()).await;
        let mut answer = Vec::new();
        let _closed = stream.read_to_end(&mut answer).await;
        assert_eq!(answer, b"", "{preamble}");
    }
    assert_eq!(proxy.network.resolved(), Vec::<String>::new());
}

#[tokio::test]
async fn malformed_requests_are_answered_and_nothing_is_reached() {
    let proxy = TestProxy::start().await;
    let authorization = proxy.authorization("s");
    for (line, want) in [
        ("CONNECT example.org HTTP/1.1", 400),
        ("CONNECT example.org:0 HTTP/1.1", 400),
        ("CONNECT example.org:99999 HTTP/1.1", 400),
        ("CONNECT user@example.org:443 HTTP/1.1", 400),
        ("CONNECT http://example.org:443 HTTP/1.1", 400),
        ("CONNECT ::1:443 HTTP/1.1", 400),
        ("GET / HTTP/1.1", 400),
        ("GET https://example.org/ HTTP/1.1", 400),
        ("GET http://user:password@example.org/ HTTP/1.1", 400),
        ("GET ftp://example.org/ HTTP/1.1", 400),
        ("GET http://example.org:99999/ HTTP/1.1", 400),
        ("\x04\x01\x00\x50", 400),
        ("SSH-2.0-OpenSSH_9.2", 400),
    ] {
        let answer =
            proxy.send(format!("{line}\r\nHost: example.org\r\n{authorization}\r\n").as_bytes()).await;
        assert_eq!(status(&answer), want, "{line}: {answer}");
    }
    assert_eq!(proxy.approver.asked(), Vec::<String>::new());
    assert_eq!(proxy.network.resolved(), Vec::<String>::new());
}

#[tokio::test]
async fn the_direct_listener_is_for_this_machine_only() {
    let proxy = TestProxy::start().await;
    let everywhere = TcpListener::bind("0.0.0.0:0").await.unwrap();
    let config = petasos_egress::EgressConfig {
        policy: NetworkPolicy::default(),
        limits: EgressLimits::default(),
        key: [0; 32],
        network: proxy.network.clone(),
    };
    let server = petasos_egress::EgressServer::new(config, proxy.approver.clone());
    let refused = server.serve_direct(everywhere).await.unwrap_err();
    assert!(refused.to_string().contains("loopback"), "{refused}");
}

#[tokio::test]
async fn tunnels_carry_bytes_in_both_directions() {
    let proxy = TestProxy::allowing(&["echo.example.org:7"]).await;
    proxy.network.name("echo.example.org", &[&["93.184.216.34"]]);
    proxy.network.server("93.184.216.34:7", echo().await);
    let mut stream = TcpStream::connect(proxy.direct).await.unwrap();
    // Sent together with the request: nothing behind the head may be lost.
    let head = format!("CONNECT echo.example.org:7 HTTP/1.1\r\n{}\r\nfirst,", proxy.authorization("s"));
    stream.write_all(head.as_bytes()).await.unwrap();
    assert_eq!(status(&read_head(&mut stream).await), 200);
    let long = "x".repeat(300_000);
    let (mut read, mut write) = stream.into_split();
    let writing = tokio::spawn(async move {
        write.write_all(long.as_bytes()).await.unwrap();
        write.shutdown().await.unwrap();
    });
    let mut back = Vec::new();
    read.read_to_end(&mut back).await.unwrap();
    writing.await.unwrap();
    assert_eq!(back.len(), 300_006);
    assert!(back.starts_with(b"first,xxx"));
}

#[tokio::test]
async fn socks_tunnels_begin_behind_the_reply() {
    let proxy = TestProxy::allowing(&["echo.example.org:7"]).await;
    proxy.network.name("echo.example.org", &[&["93.184.216.34"]]);
    proxy.network.server("93.184.216.34:7", echo().await);
    assert_eq!(socks_reply(&proxy, "s", "echo.example.org", 7).await, 0);
    let token = proxy.credential("s").token;
    let mut stream = UnixStream::connect(&proxy.socket).await.unwrap();
    let mut bytes = format!("petasos-egress/1 s.run {}\n", token.expose()).into_bytes();
    bytes.extend_from_slice(b"\x05\x01\x00\x05\x01\x00\x03\x10echo.example.org\x00\x07payload");
    stream.write_all(&bytes).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, b"\x05\x00\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00payload");
}

#[tokio::test]
async fn closed_ports_and_unknown_names_have_their_own_answers() {
    let proxy = TestProxy::allowing(&["*.example.org"]).await;
    proxy.network.name("closed.example.org", &[&["93.184.216.34"]]);
    assert_eq!(proxy.connect_status("s", "closed.example.org:443").await, 502);
    assert_eq!(proxy.connect_status("s", "unknown.example.org:443").await, 502);
    assert_eq!(socks_reply(&proxy, "s", "closed.example.org", 443).await, 5);
    assert_eq!(socks_reply(&proxy, "s", "unknown.example.org", 443).await, 4);
    let head = format!("CONNECT unknown.example.org:443 HTTP/1.1\r\n{}\r\n", proxy.authorization("s"));
    assert!(proxy.send(head.as_bytes()).await.contains("cannot be resolved"));
}
