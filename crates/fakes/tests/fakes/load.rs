//! The fakes must not be what a benchmark measures.

use std::time::{Duration, Instant};

use petasos_fakes::{Keep, Model, Telegram};
use serde_json::json;

use crate::client::Connection;
use crate::model::{OPENAI, body};

const CALLERS: usize = 16;
const EACH: usize = 100;

/// Runs callers side by side over connections that stay open.
fn run(port: u16, path: &str, body: &str) -> Duration {
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _caller in 0..CALLERS {
            scope.spawn(|| {
                let mut connection = Connection::open(port).unwrap();
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
fn connections_stay_open_and_requests_are_quick() {
    let (telegram, model) = (Telegram::start().unwrap(), Model::start().unwrap());
    telegram.record(Keep::Nothing);
    model.record(Keep::Nothing);
    let send = json!({"chat_id": 1, "text": "hi"}).to_string();
    let sends = run(telegram.port(), "/bot1:t/sendMessage", &send);
    let turns = run(model.port(), OPENAI, &body(true).to_string());
    let per_second = |took: Duration| (CALLERS * EACH) as f64 / took.as_secs_f64();
    println!("sendMessage {:.0}/s, streamed answers {:.0}/s", per_second(sends), per_second(turns));
    assert_eq!(telegram.look(|world| world.sent_count()), (CALLERS * EACH) as u64);
    assert_eq!(model.look(|desk| desk.request_count()), (CALLERS * EACH) as u64);
    // Generous, for slow and busy machines; without TCP_NODELAY it would take minutes.
    assert!(sends + turns < Duration::from_secs(20), "{sends:?} {turns:?}");
}
