//! The fakes must be fast enough not to distort benchmarks.

use std::time::{Duration, Instant};

use petasos_fakes::{Model, Retention, Telegram};
use serde_json::json;

use crate::client::HttpConnection;
use crate::model::{OPENAI, body};

const CLIENTS: usize = 16;
const EACH: usize = 100;

/// Runs parallel clients over persistent connections.
fn run(port: u16, path: &str, body: &str) -> Duration {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _caller in 0..CLIENTS {
            scope.spawn(|| {
                let mut connection = HttpConnection::open(port).unwrap();
                for _turn in 0..EACH {
                    connection.send(path, "content-type: application/json\r\n", body.as_bytes()).unwrap();
                    assert_eq!(connection.receive().unwrap().status, 200);
                }
            });
        }
    });
    began.elapsed()
}

#[test]
fn serves_parallel_requests_over_persistent_connections() {
    let telegram = Telegram::start().unwrap();
    let model = Model::start().unwrap();
    telegram.set_retention(Retention::Nothing);
    model.set_retention(Retention::Nothing);
    let send = json!({"chat_id": 1, "text": "hi"}).to_string();
    let sends = run(telegram.port(), "/bot1:t/sendMessage", &send);
    let turns = run(model.port(), OPENAI, &body(true).to_string());
    let per_second = |took: Duration| (CLIENTS * EACH) as f64 / took.as_secs_f64();
    println!("sendMessage {:.0}/s, streamed answers {:.0}/s", per_second(sends), per_second(turns));
    assert_eq!(telegram.read(|state| state.sent_count()), (CLIENTS * EACH) as u64);
    assert_eq!(model.read(|state| state.request_count()), (CLIENTS * EACH) as u64);
    // Generous, for slow and busy machines; without TCP_NODELAY it would take minutes.
    assert!(sends + turns < Duration::from_secs(20), "{sends:?} {turns:?}");
}
