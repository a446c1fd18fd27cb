//! Messages that are promised an answer although no turn may start now.

use petasos_core::admission::BusyMode;
use petasos_core::journal::Outcome;
use petasos_core::lifecycle::Leave;
use petasos_fakes::model;

use super::drain::{engage, release};
use crate::support::{SOON, World, key};

#[test]
fn a_busy_chat_is_not_interrupted_by_a_drain_and_what_it_says_runs_afterwards() {
    for mode in [BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer] {
        let world = World::new(|settings| settings.busy = mode);
        let gate = world.thinks_long_about("slow");
        world.telegram.push_text(7, 7, "slow");
        assert!(gate.wait(SOON));
        engage(&world);
        world.telegram.push_text(7, 7, "second");
        world.ends_with(7, "your message is held");
        gate.open();
        world.ends_with(7, "echo: slow");
        world.until("idle", |it| (it.active() == 0).then_some(()));
        // Answered behind everything that a turn may have begun meanwhile.
        world.telegram.push_text(7, 7, "/status");
        world.ends_with(7, "idle, 1 waiting");
        assert_eq!(world.model.requests().len(), 1, "{mode:?}: it is held");
        assert_eq!(
            world.model.requests()[0].outcome(),
            model::Outcome::Answered,
            "{mode:?}: not interrupted"
        );
        release(&world);
        world.ends_with(7, "echo: second");
    }
}

#[test]
fn held_messages_survive_a_restart_into_the_same_drain() {
    let mut world = World::new(|_| {});
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(SOON));
    engage(&world);
    world.telegram.push_text(7, 7, "second");
    world.ends_with(7, "your message is held");
    let mut asked = 1;
    for crashed in [false, true] {
        match crashed {
            false => world.stop(),
            true => world.crash(),
        }
        world.start();
        assert!(world.handle().situation().drain.is_some(), "the marker is still there");
        asked += 1;
        assert!(world.model.wait_requests(asked, SOON), "the turn goes on in the drain");
    }
    gate.open();
    world.sees(7, "echo: ");
    world.telegram.push_text(7, 7, "/status");
    world.ends_with(7, "idle, 1 waiting");
    assert_eq!(world.count(7, "second"), 0);
    release(&world);
    world.ends_with(7, "echo: second");
    assert_eq!(world.count(7, "echo: "), 2);
}

#[test]
fn a_message_whose_turn_was_about_to_start_is_turned_away_when_the_door_closes_first() {
    let world = World::new(|_| {});
    let mut view = world.runtime.block_on(world.handle().view(&key(7))).expect("a view");
    // So long that its second half is waited for.
    world.telegram.push_text(7, 7, "a".repeat(4096));
    world.runtime.block_on(view.wait_for(|view| view.queued == 1)).expect("admitted");
    engage(&world);
    world.ends_with(7, "draining");
    assert_eq!(world.telegram.texts(7).len(), 1);
    assert!(world.model.requests().is_empty());
    assert_eq!(world.entry(7), None);
    assert_eq!(world.read(|reader| reader.settled(Outcome::Refused, 10)).len(), 1);
}

#[test]
fn follow_ups_to_a_restart_are_answered_after_it_if_they_can_wait() {
    for mode in [BusyMode::Queue, BusyMode::Steer] {
        let mut world = World::with(|setup| {
            setup.settings.busy = mode;
            setup.lifetime.drain_timeout = SOON;
        });
        let gate = world.thinks_long_about("slow");
        world.telegram.push_text(7, 7, "slow");
        assert!(gate.wait(SOON));
        world.handle().restart(petasos_core::lifecycle::From::Outside);
        world.telegram.push_text(7, 7, "follow up");
        world.sees(7, "Gateway restarting — queued for the next turn after it comes back");
        assert!(world.handle().skip(&key(7)));
        world.end();
        gate.open();
        world.start();
        world.ends_with(7, "echo: follow up");
        assert_eq!(world.count(7, "echo: "), 2, "{mode:?}: {:?}", world.telegram.texts(7));
    }
}

#[test]
fn follow_ups_that_cannot_wait_are_turned_away_by_whoever_leaves() {
    let restart = |world: &World| world.handle().restart(petasos_core::lifecycle::From::Outside);
    let stop = |world: &World| world.handle().leave(Leave::Stop, None);
    for (mode, leave) in [
        (BusyMode::Interrupt, &restart as &dyn Fn(&World) -> Leave),
        (BusyMode::Queue, &stop),
        (BusyMode::Interrupt, &stop),
    ] {
        let mut world = World::with(|setup| {
            setup.settings.busy = mode;
            setup.lifetime.drain_timeout = SOON;
        });
        let gate = world.thinks_long_about("slow");
        world.telegram.push_text(7, 7, "slow");
        assert!(gate.wait(SOON));
        leave(&world);
        world.telegram.push_text(7, 7, "follow up");
        world.sees(7, "is not accepting another turn right now");
        gate.open();
        world.sees(7, "echo: slow");
        world.end();
        assert_eq!(world.read(|reader| reader.settled(Outcome::Refused, 10)).len(), 1);
    }
}
