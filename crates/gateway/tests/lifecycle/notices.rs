//! Notices about a shutdown and the next start.

use std::time::Duration;

use petasos_core::lifecycle::{RestartOrigin, ShutdownReason};
use petasos_fakes::telegram::Fault;
use petasos_gateway::home::{drain, restart};
use petasos_gateway::{HomeChannel, clock};

use super::stop::RESTART;
use crate::support::{GatewayFixture, SOON, Setup, key, telegram};

const HOME: i64 = 99;

fn with_home_channel(setup: &mut Setup) {
    let platform = telegram();
    let chat_id = HOME.to_string();
    let name = "home".to_owned();
    setup.lifetime.home_channels = vec![HomeChannel { platform, chat_id, thread_id: None, name }];
}

/// Shuts a gateway down while a turn of chat 7 runs.
fn shut_down_while_busy(why: ShutdownReason, change: impl FnOnce(&mut Setup)) -> GatewayFixture {
    let mut world = GatewayFixture::with(change);
    let gate = world.hold_model_on("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    world.shut_down(why);
    world
}

#[test]
fn notifies_chat_with_running_turn_once() {
    let world = shut_down_while_busy(RESTART, |_| {});
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("restarting") && texts[0].contains("try to resume"), "{texts:?}");
    assert!(texts[0].contains("Gateway restarting") && texts[0].contains("interrupted"), "{texts:?}");
    let world = shut_down_while_busy(ShutdownReason::Stop, |_| {});
    let texts = world.telegram.texts(7);
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("shutting down") && texts[0].contains("interrupted"), "{texts:?}");
    assert!(!texts[0].contains("resume"), "{texts:?}");
}

#[test]
fn notifies_chat_with_two_sessions_once() {
    let mut world = GatewayFixture::new(|_| {});
    let gate = world.hold_model_on("stuck");
    for member in [1, 2] {
        world.telegram.push_text(-100, member, "stuck");
    }
    assert!(gate.wait_for(2, SOON));
    assert_eq!(world.handle().snapshot().active(), 2);
    world.shut_down(RESTART);
    assert_eq!(world.telegram.texts(-100).len(), 1, "{:?}", world.telegram.texts(-100));
}

#[test]
fn idle_gateway_shuts_down_without_notice() {
    let mut world = GatewayFixture::new(|_| {});
    world.telegram.push_text(7, 7, "hello");
    world.expect_messages(7, &["echo: hello"]);
    world.shut_down(RESTART);
    assert_eq!(world.telegram.texts(7), ["echo: hello"]);
}

#[test]
fn quiet_platform_gets_no_notice() {
    let world = shut_down_while_busy(RESTART, |setup| {
        with_home_channel(setup);
        setup.lifetime.quiet_platforms = vec![telegram()];
    });
    assert!(world.telegram.texts(7).is_empty() && world.telegram.texts(HOME).is_empty());
    assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
}

#[test]
fn failing_platform_does_not_delay_shutdown() {
    let down = Fault::status(500, "Internal Server Error");
    for (fault, patience) in [(down, 15), (Fault::blocked(), 15), (Fault::ResetBefore, 15), (Fault::Hang, 25)]
    {
        let mut world = GatewayFixture::new(|_| {});
        let gate = world.hold_model_on("stuck");
        world.telegram.push_text(7, 7, "stuck");
        assert!(gate.wait(SOON));
        world.telegram.on("sendMessage").always().does(fault.clone());
        let started = clock::monotonic();
        world.shut_down(RESTART);
        let took = started.elapsed();
        assert!(took < Duration::from_secs(patience), "{fault:?} took {took:?}");
        assert_eq!(world.mark(7).as_deref(), Some("restart_timeout"));
        // The banner is obsolete after the shutdown, so the next gateway must not send it.
        world.telegram.clear_faults();
        gate.open();
        // The chat accepts messages again.
        world.write(|tx| tx.mark_chat_alive(telegram(), "7"));
        world.start();
        world.expect_message(7, "echo: ");
        // A request that hangs in a socket of this process may still arrive.
        let most = usize::from(fault == Fault::Hang);
        assert!(world.count(7, "Gateway restarting") <= most, "{fault:?}");
    }
}

#[test]
fn notifies_home_channels_unless_suppressed() {
    for (suppressed, from, want) in [
        (false, RestartOrigin::Outside, 1),
        (true, RestartOrigin::Outside, 0),
        (false, RestartOrigin::Chat, 0),
        (true, RestartOrigin::Chat, 0),
    ] {
        let mut world = GatewayFixture::with(with_home_channel);
        let gate = world.hold_model_on("stuck");
        world.telegram.push_text(7, 7, "stuck");
        assert!(gate.wait(SOON));
        let ask = drain::DrainRequest { suppress_notification: suppressed, ..drain::DrainRequest::default() };
        drain::write(world.home(), &ask, clock::now()).expect("a marker");
        world.until("draining", |it| it.drain.is_some().then_some(()));
        world.handle().restart(from);
        world.wait_for_exit();
        assert_eq!(world.telegram.texts(HOME).len(), want, "{suppressed} {from:?}");
        assert_eq!(world.count(7, "Gateway restarting"), 1, "{suppressed} {from:?}");
    }
}

#[test]
fn home_channel_with_running_turn_is_notified_once() {
    let mut world = GatewayFixture::with(with_home_channel);
    let gate = world.hold_model_on("stuck");
    world.telegram.push_text(HOME, HOME, "stuck");
    assert!(gate.wait(SOON));
    world.shut_down(RESTART);
    assert_eq!(world.telegram.texts(HOME).len(), 1);
}

#[test]
fn confirms_restart_once_to_the_requesting_chat() {
    let mut world = GatewayFixture::with(with_home_channel);
    world.telegram.push_text(7, 7, "/restart");
    world.expect_last_message(7, "Restarting gateway. I should be back within 60 seconds");
    let end = world.wait_for_exit();
    assert!(matches!(end.why, ShutdownReason::Restart { origin: RestartOrigin::Chat, .. }), "{end:?}");
    assert!(restart::read::<restart::RestartRequest>(world.home()).is_some());
    world.start();
    world.expect_last_message(7, "Gateway restarted successfully");
    assert!(restart::read::<restart::RestartRequest>(world.home()).is_none());
    assert!(world.telegram.texts(HOME).is_empty(), "only the requesting chat is notified");
    world.restart();
    // After all other outbox items of this chat.
    world.telegram.push_text(7, 7, "/help");
    world.expect_last_message(7, "/resume");
    assert_eq!(world.count(7, "restarted successfully"), 1);
}

#[test]
fn notifies_home_channels_after_restart_not_after_stop() {
    for (why, want) in [(RESTART, 1), (ShutdownReason::Stop, 0)] {
        let mut world = GatewayFixture::with(with_home_channel);
        world.shut_down(why);
        world.telegram.clear();
        world.start();
        world.telegram.push_text(HOME, HOME, "/help");
        world.expect_message(HOME, "/resume");
        if want == 1 {
            world.expect_message(HOME, "Gateway online");
        }
        assert_eq!(world.count(HOME, "Gateway online"), want, "{why:?}");
    }
}

#[test]
fn second_restart_reports_restart_in_progress() {
    let mut world = GatewayFixture::with(|setup| setup.lifetime.drain_timeout = SOON * 3);
    let gate = world.hold_model_on("stuck");
    world.telegram.push_text(7, 7, "stuck");
    assert!(gate.wait(SOON));
    for (chat, want) in [
        (8, "Draining 1 active agent(s) first"),
        (8, "already in progress"),
        (9, "Draining 1 active agent(s)"),
    ] {
        world.telegram.push_text(chat, chat, "/restart");
        world.expect_last_message(chat, want);
    }
    let asked = restart::read::<restart::RestartRequest>(world.home()).expect("a note");
    assert_eq!(asked.chat_id, "8", "the first requester is notified");
    assert!(world.handle().skip(&key(7)));
    world.wait_for_exit();
}
