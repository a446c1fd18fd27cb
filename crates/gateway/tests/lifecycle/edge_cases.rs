//! Edge cases of drain, shutdown and start.

use std::time::Duration;

use petasos_core::Inbound;
use petasos_core::admission::BusyMode;
use petasos_core::lifecycle::{RestartMethod, RestartOrigin, ShutdownReason};
use petasos_core::message::{ChatType, Source};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::clock;
use petasos_gateway::home::counts;
use serde_json::json;
use std::sync::Arc;

use super::drain::{engage, release};
use crate::support::planted::{PlantedSession, TranscriptTail};
use crate::support::{GatewayFixture, SOON, eventually, key, telegram, web};

const RESTART: ShutdownReason =
    ShutdownReason::Restart { method: RestartMethod::Service, origin: RestartOrigin::Outside };

/// Stores a message that an earlier process accepted.
pub(super) fn accepted_before(world: &GatewayFixture, chat: i64, text: &str) {
    let mut source = Source::new(telegram(), ChatType::Dm, chat.to_string());
    source.user_id = Some(chat.to_string());
    let inbound = Inbound::new(source, format!("before:{text}"), text);
    world.write(|tx| tx.accept(&inbound, &key(chat), clock::now().before(Duration::from_secs(5))));
}

#[test]
fn answers_messages_behind_a_given_up_turn() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&PlantedSession {
        tail: TranscriptTail::OpenTurn,
        age: Duration::from_secs(7200),
        ..PlantedSession::new(7)
    });
    accepted_before(&world, 7, "and this?");
    world.start();
    world.expect_message(7, "interrupted before I could answer");
    world.expect_last_message(7, "and this?");
    assert_eq!(world.model.requests().len(), 1, "the old question is not asked again");
}

#[test]
fn mark_of_failed_turn_starts_no_turn() {
    let mut world = GatewayFixture::idle(|_| {});
    world.plant(&PlantedSession { tail: TranscriptTail::OpenTurn, ..PlantedSession::new(7) });
    world.model.respond(|_| Answer::status(401, ""));
    world.start();
    world.expect_last_message(7, "rejected the API key");
    assert!(world.mark(7).is_some(), "it is not proven healthy");
    world.restart();
    world.telegram.push_text(8, 8, "hello");
    world.expect_last_message(8, "rejected the API key");
    assert_eq!(world.model.requests().len(), 2, "one for the open turn, one for the other chat");
}

#[test]
fn turn_that_survives_a_drain_gets_no_interruption_note() {
    let mut world = GatewayFixture::with(|setup| setup.lifetime.drain_timeout = Duration::from_secs(600));
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| {
        if String::from_utf8_lossy(&request.raw).contains("tool_call_id") {
            Answer::text("it is late")
        } else {
            Answer::tool("clock", json!({})).gate(Point::Before, &held)
        }
    });
    world.telegram.push_text(7, 7, "what time is it?");
    assert!(gate.wait(SOON));
    world.begin_shutdown(RESTART);
    eventually("marked", || world.mark(7));
    gate.open();
    world.wait_for_exit();
    world.expect_last_message(7, "it is late");
    let requests = world.model.requests();
    assert_eq!(requests.len(), 2);
    let second = String::from_utf8_lossy(&requests[1].raw).into_owned();
    assert!(!second.contains("System note"), "{second}");
    assert_eq!(world.mark(7), None);
}

#[test]
fn internal_messages_bypass_held_messages() {
    let world = GatewayFixture::new(|settings| settings.busy = BusyMode::Queue);
    let gate = world.hold_model_on("slow");
    world.send_web("c1", "slow");
    assert!(gate.wait(SOON));
    engage(&world);
    world.send_web("c1", "held");
    let mut inbound = web("c1", "the build has ended");
    inbound.internal = true;
    world.submit(inbound).expect("accepted");
    gate.open();
    assert!(world.model.wait_requests(2, SOON));
    assert_eq!(world.model.requests()[1].last_user, "the build has ended");
    world.until("idle", |it| (it.active() == 0).then_some(()));
    release(&world);
    assert!(world.model.wait_requests(3, SOON));
    assert_eq!(world.model.requests()[2].last_user, "held");
}

#[test]
fn internal_messages_during_shutdown_run_after_restart() {
    let mut world = GatewayFixture::with(|setup| setup.lifetime.drain_timeout = Duration::from_secs(600));
    let gate = world.hold_model_on("slow");
    world.send_web("c1", "slow");
    assert!(gate.wait(SOON));
    world.begin_shutdown(RESTART);
    let mut inbound = web("c2", "the build has ended");
    inbound.internal = true;
    world.submit(inbound).expect("accepted");
    gate.open();
    world.wait_for_exit();
    let asked = |world: &GatewayFixture| {
        world.model.requests().iter().map(|it| it.last_user.clone()).collect::<Vec<_>>()
    };
    assert_eq!(asked(&world), ["slow"]);
    world.start();
    assert!(world.model.wait_requests(2, SOON));
    assert_eq!(asked(&world), ["slow", "the build has ended"]);
}

#[test]
fn cleared_counts_are_not_restored_from_the_file() {
    let mut world = GatewayFixture::new(|_| {});
    world.telegram.push_text(7, 7, "hello");
    world.expect_last_message(7, "echo: hello");
    world.stop();
    let stale = json!({ key(7).as_str(): 3 }).to_string();
    std::fs::write(counts::path(world.home()), stale).expect("a file");
    world.start();
    eventually("put right", || (!counts::path(world.home()).exists()).then_some(()));
    assert!(world.entry(7).is_some_and(|entry| !entry.suspended));
}
