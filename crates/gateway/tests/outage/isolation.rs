//! Isolation of platforms: failures of one do not affect the others.

use petasos_core::link::{Availability, FailureClass, Link, State};
use petasos_fakes::telegram;

use crate::three_platforms::{CHAT, NAMES, ROOM, ThreePlatforms};
use crate::{MINUTE, SECOND, calm};

fn connected() -> ThreePlatforms {
    let mut world = ThreePlatforms::idle();
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_connected());
    world
}

fn link(world: &ThreePlatforms, name: &str) -> Link {
    world.links().into_iter().find(|(it, _)| *it == name).expect("listed").1
}

fn answers(world: &ThreePlatforms, text: &str) {
    let texts = [text.to_owned()];
    world.send_to_all(text);
    world.time.until("answered", MINUTE, SECOND, || world.unanswered(&texts).is_empty().then_some(()));
}

#[test]
fn replaces_silent_sockets() {
    let world = connected();
    answers(&world, "before");
    world.discord.silence();
    world.slack.silence();
    world.telegram.on("getUpdates").always().does(telegram::Fault::Hang);
    world.send_to_all("into the silence");
    // Slack's next socket works, so the answer proves the reconnect.
    let deaf = |name: &&str| link(&world, name).availability() != Availability::Up;
    world.time.until("noticed", 10 * MINUTE, SECOND, || NAMES[..2].iter().all(deaf).then_some(()));
    world.discord.end_silence();
    world.telegram.clear_faults();
    world.time.until("connected again", 10 * MINUTE, SECOND, || world.all_connected());
    let texts = ["into the silence".to_owned()];
    world.time.until("answered", 10 * MINUTE, SECOND, || world.unanswered(&texts).is_empty().then_some(()));
    for (name, chat) in NAMES.iter().zip(world.answers()) {
        let found = chat.iter().filter(|message| message.contains("into the silence")).count();
        assert_eq!(found, 1, "{name}: {chat:?}");
    }
}

#[test]
fn hour_without_messages_keeps_links_up() {
    let world = connected();
    let before = NAMES.map(|name| link(&world, name).generation);
    world.time.pass(60 * MINUTE, 5 * SECOND);
    assert_eq!(NAMES.map(|name| link(&world, name).generation), before);
    let links = world.links();
    assert!(links.iter().all(|(_, link)| link.status() == "connected"), "{links:?}");
    answers(&world, "after an hour");
}

#[test]
fn resume_from_suspend_reconnects_every_link_once() {
    let world = connected();
    let generations = || NAMES.map(|name| link(&world, name).generation);
    let tried = generations().map(|it| it + 1);
    // Too short for a silence timeout.
    world.time.jump(45 * SECOND);
    let anew = || (generations() == tried).then_some(());
    world.time.until("tried anew", MINUTE, SECOND, anew);
    world.time.until("connected again", MINUTE, SECOND, || world.all_connected());
    world.time.pass(5 * MINUTE, 5 * SECOND);
    assert_eq!(generations(), tried, "once");
    answers(&world, "awake");
}

#[test]
fn fatal_failure_of_one_link_keeps_the_others_up() {
    let world = connected();
    world.telegram.on("*").always().does(telegram::Fault::status(401, "Unauthorized"));
    world.telegram.push_text(CHAT, CHAT, "telegram is lost");
    let fatal = || matches!(link(&world, "telegram").state, State::Fatal { .. });
    world.time.until("lost", 5 * MINUTE, SECOND, || fatal().then_some(()));
    let asked = world.telegram.calls_of("getMe").len();
    world.time.pass(60 * MINUTE, 5 * SECOND);
    let lost = link(&world, "telegram");
    let failure = lost.failure().expect("why");
    assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Fatal, "telegram_invalid_token"));
    assert_eq!(world.telegram.calls_of("getMe").len(), asked, "it is not tried again");
    world.discord.push_text(ROOM, 5, "discord goes on");
    let answered = || world.discord.texts(ROOM).iter().any(|message| message.contains("discord goes on"));
    world.time.until("answered", MINUTE, SECOND, || answered().then_some(()));
}

#[test]
fn pauses_and_resumes_platform_from_another_chat() {
    let world = connected();
    let shows = |want: &str| world.discord.texts(ROOM).iter().any(|message| message.contains(want));
    world.discord.push_text(ROOM, 5, "/platform pause telegram");
    world.time.until("announced", MINUTE, SECOND, || shows("telegram is paused").then_some(()));
    let paused = || link(&world, "telegram").state == State::Paused;
    world.time.until("paused", MINUTE, SECOND, || paused().then_some(()));
    let polls = world.telegram.calls_of("getUpdates").len();
    world.telegram.push_text(CHAT, CHAT, "telegram while paused");
    world.time.pass(10 * MINUTE, 5 * SECOND);
    assert_eq!(world.telegram.calls_of("getUpdates").len(), polls, "no polls while paused");
    world.discord.push_text(ROOM, 5, "/platform");
    world.time.until("listed", MINUTE, SECOND, || shows("telegram: paused, last received").then_some(()));
    world.discord.push_text(ROOM, 5, "/platform resume telegram");
    world.time.until("connected", 10 * SECOND, SECOND, || world.all_connected());
    let back = link(&world, "telegram");
    assert_eq!((back.attempts, back.failure(), back.retry_reason.as_deref()), (0, None, None));
    let answered = || world.telegram.texts(CHAT).iter().any(|message| message.contains("while paused"));
    world.time.until("answered", MINUTE, SECOND, || answered().then_some(()));
}
