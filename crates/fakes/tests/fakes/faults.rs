//! Fault injection into Telegram requests, as the caller and the user see it.

use std::time::{Duration, Instant};

use petasos_fakes::telegram::{Fault, Outcome, ServiceError, Side};
use petasos_fakes::{Gate, Telegram};
use serde_json::json;

use crate::client::{HttpConnection, TIMEOUT, call_bot_in_background, poll, send_message};

/// The response that the caller of a `sendMessage` gets.
#[derive(Debug, PartialEq, Eq)]
enum Received {
    Ok,
    Status(u16),
    NoResponse,
    Garbage,
    Cut,
}

#[track_caller]
fn check(fault: Fault, want: Received, visible: bool, outcome: Outcome) {
    let fake = Telegram::start().unwrap();
    fake.on("sendMessage").does(fault.clone());
    let received = match send_message(fake.port(), 1, "hi") {
        Err(_) => Received::NoResponse,
        Ok(reply) if reply.cut => Received::Cut,
        Ok(reply) if serde_json::from_slice::<serde_json::Value>(&reply.body).is_err() => Received::Garbage,
        Ok(reply) if reply.status == 200 => Received::Ok,
        Ok(reply) => Received::Status(reply.status),
    };
    assert_eq!(received, want, "{fault:?}");
    assert_eq!(fake.visible(1).len(), usize::from(visible), "{fault:?}");
    let call = fake.calls_of("sendMessage").remove(0);
    assert_eq!((call.applied, call.outcome), (visible, outcome), "{fault:?}");
    assert_eq!(send_message(fake.port(), 1, "again").unwrap().status, 200, "{fault:?} applies once");
}

#[test]
fn applies_each_fault() {
    let refused = |code, description: &str, retry_after| {
        Outcome::Refused(ServiceError { code, description: description.into(), retry_after })
    };
    check(Fault::Delay(Duration::from_millis(5)), Received::Ok, true, Outcome::Ok);
    check(
        Fault::too_many(3),
        Received::Status(429),
        false,
        refused(429, "Too Many Requests: retry after 3", Some(3)),
    );
    check(Fault::status(502, "Bad Gateway"), Received::Status(502), false, refused(502, "Bad Gateway", None));
    check(Fault::ResetBefore, Received::NoResponse, false, Outcome::Reset);
    check(Fault::ResetAfter, Received::NoResponse, true, Outcome::Reset);
    check(Fault::Garbage, Received::Garbage, false, Outcome::Garbled);
    check(Fault::HalfBody, Received::Cut, true, Outcome::Garbled);
}

#[test]
fn rate_limit_names_retry_after_for_one_chat() {
    let fake = Telegram::start().unwrap();
    fake.on("sendMessage").chat(2).does(Fault::too_many(7));
    assert_eq!(send_message(fake.port(), 1, "other chat").unwrap().status, 200);
    assert_eq!(send_message(fake.port(), 2, "this chat").unwrap().json()["parameters"]["retry_after"], 7);
}

#[test]
fn half_body_ends_after_half_its_length() {
    let fake = Telegram::start().unwrap();
    fake.on("*").does(Fault::HalfBody);
    let reply = send_message(fake.port(), 1, "hi").unwrap();
    let promised: usize = reply.header("content-length").unwrap().parse().unwrap();
    assert_eq!(reply.body.len(), promised / 2);
}

#[test]
fn hanging_requests_continue_after_release() {
    for (fault, visible) in [(Fault::Hang, 0), (Fault::HangAfter, 1)] {
        let fake = Telegram::start().unwrap();
        fake.on("sendMessage").does(fault);
        let hanging = call_bot_in_background(fake.port(), "sendMessage", json!({"chat_id": 1, "text": "hi"}));
        let arrived = |applied| {
            fake.wait_until(TIMEOUT, |state| {
                state.calls().next().filter(|call| call.applied == applied).map(|_| ())
            })
        };
        assert!(arrived(visible == 1).is_some());
        assert_eq!(fake.visible(1).len(), visible);
        assert!(!hanging.is_finished());
        fake.release_hangs();
        assert_eq!(hanging.join().unwrap().unwrap().status, 200);
        assert_eq!(fake.visible(1).len(), 1);
    }
}

#[test]
fn gate_holds_request_before_or_after_processing() {
    for (side, visible) in [(Side::Before, 0), (Side::After, 1)] {
        let fake = Telegram::start().unwrap();
        let gate = fake.gate("sendMessage", side);
        let held = call_bot_in_background(fake.port(), "sendMessage", json!({"chat_id": 1, "text": "hi"}));
        assert!(gate.wait(TIMEOUT), "{side:?}");
        assert_eq!(fake.visible(1).len(), visible, "{side:?}");
        assert_eq!(fake.calls()[0].outcome, Outcome::Pending);
        gate.pass_one();
        assert_eq!(held.join().unwrap().unwrap().status, 200);
        assert_eq!((fake.visible(1).len(), gate.waiting(), gate.arrived()), (1, 0, 1));
    }
}

#[test]
fn drops_request_whose_caller_hangs_up_at_a_gate() {
    for (side, visible) in [(Side::Before, 0), (Side::After, 1)] {
        let fake = Telegram::start().unwrap();
        let gate = fake.on("sendMessage").chat(1).gate(side);
        let mut caller = HttpConnection::open(fake.port()).unwrap();
        caller.send("/bot1:t/sendMessage?chat_id=1&text=hi", "", b"").unwrap();
        assert!(gate.wait(TIMEOUT));
        drop(caller);
        assert!(gate.wait_gone(1, TIMEOUT), "{side:?}");
        let abandoned = |call: &&petasos_fakes::telegram::ApiCall| call.outcome == Outcome::Abandoned;
        assert!(fake.wait_until(TIMEOUT, |state| state.calls().find(abandoned).map(|_| ())).is_some());
        drop(gate);
        assert_eq!(send_message(fake.port(), 1, "next").unwrap().status, 200, "a dropped gate is open");
        assert_eq!(fake.visible(1).len(), visible + 1, "{side:?}");
    }
}

#[test]
fn repeats_updates_despite_the_offset() {
    let fake = Telegram::start().unwrap();
    fake.on("getUpdates").does(Fault::duplicate_updates());
    let first = fake.push_text(1, 1, "a");
    assert_eq!(poll(fake.port(), 0, 0), [first]);
    assert_eq!(poll(fake.port(), first + 1, 0), [first]);
    assert!(poll(fake.port(), first + 1, 0).is_empty());
}

#[test]
fn keeps_updates_of_a_reset_poll() {
    let fake = Telegram::start().unwrap();
    fake.on("getUpdates").does(Fault::ResetAfter);
    let id = fake.push_text(1, 1, "a");
    assert!(crate::client::call_bot(fake.port(), "getUpdates", &json!({"timeout": 5})).is_err());
    assert_eq!(poll(fake.port(), 0, 0), [id]);
}

#[test]
fn outage_refuses_connections_and_keeps_state() {
    let fake = Telegram::start().unwrap();
    fake.push_text(1, 1, "before");
    let waiting = call_bot_in_background(fake.port(), "getUpdates", json!({"offset": 9, "timeout": 50}));
    assert!(fake.wait_until(TIMEOUT, |state| state.calls().next().map(|_| ())).is_some());
    let began = Instant::now();
    fake.down();
    assert!(waiting.join().unwrap().is_err(), "the poll is reset");
    assert!(began.elapsed() < Duration::from_secs(50), "the poll did not end by itself");
    assert!(HttpConnection::open(fake.port()).is_err());
    fake.push_text(1, 1, "during");
    fake.up().unwrap();
    assert_eq!(poll(fake.port(), 0, 0), [2]);
}

#[test]
fn unused_gate_sees_no_requests() {
    let gate = Gate::new();
    assert!(!gate.wait(Duration::from_millis(1)));
}
