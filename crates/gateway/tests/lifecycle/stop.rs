//! How a stop treats the turns that run: marked first, given their time, cut off only at its end.

use std::time::{Duration, Instant};

use petasos_core::lifecycle::{From, How, Leave};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::clock;
use petasos_gateway::home::clean;

use crate::support::{SOON, World, eventually, key};

pub(crate) const RESTART: Leave = Leave::Restart { how: How::Service, from: From::Outside };

fn patient(patience: Duration) -> World {
    World::with(|setup| setup.lifetime.drain_timeout = patience)
}

/// Time for the test to act within.
const AGES: Duration = Duration::from_secs(60);
const BRIEF: Duration = Duration::from_millis(50);

#[test]
fn turns_that_still_run_at_the_end_are_marked_with_the_reason() {
    for (why, reason, code) in [
        (Leave::Stop, "shutdown_timeout", 0),
        (Leave::Signal, "shutdown_timeout", 1),
        (RESTART, "restart_timeout", 75),
    ] {
        let mut world = patient(BRIEF);
        let gate = world.thinks_long_about("stuck");
        for chat in [7, 8] {
            world.telegram.push_text(chat, chat, "stuck");
        }
        assert!(gate.wait_for(2, SOON));
        assert_eq!(world.leave(why).why.exit_code(), code);
        for chat in [7, 8] {
            assert_eq!(world.mark(chat).as_deref(), Some(reason), "chat {chat}, {why:?}");
            assert_eq!(world.failures(chat), 1);
        }
        assert!(!clean::path(world.home()).exists(), "somebody was interrupted");
    }
}

#[test]
fn a_turn_is_marked_while_it_still_runs() {
    let mut world = patient(AGES);
    let gate = world.thinks_long_about("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    assert_eq!(world.mark(7), None);
    world.begin_to_leave(RESTART);
    eventually("marked", || world.mark(7).filter(|reason| reason == "restart_timeout"));
    assert_eq!((gate.waiting(), world.handle().situation().active()), (1, 1), "it still runs");
    assert!(world.handle().skip(&key(7)));
    world.end();
    assert!(gate.wait_gone(1, SOON), "now it is interrupted");
    assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
}

#[test]
fn a_turn_that_ends_in_time_leaves_no_mark_and_a_clean_stop() {
    let mut world = patient(AGES);
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.begin_to_leave(Leave::Stop);
    eventually("marked", || world.mark(7));
    gate.open();
    world.end();
    world.sees(7, "echo: slow");
    assert_eq!(world.mark(7), None);
    assert_eq!(world.failures(7), 0);
    assert_eq!(world.model.requests().len(), 1);
    assert!(clean::path(world.home()).exists());
    world.start();
    assert!(!clean::path(world.home()).exists(), "it is good for one start");
}

#[test]
fn of_two_turns_only_the_one_that_was_cut_off_is_marked() {
    let mut world = patient(AGES);
    let gate = world.thinks_long_about("stuck");
    let slow = Gate::new();
    world.model.script(Answer::text("done").gate(Point::Before, &slow));
    world.telegram.push_text(7, 7, "slow");
    assert!(slow.wait(SOON));
    world.telegram.push_text(8, 8, "stuck");
    assert!(gate.wait(SOON));
    world.begin_to_leave(Leave::Stop);
    for chat in [7, 8] {
        eventually("marked", || world.mark(chat));
    }
    slow.open();
    world.sees(7, "done");
    world.until("alone", |it| (it.active() == 1).then_some(()));
    assert!(world.handle().skip(&key(8)));
    world.end();
    assert_eq!((world.mark(7), world.mark(8).as_deref()), (None, Some("shutdown_timeout")));
    assert_eq!((world.failures(7), world.failures(8)), (0, 1));
    assert!(!clean::path(world.home()).exists());
}

#[test]
fn a_turn_that_fails_in_the_drain_is_not_marked_either() {
    let mut world = patient(AGES);
    let slow = Gate::new();
    let failing = Answer::status(401, "");
    world.model.script(failing.gate(Point::Before, &slow));
    world.telegram.push_text(7, 7, "slow");
    assert!(slow.wait(SOON));
    world.begin_to_leave(Leave::Stop);
    eventually("marked", || world.mark(7));
    slow.open();
    world.end();
    world.sees(7, "refused our API key");
    assert_eq!(world.mark(7), None, "its author was told how it ended");
}

#[test]
fn without_patience_running_turns_are_interrupted_at_once() {
    let mut world = patient(Duration::ZERO);
    let gate = world.thinks_long_about("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    let started = Instant::now();
    world.leave(Leave::Stop);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(world.mark(7).as_deref(), Some("shutdown_timeout"));
}

#[test]
fn a_session_that_is_waited_for_longer_gets_to_its_answer() {
    let mut world = patient(Duration::from_millis(300));
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.begin_to_leave(Leave::Stop);
    let deadline = world.until("leaving", |it| it.leaving?.deadline);
    assert_eq!(world.handle().extend(&key(8), AGES), None, "it is not at work");
    assert_eq!(world.handle().extend(&key(7), AGES), Some(deadline.after(AGES)));
    eventually("past the deadline", || (clock::now() > deadline.after(BRIEF)).then_some(()));
    assert_eq!(gate.waiting(), 1);
    gate.open();
    world.end();
    world.sees(7, "echo: slow");
    assert_eq!(world.mark(7), None);
    assert!(clean::path(world.home()).exists());
}

#[test]
fn a_second_wish_does_not_wait_for_anybody() {
    let mut world = patient(AGES);
    let gate = world.thinks_long_about("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    world.begin_to_leave(RESTART);
    eventually("marked", || world.mark(7));
    assert_eq!(world.handle().leave(Leave::Stop, Some("never mind".into())), Leave::Stop);
    world.handle().hurry();
    let end = world.end();
    assert_eq!((end.why, end.reason.as_deref()), (Leave::Stop, Some("never mind")));
    assert_eq!(world.mark(7).as_deref(), Some("shutdown_timeout"), "the last wish names the reason");
    assert_eq!(world.state()["gateway_state"], "stopped");
    assert_eq!(world.state()["restart_requested"], false);
}
