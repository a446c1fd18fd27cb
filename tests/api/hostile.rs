//! Hostile input: every rejection has a clear error, and other requests are still served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::SOON;
use crate::support::api::{Api, KEY, chat_body, content};
use crate::support::http::{HttpRequest, send_raw};
use petasos_fakes::model::Answer;
use petasos_runtime::clock;
use serde_json::{Value, json};

const LIMIT: usize = 10_000_000;

/// A chat request body of exactly this length.
fn padded_body(length: usize) -> String {
    let empty = chat_body("").to_string();
    chat_body(&" ".repeat(length - empty.len())).to_string()
}

#[track_caller]
fn assert_serves(api: &Api) {
    assert_eq!(content(&api.post("/v1/chat/completions", &chat_body("still there?"))), "echo: still there?");
}

#[test]
fn errors_match_the_published_vectors() {
    let api = Api::start();
    assert_eq!(api.post("/api/sessions", &json!({ "id": "s-one" })).status, 201);
    let run = api.start_run(&json!({ "input": "hello" }));
    api.wait_run(&run, "completed");
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../vectors/api_errors.json")).expect("a list of cases");
    assert!(cases.len() > 30);
    for case in cases {
        let case: Value = serde_json::from_str(&case.to_string().replace("{run}", &run)).expect("a case");
        let method = case["method"].as_str().expect("a method");
        let path = case["path"].as_str().expect("a path");
        let mut request = HttpRequest::new(method, path);
        for (name, value) in case["headers"].as_object().expect("headers") {
            request.headers.push((name, value.as_str().expect("a value").to_owned()));
        }
        request.body = case["body"].as_str().map(str::to_owned);
        let reply = api.send(&request);
        let name = &case["name"];
        assert_eq!(reply.status, case["status"], "{name}: {}", reply.body);
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"), "{name}");
        match &case["error"] {
            Value::Object(fields) => {
                let error = &reply.json()["error"];
                for (field, want) in fields.iter().filter(|(_, want)| !want.is_null()) {
                    assert_eq!(&error[field], want, "{name}: {error}");
                }
            }
            Value::String(error) => assert_eq!(reply.json()["error"], error.as_str(), "{name}"),
            _ if reply.status == 403 => assert_eq!(reply.body, "", "{name}"),
            _ => assert!(reply.json()["error"].is_string(), "{name}: {}", reply.body),
        }
    }
}

#[test]
fn accepts_ten_megabyte_body_and_rejects_one_byte_more() {
    let api = Api::start();
    // The body has the largest allowed size; its text is too long.
    let whole = api.request("POST", "/v1/chat/completions").text(padded_body(LIMIT));
    let reply = api.send(&whole);
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("content_too_long")));
    let too_large = json!({ "message": "Request body too large.", "type": "invalid_request_error",
                            "param": null, "code": "body_too_large" });
    let more = api.send(&api.request("POST", "/v1/chat/completions").text(padded_body(LIMIT + 1)));
    assert_eq!((more.status, &more.json()["error"]), (413, &too_large));
    // Without a content length.
    let body = padded_body(LIMIT + 1);
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\n\
         Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    assert_eq!(send_raw(&api.address, head.as_bytes()).expect("an answer").status, 413);
    // An announced size above the limit is rejected before the body arrives.
    let head = format!(
        "POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 9999999999\r\n\r\n"
    );
    assert_eq!(send_raw(&api.address, head.as_bytes()).expect("an answer").status, 413);
    // Without a key the body is not read.
    let head = "POST /v1/runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000000\r\n\r\n";
    assert_eq!(send_raw(&api.address, head.as_bytes()).expect("an answer").status, 401);
    assert_eq!(api.program.model.requests().len(), 0);
    assert_serves(&api);
}

#[test]
fn rejects_bodies_that_are_not_json_objects() {
    let api = Api::start();
    for path in ["/v1/chat/completions", "/v1/responses", "/v1/runs", "/api/sessions"] {
        for body in ["{bad", "[]", "5", "\"text\"", "{\"a\":1}}", "\u{feff}{}", "{\"messages\":", "nul"] {
            let reply = api.send(&api.request("POST", path).text(body));
            assert_eq!(reply.status, 400, "{path} {body}: {}", reply.body);
            assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
        }
        let mut bytes = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {KEY}\r\nConnection: close\r\nContent-Length: 4\r\n\r\n"
        )
        .into_bytes();
        bytes.extend(b"\xff\xfe{}");
        assert_eq!(send_raw(&api.address, &bytes).expect("an answer").status, 400, "{path}");
        // Nested deeply enough to overflow the stack of a recursive parser.
        let deep = format!("{{\"input\":{}{}}}", "[".repeat(200_000), "]".repeat(200_000));
        assert_eq!(api.send(&api.request("POST", path).text(deep)).status, 400, "{path}");
    }
    assert_eq!(api.program.model.requests().len(), 0);
    assert_serves(&api);
}

#[test]
fn rejects_oversized_and_malformed_headers() {
    let api = Api::start();
    let status_with = |more: &str| {
        let head = format!(
            "GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nAuthorization: Bearer {KEY}\r\n"
        );
        send_raw(&api.address, format!("{head}{more}\r\n").as_bytes()).map(|reply| reply.status)
    };
    assert_eq!(status_with("X-Fine: yes\r\n").expect("an answer"), 200);
    let huge = format!("X-Huge: {}\r\n", "x".repeat(1 << 20));
    let many: String = (0..500).map(|at| format!("X-{at}: y\r\n")).collect();
    for more in [huge, many] {
        // The client gets either a reset or status 431.
        let refused = status_with(&more);
        assert!(refused.as_ref().is_err() || matches!(refused, Ok(431)), "{refused:?}");
    }
    for nonsense in
        ["nonsense\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/1.1\r\nHo st: x\r\n\r\n", "\0\0\0\0\r\n\r\n"]
    {
        let refused = send_raw(&api.address, nonsense.as_bytes()).map(|reply| reply.status);
        assert!(refused.as_ref().is_err() || matches!(refused, Ok(400)), "{nonsense:?}: {refused:?}");
    }
    assert_serves(&api);
}

#[test]
fn blocks_header_injection_by_client_and_model() {
    let api = Api::start();
    let evil = "x\r\nX-Evil: 1";
    let clean = |headers: &[(String, String)]| headers.iter().all(|(name, _)| name != "x-evil");
    // The line break starts another request header; the value ends before it.
    let request = api
        .request("POST", "/v1/chat/completions")
        .header("X-Hermes-Session-Key", evil)
        .json(&chat_body("hello"));
    let reply = api.send(&request);
    assert_eq!((reply.status, reply.header("x-hermes-session-key")), (200, Some("x")));
    assert!(clean(&reply.headers));
    for (name, value) in [
        ("X-Hermes-Session-Key", "a\u{1}b"),
        ("X-Hermes-Session-Key", "a\0b"),
        ("X-Hermes-Session-Id", "a b"),
        ("X-Hermes-Session-Id", "ü"),
        ("X-Hermes-Session-Key", "ü"),
    ] {
        let request =
            api.request("POST", "/v1/chat/completions").header(name, value).json(&chat_body("hello"));
        assert_eq!(api.send(&request).status, 400, "{name}: {value:?}");
    }
    let long = "x".repeat(257);
    for name in ["X-Hermes-Session-Key", "X-Hermes-Session-Id", "Idempotency-Key"] {
        let request =
            api.request("POST", "/v1/chat/completions").header(name, long.clone()).json(&chat_body("hello"));
        assert_eq!(api.send(&request).status, 400, "{name}");
    }
    for body in [json!({ "input": "x", "session_id": evil }), json!({ "input": "x", "session_id": "ü" })] {
        let reply = api.post("/v1/runs", &body);
        assert_eq!((reply.status, &reply.json()["error"]["code"]), (400, &json!("invalid_session_id")));
    }
    // A response header carries the model's error.
    api.program.model.respond(|_| Answer::status(400, "{\"error\":{\"message\":\"no\\r\\nX-Evil: 1\"}}"));
    let failed = api.post("/v1/chat/completions", &chat_body("hello"));
    assert_eq!(failed.status, 502, "{}", failed.body);
    assert!(clean(&failed.headers) && failed.header("x-hermes-error").is_some(), "{:?}", failed.headers);
}

#[test]
fn blocks_path_traversal_in_ids() {
    let api = Api::start();
    std::fs::write(api.program.home.path().join("workspace").join("x"), "secret").ok();
    for id in [
        "..",
        "../../etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "%2e%2e%2f%2e%2e%2fapi_key",
        "....//",
        "a%00b",
        "%ff",
        "a%0d%0ab",
    ] {
        for path in [
            "/v1/runs/{}",
            "/v1/runs/{}/events",
            "/v1/responses/{}",
            "/api/sessions/{}",
            "/api/sessions/{}/messages",
            "/api/jobs/{}",
            "/p/{}/v1/runs/x",
        ] {
            let path = path.replace("{}", id);
            let reply = api.get(&path);
            assert!(matches!(reply.status, 400 | 404), "{path}: {} {}", reply.status, reply.body);
            assert!(reply.json()["error"] != Value::Null, "{path}: {}", reply.body);
            assert!(!reply.body.contains("root:") && !reply.body.contains("secret"), "{path}");
        }
    }
    for id in ["../x", "a/b", "..", "a\\b", "", "x\u{0}"] {
        let reply = api.post("/api/sessions", &json!({ "id": id }));
        assert_eq!(
            (reply.status, &reply.json()["error"]["code"]),
            (400, &json!("invalid_session_id")),
            "{id:?}"
        );
        let reply = api.post("/api/sessions/nowhere/fork", &json!({ "id": id }));
        assert_eq!(reply.status, 400, "{id:?}: {}", reply.body);
    }
}

#[test]
fn drops_slow_clients_and_serves_others() {
    let api = Api::start();
    let began = clock::monotonic();
    let mut slow: Vec<TcpStream> = (0..100)
        .map(|_| {
            let mut socket = TcpStream::connect(&api.address).expect("a connection");
            socket
                .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
                .expect("sent");
            socket
        })
        .collect();
    assert_serves(&api);
    // A byte now and then does not extend the deadline.
    for socket in &mut slow {
        socket.set_read_timeout(Some(SOON)).expect("a limit");
        let _ = socket.write_all(b"x");
    }
    for mut socket in slow {
        let mut response = Vec::new();
        // The connection is reset or closed.
        let _ = socket.read_to_end(&mut response);
        assert!(response.is_empty(), "{}", String::from_utf8_lossy(&response));
    }
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    assert_serves(&api);
}

#[test]
fn stalled_stream_reader_costs_no_memory_and_loses_nothing() {
    let api = Api::start();
    // More than the kernel buffers for a reader.
    let text: String = (0..60_000).map(|at| format!("word{at:06} ")).collect();
    api.program.model.script(Answer::text(text.clone()).chunks(200));
    let run = api.start_run(&json!({ "input": "long" }));
    let path = format!("/v1/runs/{run}/events");
    let stalled: Vec<_> =
        (0..8).map(|_| api.request("GET", &path).send_only(&api.address).expect("a connection")).collect();
    assert_eq!(api.wait_run(&run, "completed")["output"], text.as_str());
    assert_serves(&api);
    let pid = api.program.gateway.as_ref().expect("running").pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    let rss: u64 = line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number");
    assert!(rss < 150 * 1024, "{rss} KiB with eight stalled readers");
    drop(stalled);
    let frames = api.events(&run, None).rest();
    let streamed: String = frames
        .iter()
        .filter(|it| !it.data.is_empty())
        .filter_map(|it| it.json()["delta"].as_str().map(str::to_owned))
        .collect();
    assert_eq!(streamed, text);
}

#[test]
fn truncated_request_starts_no_run() {
    let api = Api::start();
    let request = api.request("POST", "/v1/runs").json(&json!({ "input": "half of a request" }));
    let bytes = request.bytes();
    for cut in [30, bytes.len() / 2, bytes.len() - 1] {
        let mut socket = TcpStream::connect(&api.address).expect("a connection");
        socket.write_all(&bytes.as_bytes()[..cut]).expect("sent");
    }
    assert_serves(&api);
    let listed = api.get("/api/sessions?source=api_server").json();
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "{listed}");
    assert_eq!(api.program.model.requests().len(), 1);
}
