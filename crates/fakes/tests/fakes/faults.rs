//! Telegram going wrong on demand: what the caller sees, and what the user sees.

use std::time::{Duration, Instant};

use petasos_fakes::telegram::{Fault, Outcome, Side};
use petasos_fakes::{Gate, Telegram};
use serde_json::json;

use crate::client::{Connection, SOON, bot_later, poll, say};

/// What the caller of a faulty `sendMessage` gets.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    Ok,
    Status(u16),
    NoAnswer,
    Rubbish,
    Cut,
}

#[track_caller]
fn check(fault: Fault, got: Got, visible: bool, outcome: Outcome) {
    let fake = Telegram::start().unwrap();
    fake.on("sendMessage").does(fault.clone());
    let seen = match say(fake.port(), 1, "hi") {
        Err(_) => Got::NoAnswer,
        Ok(reply) if reply.cut => Got::Cut,
        Ok(reply) if serde_json::from_slice::<serde_json::Value>(&reply.body).is_err() => Got::Rubbish,
        Ok(reply) if reply.status == 200 => Got::Ok,
        Ok(reply) => Got::Status(reply.status),
    };
    assert_eq!(seen, got, "{fault:?}");
    assert_eq!(fake.visible(1).len(), usize::from(visible), "{fault:?}");
    let call = fake.calls_of("sendMessage").remove(0);
    assert_eq!((call.applied, call.outcome), (visible, outcome), "{fault:?}");
    assert_eq!(say(fake.port(), 1, "again").unwrap().status, 200, "{fault:?} strikes once");
}

#[test]
fn each_fault_does_what_it_says() {
    let refused = |code, description: &str| Outcome::Refused { code, description: description.into() };
    check(Fault::Delay(Duration::from_millis(5)), Got::Ok, true, Outcome::Ok);
    check(Fault::too_many(3), Got::Status(429), false, refused(429, "Too Many Requests: retry after 3"));
    check(Fault::status(502, "Bad Gateway"), Got::Status(502), false, refused(502, "Bad Gateway"));
    check(Fault::ResetBefore, Got::NoAnswer, false, Outcome::Reset);
    check(Fault::ResetAfter, Got::NoAnswer, true, Outcome::Reset);
    check(Fault::Garbage, Got::Rubbish, false, Outcome::Garbled);
    check(Fault::HalfBody, Got::Cut, true, Outcome::Garbled);
}

#[test]
fn a_refusal_names_the_seconds_to_wait() {
    let fake = Telegram::start().unwrap();
    fake.on("sendMessage").chat(2).does(Fault::too_many(7));
    assert_eq!(say(fake.port(), 1, "other chat").unwrap().status, 200);
    assert_eq!(say(fake.port(), 2, "this chat").unwrap().json()["parameters"]["retry_after"], 7);
}

#[test]
fn half_a_body_is_half_a_body() {
    let fake = Telegram::start().unwrap();
    fake.on("*").does(Fault::HalfBody);
    let reply = say(fake.port(), 1, "hi").unwrap();
    let promised: usize = reply.header("content-length").unwrap().parse().unwrap();
    assert_eq!(reply.body.len(), promised / 2);
}

#[test]
fn hanging_requests_wait_for_release_and_go_on() {
    for (fault, visible) in [(Fault::Hang, 0), (Fault::HangAfter, 1)] {
        let fake = Telegram::start().unwrap();
        fake.on("sendMessage").does(fault);
        let hanging = bot_later(fake.port(), "sendMessage", json!({"chat_id": 1, "text": "hi"}));
        let arrived = |applied| {
            fake.wait_until(SOON, |world| {
                world.calls().next().filter(|call| call.applied == applied).map(|_| ())
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
fn a_gate_holds_a_send_on_either_side_of_its_effect() {
    for (side, visible) in [(Side::Before, 0), (Side::After, 1)] {
        let fake = Telegram::start().unwrap();
        let gate = fake.gate("sendMessage", side);
        let held = bot_later(fake.port(), "sendMessage", json!({"chat_id": 1, "text": "hi"}));
        assert!(gate.wait(SOON), "{side:?}");
        assert_eq!(fake.visible(1).len(), visible, "{side:?}");
        assert_eq!(fake.calls()[0].outcome, Outcome::Pending);
        gate.pass_one();
        assert_eq!(held.join().unwrap().unwrap().status, 200);
        assert_eq!((fake.visible(1).len(), gate.waiting(), gate.arrived()), (1, 0, 1));
    }
}

#[test]
fn a_caller_that_dies_at_a_gate_is_noticed_and_goes_no_further() {
    for (side, visible) in [(Side::Before, 0), (Side::After, 1)] {
        let fake = Telegram::start().unwrap();
        let gate = fake.on("sendMessage").chat(1).gate(side);
        let mut caller = Connection::open(fake.port()).unwrap();
        caller.send("/bot1:t/sendMessage?chat_id=1&text=hi", "", b"").unwrap();
        assert!(gate.wait(SOON));
        drop(caller);
        assert!(gate.wait_gone(1, SOON), "{side:?}");
        let abandoned = |call: &&petasos_fakes::telegram::Call| call.outcome == Outcome::Abandoned;
        assert!(fake.wait_until(SOON, |world| world.calls().find(abandoned).map(|_| ())).is_some());
        drop(gate);
        assert_eq!(say(fake.port(), 1, "next").unwrap().status, 200, "a dropped gate is open");
        assert_eq!(fake.visible(1).len(), visible + 1, "{side:?}");
    }
}

#[test]
fn updates_come_again_despite_the_offset() {
    let fake = Telegram::start().unwrap();
    fake.on("getUpdates").does(Fault::DuplicateUpdates);
    let first = fake.push_text(1, 1, "a");
    assert_eq!(poll(fake.port(), 0, 0), [first]);
    assert_eq!(poll(fake.port(), first + 1, 0), [first]);
    assert!(poll(fake.port(), first + 1, 0).is_empty());
}

#[test]
fn a_poll_that_dies_takes_no_update_with_it() {
    let fake = Telegram::start().unwrap();
    fake.on("getUpdates").does(Fault::ResetAfter);
    let id = fake.push_text(1, 1, "a");
    assert!(crate::client::bot(fake.port(), "getUpdates", &json!({"timeout": 5})).is_err());
    assert_eq!(poll(fake.port(), 0, 0), [id]);
}

#[test]
fn an_outage_refuses_connections_and_keeps_the_state() {
    let fake = Telegram::start().unwrap();
    fake.push_text(1, 1, "before");
    let waiting = bot_later(fake.port(), "getUpdates", json!({"offset": 9, "timeout": 50}));
    assert!(fake.wait_until(SOON, |world| world.calls().next().map(|_| ())).is_some());
    let began = Instant::now();
    fake.down();
    assert!(waiting.join().unwrap().is_err(), "the poll is reset");
    assert!(began.elapsed() < Duration::from_secs(50), "the poll's own end");
    assert!(Connection::open(fake.port()).is_err());
    fake.push_text(1, 1, "during");
    fake.up().unwrap();
    assert_eq!(poll(fake.port(), 0, 0), [2]);
}

#[test]
fn a_gate_may_stand_nowhere() {
    let gate = Gate::new();
    assert!(!gate.wait(Duration::from_millis(1)));
}
