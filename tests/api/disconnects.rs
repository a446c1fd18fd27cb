//! Clients that disconnect during a request: what the gateway has stored still takes effect.

use std::io::Write;
use std::os::unix::net::UnixStream;

use crate::support::{ProgramFixture, eventually};
use petasos_fakes::model::Answer;
use serde_json::{Value, json};

/// Each request has its own chat or job, so that none wakes the lane of another.
const REQUESTS: i64 = 25;

/// Sends a request over the control socket. Dropping the socket closes the connection.
fn send_request(fixture: &ProgramFixture, path: &str, body: &Value) -> UnixStream {
    let mut socket = UnixStream::connect(fixture.home.path().join("petasos.sock")).expect("it listens");
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: petasos\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all((head + &body).as_bytes()).expect("sent");
    socket
}

fn started_fixture() -> ProgramFixture {
    let mut fixture = ProgramFixture::new();
    fixture.model.respond(|_| Answer::text("done"));
    fixture.start();
    fixture.wait_state("running");
    fixture
}

#[test]
fn delivers_stored_messages_after_client_disconnects() {
    let fixture = started_fixture();
    let mut clients = Vec::new();
    for chat in 1..=REQUESTS {
        let body = json!({ "to": format!("telegram:{chat}"), "text": "the news", "wait": 5 });
        clients.push(send_request(&fixture, "/api/post", &body));
    }
    let delivered = || (1..=REQUESTS).filter(|chat| fixture.telegram.texts(*chat) == ["the news"]).count();
    // The first is served; the others are at different await points.
    eventually("one of them arrived", || delivered() > 0);
    drop(clients);
    // No stored message waits for another request.
    fixture.wait_idle();
}

#[test]
fn starts_stored_job_runs_after_client_disconnects() {
    let fixture = started_fixture();
    let paths: Vec<String> = (1..=REQUESTS)
        .map(|chat| {
            let deliver = format!("telegram:{chat}");
            let add = ["--json", "cron", "add", "every 5h", "work", "--deliver", &deliver, "--name", "Look"];
            let job = crate::support::expect_json(&fixture.run(&add));
            format!("/api/schedule/{}/run", job["id"].as_str().expect("an id"))
        })
        .collect();
    // Creating a job takes longer than a run. All jobs exist first, so that some requests are open at the disconnect.
    let clients: Vec<_> = paths.iter().map(|path| send_request(&fixture, path, &json!({}))).collect();
    let delivered = || (1..=REQUESTS).filter(|chat| !fixture.telegram.texts(*chat).is_empty()).count();
    eventually("one of them ran", || delivered() > 0);
    drop(clients);
    fixture.wait_idle();
    let runs = crate::support::expect_json(&fixture.run(&["--json", "cron", "list"]));
    let begun = runs.as_array().into_iter().flatten().filter(|job| job["repeat"]["completed"] == 1).count();
    eventually("every run that began is delivered", || delivered() == begun);
}
