//! Shutdown with running turns: marked first, waited for, interrupted at the deadline.

use std::time::Duration;

use petasos_core::lifecycle::{RestartMethod, RestartOrigin, ShutdownReason};
use petasos_fakes::Gate;
use petasos_fakes::model::{Answer, Point};
use petasos_gateway::clock;
use petasos_gateway::home::clean;

use crate::support::{GatewayFixture, SOON, eventually, key};

pub(crate) const RESTART: ShutdownReason =
    ShutdownReason::Restart { method: RestartMethod::Service, origin: RestartOrigin::Outside };

fn with_drain_timeout(patience: Duration) -> GatewayFixture {
    GatewayFixture::with(|setup| setup.lifetime.drain_timeout = patience)
}

/// Long enough for the test to act.
const LONG: Duration = Duration::from_secs(60);
const BRIEF: Duration = Duration::from_millis(50);

#[test]
fn marks_turns_running_at_deadline_with_reason() {
    for (why, reason, code) in [
        (ShutdownReason::Stop, "shutdown_timeout", 0),
        (ShutdownReason::Signal, "shutdown_timeout", 1),
        (RESTART, "restart_timeout", 75),
    ] {
        let mut world = with_drain_timeout(BRIEF);
        let gate = world.hold_model_on("stuck");
        for chat in [7, 8] {
            world.telegram.push_text(chat, chat, "stuck");
        }
        assert!(gate.wait_for(2, SOON));
        assert_eq!(world.shut_down(why).why.exit_code(), code);
        for chat in [7, 8] {
            assert_eq!(world.mark(chat).as_deref(), Some(reason), "chat {chat}, {why:?}");
            assert_eq!(world.failures(chat), 1);
        }
        assert!(!clean::path(world.home()).exists(), "a turn was interrupted");
    }
}

#[test]
fn marks_turn_while_it_still_runs() {
    let mut world = with_drain_timeout(LONG);
    let gate = world.hold_model_on("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    assert_eq!(world.mark(7), None);
    world.begin_shutdown(RESTART);
    eventually("marked", || world.mark(7).filter(|reason| reason == "restart_timeout"));
    assert_eq!((gate.waiting(), world.handle().snapshot().active()), (1, 1), "it still runs");
    assert!(world.handle().skip(&key(7)));
    world.wait_for_exit();
    assert!(gate.wait_gone(1, SOON), "now it is interrupted");
    assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
}

#[test]
fn turn_finished_in_time_leaves_clean_shutdown() {
    let mut world = with_drain_timeout(LONG);
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.begin_shutdown(ShutdownReason::Stop);
    eventually("marked", || world.mark(7));
    gate.open();
    world.wait_for_exit();
    world.expect_message(7, "echo: slow");
    assert_eq!(world.mark(7), None);
    assert_eq!(world.failures(7), 0);
    assert_eq!(world.model.requests().len(), 1);
    assert!(clean::path(world.home()).exists());
    world.start();
    assert!(!clean::path(world.home()).exists(), "it is good for one start");
}

#[test]
fn marks_only_the_interrupted_turn() {
    let mut world = with_drain_timeout(LONG);
    let gate = world.hold_model_on("stuck");
    let slow = Gate::new();
    world.model.script(Answer::text("done").gate(Point::Before, &slow));
    world.telegram.push_text(7, 7, "slow");
    assert!(slow.wait(SOON));
    world.telegram.push_text(8, 8, "stuck");
    assert!(gate.wait(SOON));
    world.begin_shutdown(ShutdownReason::Stop);
    for chat in [7, 8] {
        eventually("marked", || world.mark(chat));
    }
    slow.open();
    world.expect_message(7, "done");
    world.until("alone", |it| (it.active() == 1).then_some(()));
    assert!(world.handle().skip(&key(8)));
    world.wait_for_exit();
    assert_eq!((world.mark(7), world.mark(8).as_deref()), (None, Some("shutdown_timeout")));
    assert_eq!((world.failures(7), world.failures(8)), (0, 1));
    assert!(!clean::path(world.home()).exists());
}

#[test]
fn failed_turn_is_not_marked() {
    let mut world = with_drain_timeout(LONG);
    let slow = Gate::new();
    let failing = Answer::status(401, "");
    world.model.script(failing.gate(Point::Before, &slow));
    world.telegram.push_text(7, 7, "slow");
    assert!(slow.wait(SOON));
    world.begin_shutdown(ShutdownReason::Stop);
    eventually("marked", || world.mark(7));
    slow.open();
    world.wait_for_exit();
    world.expect_message(7, "rejected the API key");
    assert_eq!(world.mark(7), None, "the author got the failure notice");
}

#[test]
fn zero_drain_timeout_interrupts_turns_at_once() {
    let mut world = with_drain_timeout(Duration::ZERO);
    let gate = world.hold_model_on("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    let started = clock::monotonic();
    world.shut_down(ShutdownReason::Stop);
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(world.mark(7).as_deref(), Some("shutdown_timeout"));
}

#[test]
fn extended_wait_lets_turn_finish() {
    let mut world = with_drain_timeout(Duration::from_millis(300));
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    world.begin_shutdown(ShutdownReason::Stop);
    let deadline = world.until("leaving", |it| it.leaving?.deadline);
    assert_eq!(world.handle().extend(&key(8), LONG), None, "it is not at work");
    assert_eq!(world.handle().extend(&key(7), LONG), Some(deadline.after(LONG)));
    eventually("past the deadline", || (clock::now() > deadline.after(BRIEF)).then_some(()));
    assert_eq!(gate.waiting(), 1);
    gate.open();
    world.wait_for_exit();
    world.expect_message(7, "echo: slow");
    assert_eq!(world.mark(7), None);
    assert!(clean::path(world.home()).exists());
}

#[test]
fn second_request_stops_waiting() {
    let mut world = with_drain_timeout(LONG);
    let gate = world.hold_model_on("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    world.begin_shutdown(RESTART);
    eventually("marked", || world.mark(7));
    assert_eq!(
        world.handle().shut_down(ShutdownReason::Stop, Some("never mind".into())),
        ShutdownReason::Stop
    );
    world.handle().skip_drain();
    let end = world.wait_for_exit();
    assert_eq!((end.why, end.reason.as_deref()), (ShutdownReason::Stop, Some("never mind")));
    assert_eq!(world.mark(7).as_deref(), Some("shutdown_timeout"), "the last wish names the reason");
    assert_eq!(world.state()["gateway_state"], "stopped");
    assert_eq!(world.state()["restart_requested"], false);
}
