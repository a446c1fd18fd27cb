//! What chats hear of a stop, and of the start after it.

use std::time::{Duration, Instant};

use petasos_core::lifecycle::{From, Leave};
use petasos_fakes::telegram::Fault;
use petasos_gateway::home::{drain, restart};
use petasos_gateway::{HomeChannel, clock};

use super::stop::RESTART;
use crate::support::{SOON, Setup, World, key, telegram};

const HOME: i64 = 99;

fn at_home(setup: &mut Setup) {
    let (platform, chat_id, name) = (telegram(), HOME.to_string(), "home".to_owned());
    setup.lifetime.home_channels = vec![HomeChannel { platform, chat_id, thread_id: None, name }];
}

/// A gateway that leaves while it thinks about something that chat 7 said.
fn left(why: Leave, change: impl FnOnce(&mut Setup)) -> World {
    let mut world = World::with(change);
    let gate = world.thinks_long_about("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    world.leave(why);
    world
}

#[test]
fn a_chat_with_a_running_turn_is_told_once_and_of_a_restart_with_a_promise() {
    let world = left(RESTART, |_| {});
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("restarting") && texts[0].contains("try to resume"), "{texts:?}");
    assert!(texts[0].contains("Gateway restarting") && texts[0].contains("interrupted"), "{texts:?}");
    let world = left(Leave::Stop, |_| {});
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("shutting down") && texts[0].contains("interrupted"), "{texts:?}");
    assert!(!texts[0].contains("resume"), "{texts:?}");
}

#[test]
fn two_sessions_of_one_chat_hear_it_once() {
    let mut world = World::new(|_| {});
    let gate = world.thinks_long_about("stuck");
    for member in [1, 2] {
        world.telegram.push_text(-100, member, "stuck");
    }
    assert!(gate.wait_for(2, SOON));
    assert_eq!(world.handle().situation().active(), 2);
    world.leave(RESTART);
    assert_eq!(world.telegram.texts(-100).len(), 1, "{:?}", world.telegram.texts(-100));
}

#[test]
fn an_idle_gateway_leaves_without_a_word() {
    let mut world = World::new(|_| {});
    world.telegram.push_text(7, 7, "hello");
    world.shows(7, &["echo: hello"]);
    world.leave(RESTART);
    assert_eq!(world.telegram.texts(7), ["echo: hello"]);
}

#[test]
fn a_quiet_platform_is_not_told() {
    let world = left(RESTART, |setup| {
        at_home(setup);
        setup.lifetime.quiet_platforms = vec![telegram()];
    });
    assert!(world.telegram.texts(7).is_empty() && world.telegram.texts(HOME).is_empty());
    assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
}

#[test]
fn a_platform_that_refuses_or_hangs_does_not_hold_the_stop_up() {
    let down = Fault::status(500, "Internal Server Error");
    for (fault, patience) in [(down, 15), (Fault::blocked(), 15), (Fault::ResetBefore, 15), (Fault::Hang, 25)]
    {
        let mut world = World::new(|_| {});
        let gate = world.thinks_long_about("stuck");
        world.telegram.push_text(7, 7, "stuck");
        assert!(gate.wait(SOON));
        world.telegram.on("sendMessage").always().does(fault.clone());
        let started = Instant::now();
        world.leave(RESTART);
        let took = started.elapsed();
        assert!(took < Duration::from_secs(patience), "{fault:?} took {took:?}");
        assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
        // It was true only then: nobody hears it from the next gateway.
        world.telegram.clear_faults();
        gate.open();
        // Whoever blocked us is there again.
        world.write(|tx| tx.mark_chat_alive(telegram(), "7"));
        world.start();
        world.sees(7, "echo: ");
        // What hangs in the socket of a process that is still there, as here, may yet arrive.
        let most = usize::from(fault == Fault::Hang);
        assert!(world.count(7, "Gateway restarting") <= most, "{fault:?}");
    }
}

#[test]
fn home_channels_hear_it_too_unless_the_drain_asks_for_silence_or_a_chat_for_the_restart() {
    for (suppressed, from, want) in
        [(false, From::Outside, 1), (true, From::Outside, 0), (false, From::Chat, 0), (true, From::Chat, 0)]
    {
        let mut world = World::with(at_home);
        let gate = world.thinks_long_about("stuck");
        world.telegram.push_text(7, 7, "stuck");
        assert!(gate.wait(SOON));
        let ask = drain::Ask { suppress_notification: suppressed, ..drain::Ask::default() };
        drain::write(world.home(), &ask, clock::now()).expect("a marker");
        world.until("draining", |it| it.drain.is_some().then_some(()));
        world.handle().restart(from);
        world.end();
        assert_eq!(world.telegram.texts(HOME).len(), want, "{suppressed} {from:?}");
        assert_eq!(world.count(7, "Gateway restarting"), 1, "{suppressed} {from:?}");
    }
}

#[test]
fn a_home_channel_at_work_hears_it_once() {
    let mut world = World::with(at_home);
    let gate = world.thinks_long_about("stuck");
    world.telegram.push_text(HOME, HOME, "stuck");
    assert!(gate.wait(SOON));
    world.leave(RESTART);
    assert_eq!(world.telegram.texts(HOME).len(), 1);
}

#[test]
fn the_chat_that_asked_for_a_restart_hears_that_it_worked_and_nobody_hears_it_twice() {
    let mut world = World::with(at_home);
    world.telegram.push_text(7, 7, "/restart");
    world.ends_with(7, "Restarting gateway. I should be back within 60 seconds");
    let end = world.end();
    assert!(matches!(end.why, Leave::Restart { from: From::Chat, .. }), "{end:?}");
    assert!(restart::read::<restart::Notify>(world.home()).is_some());
    world.start();
    world.ends_with(7, "Gateway restarted successfully");
    assert!(restart::read::<restart::Notify>(world.home()).is_none());
    assert!(world.telegram.texts(HOME).is_empty(), "a chat asked, and nobody else wants to know");
    world.restart();
    // Behind everything else that is owed to this chat.
    world.telegram.push_text(7, 7, "/help");
    world.ends_with(7, "/resume");
    assert_eq!(world.count(7, "restarted successfully"), 1);
}

#[test]
fn home_channels_hear_that_the_gateway_is_back_from_a_restart_and_from_no_stop() {
    for (why, want) in [(RESTART, 1), (Leave::Stop, 0)] {
        let mut world = World::with(at_home);
        world.leave(why);
        world.telegram.clear();
        world.start();
        world.telegram.push_text(HOME, HOME, "/help");
        world.sees(HOME, "/resume");
        if want == 1 {
            world.sees(HOME, "Gateway online");
        }
        assert_eq!(world.count(HOME, "Gateway online"), want, "{why:?}");
    }
}

#[test]
fn a_second_restart_is_already_in_progress() {
    let mut world = World::with(|setup| setup.lifetime.drain_timeout = SOON * 3);
    let gate = world.thinks_long_about("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    for (chat, want) in [
        (8, "Draining 1 active agent(s) first"),
        (8, "already in progress"),
        (9, "Draining 1 active agent(s)"),
    ] {
        world.telegram.push_text(chat, chat, "/restart");
        world.ends_with(chat, want);
    }
    let asked = restart::read::<restart::Notify>(world.home()).expect("a note");
    assert_eq!(asked.chat_id, "8", "the first who asked is told");
    assert!(world.handle().skip(&key(7)));
    world.end();
}
