use serde_json::json;
use tokio::task::JoinSet;

use super::*;
use crate::body_budget::UNCOUNTED;

fn place(port: u16) -> Place {
    Place { host: "127.0.0.1".into(), port, port_key: "WEBHOOK_PORT" }
}

async fn echo(request: Request) -> Response {
    let (parts, body) = request.into_parts();
    match read(&parts, body, 16).await {
        Ok(bytes) => json(StatusCode::OK, &json!({ "got": String::from_utf8_lossy(&bytes) })),
        Err(Unread::TooLarge) => json(StatusCode::PAYLOAD_TOO_LARGE, &json!({})),
        Err(Unread::NoRoom) => unread(Unread::NoRoom),
        Err(Unread::TooSlow | Unread::Broken) => json(StatusCode::REQUEST_TIMEOUT, &json!({})),
    }
}

/// Says this to a listener and gives back everything that it answers.
async fn say(listener: &Listener, said: &str) -> String {
    let talk = async {
        let mut stream = TcpStream::connect(listener.address).await.expect("a connection");
        // Whoever is refused early may be cut off while it still talks.
        let _cut_off = stream.write_all(said.as_bytes()).await;
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
async fn a_body_comes_through_as_it_is_or_not_at_all() {
    let listener = Listener::bind(&place(0)).await.expect("bound");
    let post = |length: usize, body: &str| {
        format!("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
    };
    assert!(say(&listener, &post(5, "a b\nc")).await.contains(r#""got":"a b\nc""#));
    assert!(say(&listener, &post(17, "")).await.starts_with("HTTP/1.1 413"), "announced");
    let chunked = "POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n0123456789abcdef\r\n1\r\n!\r\n0\r\n\r\n";
    assert!(say(&listener, chunked).await.starts_with("HTTP/1.1 413"), "found out");
}

#[tokio::test]
async fn heads_without_end_are_refused() {
    let listener = Listener::bind(&place(0)).await.expect("bound");
    let many = "A: b\r\n".repeat(HEADERS + 1);
    let long = format!("A: {}\r\n", "b".repeat(2 * HEAD_BYTES));
    for head in [many, long] {
        let answer = say(&listener, &format!("GET /x HTTP/1.1\r\nHost: x\r\n{head}\r\n")).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    }
    assert!(say(&listener, "nonsense\r\n\r\n").await.starts_with("HTTP/1.1 400"));
}

#[tokio::test]
async fn it_knows_whether_it_can_be_reached() {
    let listener = Listener::bind(&Place { host: "0.0.0.0".into(), ..place(0) }).await.expect("bound");
    let reached = tokio::select! {
        never = listener.serve(echo) => match never {},
        reached = listener.answers("/health", PROOF) => reached,
    };
    assert!(reached);
}

#[tokio::test]
async fn a_port_that_is_taken_is_named_and_tried_again() {
    let first = Listener::bind(&place(0)).await.expect("bound");
    let port = first.address.port();
    let taken = Listener::bind(&place(port)).await.expect_err("taken");
    assert_eq!(taken.fault(), Fault::Later { after: None });
    let said = taken.to_string();
    assert!(said.contains(&port.to_string()) && said.contains("WEBHOOK_PORT"), "{said}");
    drop(first);
    Listener::bind(&place(port)).await.expect("free again");
}

#[tokio::test]
async fn an_address_that_is_not_there_yet_is_waited_for() {
    let elsewhere = Place { host: "192.0.2.1".into(), ..place(0) };
    let error = Listener::bind(&elsewhere).await.expect_err("not ours");
    assert_eq!(error.fault(), Fault::Later { after: None }, "{error}");
}

#[test]
fn loopback_is_known_in_every_spelling() {
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

/// A listener whose requests with `/in` have authenticated, served until the test is over.
async fn served() -> SocketAddr {
    let listener = Listener::bind(&place(0)).await.expect("bound");
    let address = listener.address();
    tokio::spawn(async move {
        let answer = |request: Request| async move {
            let (parts, body) = request.into_parts();
            if parts.uri.path() == "/in" {
                parts.extensions.get::<Seat>().expect("a seat").keep();
            }
            match read(&parts, body, 1 << 20).await {
                Ok(bytes) => json(StatusCode::OK, &json!({ "got": bytes.len() })),
                Err(why) => unread(why),
            }
        };
        match listener.serve(answer).await {}
    });
    address
}

async fn open(address: SocketAddr, said: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(said.as_bytes()).await.expect("written");
    stream
}

async fn rest(mut stream: TcpStream) -> String {
    let mut heard = Vec::new();
    let _reset = timeout(PROOF, stream.read_to_end(&mut heard)).await.expect("an end");
    String::from_utf8_lossy(&heard).into_owned()
}

#[tokio::test]
async fn slow_strangers_do_not_keep_an_honest_client_out() {
    let address = served().await;
    let mut slow = Vec::new();
    for number in 0..2 * CONNECTIONS {
        let said = match number % 3 {
            0 => "",
            1 => "POST /x HTTP/1.1\r\nHost: ",
            _body => "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1",
        };
        slow.push(open(address, said).await);
    }
    let asked = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
    let answered = timeout(Duration::from_secs(2), async { rest(open(address, asked).await).await }).await;
    assert!(answered.expect("in time").ends_with(r#"{"got":2}"#));
}

#[tokio::test]
async fn authenticated_connections_are_not_displaced() {
    let address = served().await;
    let known = open(address, "POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n").await;
    let mut known = known;
    // An answer to a later connection shows that this one has been read.
    rest(open(address, "POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await).await;
    let mut slow = Vec::new();
    for _ in 0..2 * CONNECTIONS {
        slow.push(open(address, "").await);
    }
    known.write_all(b"hi").await.expect("still open");
    assert!(rest(known).await.ends_with(r#"{"got":2}"#));
}

#[tokio::test]
async fn unfinished_bodies_stay_within_their_budget() {
    let address = served().await;
    let body = "x".repeat((1 << 20) - 1);
    let said = format!("POST /in HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}", 1 << 20);
    let mut slow = Vec::new();
    for _ in 0..CONNECTIONS - 1 {
        let mut stream = TcpStream::connect(address).await.expect("a connection");
        // Those that do not fit are refused while they still send.
        let _refused = stream.write_all(said.as_bytes()).await;
        slow.push(stream);
        assert!(WEBHOOKS.held() <= WEBHOOKS.limit());
    }
    // Which of them fit is up to the scheduler; how many is not.
    let fitting = WEBHOOKS.limit() / (body.len() - UNCOUNTED);
    let mut answers: JoinSet<String> = slow.into_iter().map(rest).collect();
    let mut refused = 0;
    for _ in fitting..CONNECTIONS - 1 {
        let answer =
            answers.join_next().await.expect("an answer for each that does not fit").expect("an end");
        assert!(answer.is_empty() || answer.contains("HTTP/1.1 503"), "{answer}");
        assert!(answer.is_empty() || answer.to_lowercase().contains("retry-after: 1"), "{answer}");
        refused += usize::from(!answer.is_empty());
    }
    assert!(refused > 0, "the budget was never used up");
    let asked = "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
    assert!(rest(open(address, asked).await).await.ends_with(r#"{"got":2}"#), "small bodies always fit");
    drop(answers);
    timeout(PROOF, async {
        while WEBHOOKS.held() > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("given back");
}
