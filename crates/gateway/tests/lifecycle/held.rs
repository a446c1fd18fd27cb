//! Accepted messages that wait because no turn may start.

use petasos_core::admission::BusyMode;
use petasos_core::journal::MessageOutcome;
use petasos_core::lifecycle::ShutdownReason;
use petasos_fakes::model;

use super::drain::{engage, release};
use crate::support::{GatewayFixture, SOON, key};

#[test]
fn follow_up_of_busy_chat_runs_after_the_drain() {
    for mode in [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer] {
        let world = GatewayFixture::new(|settings| settings.busy = mode);
        let gate = world.hold_model_on("slow");
        world.telegram.push_text(7, 7, "slow");
        assert!(gate.wait(SOON));
        engage(&world);
        world.telegram.push_text(7, 7, "second");
        world.expect_last_message(7, "your message is held");
        gate.open();
        world.expect_last_message(7, "echo: slow");
        world.until("idle", |it| (it.active() == 0).then_some(()));
        // Answered after any turn that may have started meanwhile.
        world.telegram.push_text(7, 7, "/status");
        world.expect_last_message(7, "idle, 1 message waiting");
        assert_eq!(world.model.requests().len(), 1, "{mode:?}: it is held");
        assert_eq!(
            world.model.requests()[0].outcome(),
            model::RequestOutcome::Answered,
            "{mode:?}: not interrupted"
        );
        release(&world);
        world.expect_last_message(7, "echo: second");
    }
}

#[test]
fn held_messages_survive_restart_during_drain() {
    let mut world = GatewayFixture::new(|_| {});
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    engage(&world);
    world.telegram.push_text(7, 7, "second");
    world.expect_last_message(7, "your message is held");
    let mut asked = 1;
    for crashed in [false, true] {
        if crashed {
            world.crash();
        } else {
            world.stop();
        }
        world.start();
        assert!(world.handle().snapshot().drain.is_some(), "the marker is still there");
        asked += 1;
        assert!(world.model.wait_requests(asked, SOON), "the turn goes on in the drain");
    }
    gate.open();
    world.expect_message(7, "echo: ");
    world.telegram.push_text(7, 7, "/status");
    world.expect_last_message(7, "idle, 1 message waiting");
    assert_eq!(world.count(7, "second"), 0);
    release(&world);
    world.expect_last_message(7, "echo: second");
    assert_eq!(world.count(7, "echo: "), 2);
}

#[test]
fn refuses_message_if_gate_closes_before_its_turn() {
    let world = GatewayFixture::new(|_| {});
    let mut view = world.runtime.block_on(world.handle().view(&key(7))).expect("a view");
    // Long enough to be debounced.
    world.telegram.push_text(7, 7, "a".repeat(4096));
    world.runtime.block_on(view.wait_for(|view| view.queued == 1)).expect("admitted");
    engage(&world);
    world.expect_last_message(7, "draining");
    assert_eq!(world.telegram.texts(7).len(), 1);
    assert!(world.model.requests().is_empty());
    assert_eq!(world.entry(7), None);
    assert_eq!(world.read(|reader| reader.settled(MessageOutcome::Refused, 10)).len(), 1);
}

#[test]
fn queued_follow_ups_are_answered_after_restart() {
    for mode in [BusyMode::Queue, BusyMode::Steer] {
        let mut world = GatewayFixture::with(|setup| {
            setup.settings.busy = mode;
            setup.lifetime.drain_timeout = SOON;
        });
        let gate = world.hold_model_on("slow");
        world.telegram.push_text(7, 7, "slow");
        assert!(gate.wait(SOON));
        world.handle().restart(petasos_core::lifecycle::RestartOrigin::Outside);
        world.telegram.push_text(7, 7, "follow up");
        world.expect_message(7, "Gateway restarting — queued for the next turn after it comes back");
        assert!(world.handle().skip(&key(7)));
        world.wait_for_exit();
        gate.open();
        world.start();
        world.expect_last_message(7, "echo: follow up");
        assert_eq!(world.count(7, "echo: "), 2, "{mode:?}: {:?}", world.telegram.texts(7));
    }
}

#[test]
fn shutdown_refuses_follow_ups_that_cannot_wait() {
    let restart =
        |world: &GatewayFixture| world.handle().restart(petasos_core::lifecycle::RestartOrigin::Outside);
    let stop = |world: &GatewayFixture| world.handle().shut_down(ShutdownReason::Stop, None);
    for (mode, leave) in [
        (BusyMode::Interrupt, &restart as &dyn Fn(&GatewayFixture) -> ShutdownReason),
        (BusyMode::Queue, &stop),
        (BusyMode::Interrupt, &stop),
    ] {
        let mut world = GatewayFixture::with(|setup| {
            setup.settings.busy = mode;
            setup.lifetime.drain_timeout = SOON;
        });
        let gate = world.hold_model_on("slow");
        world.telegram.push_text(7, 7, "slow");
        assert!(gate.wait(SOON));
        leave(&world);
        world.telegram.push_text(7, 7, "follow up");
        world.expect_message(7, "is not accepting another turn right now");
        gate.open();
        world.expect_message(7, "echo: slow");
        world.wait_for_exit();
        assert_eq!(world.read(|reader| reader.settled(MessageOutcome::Refused, 10)).len(), 1);
    }
}
