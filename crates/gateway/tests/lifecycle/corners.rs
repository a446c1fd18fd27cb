//! What lies in the corners of a drain, a stop and a start.

use std::time::Duration;

use petasos_core::Inbound;
use petasos_core::admission::BusyMode;
use petasos_core::lifecycle::{From, How, Leave};
use petasos_core::message::{ChatType, Source};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::clock;
use petasos_gateway::home::counts;
use serde_json::json;
use std::sync::Arc;

use super::drain::{engage, release};
use crate::support::planted::{Planted, Tail};
use crate::support::{SOON, World, eventually, key, telegram, web};

const RESTART: Leave = Leave::Restart { how: How::Service, from: From::Outside };

/// A message that an earlier process had accepted.
pub(super) fn accepted_before(world: &World, chat: i64, text: &str) {
    let mut source = Source::new(telegram(), ChatType::Dm, chat.to_string());
    source.user_id = Some(chat.to_string());
    let inbound = Inbound::new(source, format!("before:{text}"), text);
    world.write(|tx| tx.accept(&inbound, &key(chat), clock::now().before(Duration::from_secs(5))));
}

#[test]
fn what_waits_behind_a_turn_that_is_given_up_is_answered() {
    let mut world = World::idle(|_| {});
    world.plant(&Planted { tail: Tail::OpenTurn, age: Duration::from_secs(7200), ..Planted::new(7) });
    accepted_before(&world, 7, "and this?");
    world.start();
    world.sees(7, "interrupted before I could answer");
    world.ends_with(7, "and this?");
    assert_eq!(world.model.requests().len(), 1, "the old question is not asked again");
}

#[test]
fn a_mark_that_a_failed_turn_left_makes_no_turn_of_its_own() {
    let mut world = World::idle(|_| {});
    world.plant(&Planted { tail: Tail::OpenTurn, ..Planted::new(7) });
    world.model.respond(|_| Answer::status(401, ""));
    world.start();
    world.ends_with(7, "refused our API key");
    assert!(world.mark(7).is_some(), "it is not proven healthy");
    world.restart();
    world.telegram.push_text(8, 8, "hello");
    world.ends_with(8, "refused our API key");
    assert_eq!(world.model.requests().len(), 2, "one for the open turn, one for the other chat");
}

#[test]
fn a_turn_that_runs_through_a_drain_is_not_told_that_it_was_cut_off() {
    let mut world = World::with(|setup| setup.lifetime.drain_timeout = Duration::from_secs(600));
    let gate = Arc::new(Gate::new());
    let held = gate.clone();
    world.model.respond(move |request| {
        match String::from_utf8_lossy(&request.raw).contains("tool_call_id") {
            false => Answer::tool("clock", json!({})).gate(Point::Before, &held),
            true => Answer::text("it is late"),
        }
    });
    world.telegram.push_text(7, 7, "what time is it?");
    assert!(gate.wait(SOON));
    world.begin_to_leave(RESTART);
    eventually("marked", || world.mark(7));
    gate.open();
    world.end();
    world.ends_with(7, "it is late");
    let requests = world.model.requests();
    assert_eq!(requests.len(), 2);
    let second = String::from_utf8_lossy(&requests[1].raw).into_owned();
    assert!(!second.contains("System note"), "{second}");
    assert_eq!(world.mark(7), None);
}

#[test]
fn what_the_gateway_tells_itself_passes_those_who_are_held() {
    let world = World::new(|settings| settings.busy = BusyMode::Queue);
    let gate = world.thinks_long_about("slow");
    world.say("c1", "slow");
    assert!(gate.wait(SOON));
    engage(&world);
    world.say("c1", "held");
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
fn what_the_gateway_tells_itself_during_a_stop_is_heard_after_the_start() {
    let mut world = World::with(|setup| setup.lifetime.drain_timeout = Duration::from_secs(600));
    let gate = world.thinks_long_about("slow");
    world.say("c1", "slow");
    assert!(gate.wait(SOON));
    world.begin_to_leave(RESTART);
    let mut inbound = web("c2", "the build has ended");
    inbound.internal = true;
    world.submit(inbound).expect("accepted");
    gate.open();
    world.end();
    let asked =
        |world: &World| world.model.requests().iter().map(|it| it.last_user.clone()).collect::<Vec<_>>();
    assert_eq!(asked(&world), ["slow"]);
    world.start();
    assert!(world.model.wait_requests(2, SOON));
    assert_eq!(asked(&world), ["slow", "the build has ended"]);
}

#[test]
fn counts_that_were_cleared_do_not_come_back_from_their_copy() {
    let mut world = World::new(|_| {});
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    world.stop();
    let stale = json!({ key(7).as_str(): 3 }).to_string();
    std::fs::write(counts::path(world.home()), stale).expect("a file");
    world.start();
    eventually("put right", || (!counts::path(world.home()).exists()).then_some(()));
    assert!(world.entry(7).is_some_and(|entry| !entry.suspended));
}
