use petasos_fakes::wait::eventually_async;
use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::body_budget::UNCOUNTED;

fn listen(port: u16) -> ListenAddress {
    ListenAddress { host: "127.0.0.1".into(), port, port_key: "WEBHOOK_PORT" }
}

async fn echo(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match read_body(&parts, body, 16).await {
        Ok(bytes) => json_response(StatusCode::OK, &json!({ "got": String::from_utf8_lossy(&bytes) })),
        Err(BodyError::TooLarge) => json_response(StatusCode::PAYLOAD_TOO_LARGE, &json!({})),
        Err(BodyError::NoMemory) => body_error_response(BodyError::NoMemory),
        Err(BodyError::TooSlow | BodyError::Broken) => json_response(StatusCode::REQUEST_TIMEOUT, &json!({})),
    }
}

/// Sends raw text and returns the whole response.
async fn request(listener: &Listener, input: &str) -> String {
    let talk = async {
        let mut stream = TcpStream::connect(listener.address).await.expect("a connection");
        // The listener may close early.
        let _cut_off = stream.write_all(input.as_bytes()).await;
        let mut answer = Vec::new();
        let _reset = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    tokio::select! {
        never = listener.serve(echo) => match never {},
        answer = talk => answer,
    }
}

#[tokio::test]
async fn delivers_bodies_unchanged_or_refuses_them() {
    let listener = Listener::bind(&listen(0)).await.expect("bound");
    let post = |length: usize, body: &str| {
        format!("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    assert!(request(&listener, &post(5, "a b\nc")).await.contains(r#""got":"a b\nc""#));
    assert!(request(&listener, &post(17, "")).await.starts_with("HTTP/1.1 413"), "announced");
    let chunked = "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n1\r\n!\r\n0\r\n\r\n";
    assert!(request(&listener, chunked).await.starts_with("HTTP/1.1 413"), "found out");
}

#[tokio::test]
async fn refuses_oversized_heads() {
    let listener = Listener::bind(&listen(0)).await.expect("bound");
    let many = "A: b\r\n".repeat(MAX_HEADERS + 1);
    let long = format!("A: {}\r\n", "b".repeat(2 * MAX_HEAD_BYTES));
    for head in [many, long] {
        let answer = request(&listener, &format!("GET /x HTTP/1.1\r\nHost: x\r\n{head}\r\n")).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    assert!(request(&listener, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn self_check_reaches_the_listener() {
    let listener =
        Listener::bind(&ListenAddress { host: "0.0.0.0".into(), ..listen(0) }).await.expect("bound");
    let reached = tokio::select! {
        never = listener.serve(echo) => match never {},
        reached = listener.responds("/health", SELF_CHECK_TIMEOUT) => reached,
    };
    assert!(reached);
}

#[tokio::test]
async fn names_a_port_in_use_and_binds_it_once_free() {
    let first = Listener::bind(&listen(0)).await.expect("bound");
    let port = first.address.port();
    let error = Listener::bind(&listen(port)).await.expect_err("error");
    assert_eq!(error.fault(), Fault::Later { after: None });
    let input = error.to_string();
    assert!(input.contains(&port.to_string()) && input.contains("WEBHOOK_PORT"), "{input}");
    drop(first);
    Listener::bind(&listen(port)).await.expect("free again");
}

#[tokio::test]
async fn retries_an_address_that_does_not_exist_yet() {
    let elsewhere = ListenAddress { host: "192.0.2.1".into(), ..listen(0) };
    let error = Listener::bind(&elsewhere).await.expect_err("not ours");
    assert_eq!(error.fault(), Fault::Later { after: None }, "{error}");
}

#[test]
fn recognises_loopback_hosts() {
    for (host, want) in [
        ("127.0.0.1", true),
        ("127.8.0.1", true),
        ("::1", true),
        ("LocalHost", true),
        ("0.0.0.0", false),
        ("::", false),
        ("10.0.0.1", false),
        ("example.org", false),
        ("", false),
    ] {
        assert_eq!(is_loopback(host), want, "{host}");
    }
}

/// A listener on which requests to `/in` authenticate.
async fn spawn_listener() -> SocketAddr {
    let listener = Listener::bind(&listen(0)).await.expect("bound");
    let address = listener.address();
    petasos_runtime::spawn(async move {
        let answer = |request: Request| async move {
            let (parts, body) = request.into_parts();
            if parts.uri.path() == "/in" {
                parts.extensions.get::<ConnectionSlot>().expect("a slot").mark_authenticated();
            }
            match read_body(&parts, body, 1 << 20).await {
                Ok(bytes) => json_response(StatusCode::OK, &json!({ "got": bytes.len() })),
                Err(error) => body_error_response(error),
            }
        };
        match listener.serve(answer).await {}
    });
    address
}

async fn connect_and_write(address: SocketAddr, input: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(input.as_bytes()).await.expect("written");
    stream
}

async fn read_response(mut stream: TcpStream) -> String {
    let mut output = Vec::new();
    let _reset = timeout(SELF_CHECK_TIMEOUT, stream.read_to_end(&mut output)).await.expect("an end");
    String::from_utf8_lossy(&output).into_owned()
}

#[tokio::test]
async fn serves_clients_despite_slow_strangers() {
    let address = spawn_listener().await;
    let mut slow = Vec::new();
    for number in 0..2 * MAX_CONNECTIONS {
        let input = match number % 3 {
            0 => "",
            1 => "POST /x HTTP/1.1\r\nHost: ",
            _body => "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
        };
        slow.push(connect_and_write(address, input).await);
    }
    let request = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
    let response = timeout(Duration::from_secs(2), async {
        read_response(connect_and_write(address, request).await).await
    })
    .await;
    assert!(response.expect("in time").ends_with(r#"{"got":2}"#));
}

#[tokio::test]
async fn keeps_authenticated_connections_at_the_limit() {
    let address = spawn_listener().await;
    let known = connect_and_write(address, "POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n").await;
    let mut known = known;
    // A response to a later connection shows that this one was read.
    read_response(
        connect_and_write(address, "POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await,
    )
    .await;
    let mut slow = Vec::new();
    for _ in 0..2 * MAX_CONNECTIONS {
        slow.push(connect_and_write(address, "").await);
    }
    known.write_all(b"hi").await.expect("still open");
    assert!(read_response(known).await.ends_with(r#"{"got":2}"#));
}

#[tokio::test]
async fn bounds_the_memory_of_unfinished_bodies() {
    let address = spawn_listener().await;
    let body = "x".repeat((1 << 20) - 1);
    let input = format!("POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", 1 << 20);
    let mut slow = Vec::new();
    for _ in 0..MAX_CONNECTIONS - 1 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        // Bodies over budget are refused while they are sent.
        let _refused = stream.write_all(input.as_bytes()).await;
        slow.push(stream);
        assert!(WEBHOOKS.held() <= WEBHOOKS.limit());
    }
    // The scheduler decides which bodies fit; their number is fixed.
    let fitting = WEBHOOKS.limit() / (body.len() - UNCOUNTED);
    let mut answers: JoinSet<String> = slow.into_iter().map(read_response).collect();
    let mut refused = 0;
    for _ in fitting..MAX_CONNECTIONS - 1 {
        let answer =
            answers.join_next().await.expect("an answer for each that does not fit").expect("an end");
        assert!(answer.is_empty() || answer.contains("HTTP/1.1 503"), "{answer}");
        assert!(answer.is_empty() || answer.to_lowercase().contains("retry-after: 1"), "{answer}");
        refused += usize::from(!answer.is_empty());
    }
    assert!(refused > 0, "the budget was never used up");
    let request = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
    assert!(
        read_response(connect_and_write(address, request).await).await.ends_with(r#"{"got":2}"#),
        "small bodies always fit"
    );
    drop(answers);
    eventually_async("the budget is free", SELF_CHECK_TIMEOUT, || WEBHOOKS.held() == 0).await;
}
