//! Clients that hang up while their request is served: what is stored of it takes effect all the same.

use std::io::Write;
use std::os::unix::net::UnixStream;

use crate::support::{Bench, eventually};
use petasos_fakes::model::Answer;
use serde_json::{Value, json};

/// Requests, each about a chat or a job of its own, so that none wakes what another one left.
const REQUESTS: i64 = 25;

/// Sends a request over the control socket. Dropping the socket hangs up.
fn request(bench: &Bench, path: &str, body: &Value) -> UnixStream {
    let mut socket = UnixStream::connect(bench.home.path().join("petasos.sock")).expect("it listens");
    let body = body.to_string();
    let length = body.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: petasos\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    socket.write_all((head + &body).as_bytes()).expect("sent");
    socket
}

fn ready() -> Bench {
    let mut bench = Bench::new();
    bench.model.respond(|_| Answer::text("done"));
    bench.start();
    bench.await_state("running");
    bench
}

#[test]
fn stored_posts_are_delivered_after_the_client_hung_up() {
    let bench = ready();
    let mut clients = Vec::new();
    for chat in 1..=REQUESTS {
        let body = json!({ "to": format!("telegram:{chat}"), "text": "the news", "wait": 5 });
        clients.push(request(&bench, "/api/post", &body));
    }
    let told = || (1..=REQUESTS).filter(|chat| bench.telegram.texts(*chat) == ["the news"]).count();
    // The first is served; the others are at whatever await they have reached.
    eventually("one of them arrived", || told() > 0);
    drop(clients);
    // Nothing that was stored waits for somebody else to ask.
    bench.settle();
}

#[test]
fn stored_job_runs_begin_after_the_client_hung_up() {
    let bench = ready();
    let paths: Vec<String> = (1..=REQUESTS)
        .map(|chat| {
            let deliver = format!("telegram:{chat}");
            let add = ["--json", "cron", "add", "every 5h", "work", "--deliver", &deliver, "--name", "Look"];
            let job = crate::support::json(&bench.run(&add));
            format!("/api/schedule/{}/run", job["id"].as_str().expect("an id"))
        })
        .collect();
    // Creating a job takes longer than a run: all requests follow each other, so that some are open at the hang-up.
    let clients: Vec<_> = paths.iter().map(|path| request(&bench, path, &json!({}))).collect();
    let told = || (1..=REQUESTS).filter(|chat| !bench.telegram.texts(*chat).is_empty()).count();
    eventually("one of them ran", || told() > 0);
    drop(clients);
    bench.settle();
    let runs = crate::support::json(&bench.run(&["--json", "cron", "list"]));
    let begun = runs.as_array().into_iter().flatten().filter(|job| job["repeat"]["completed"] == 1).count();
    eventually("every run that began is told", || told() == begun);
}
