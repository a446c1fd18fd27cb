//! What becomes of one platform is nobody else's business, and can be seen and changed from the others.

use petasos_core::link::{Class, Link, Standing, State};
use petasos_fakes::telegram;

use crate::everywhere::{CHAT, Everywhere, NAMES, ROOM};
use crate::{MINUTE, SECOND, calm};

fn connected() -> Everywhere {
    let mut world = Everywhere::idle();
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_hear());
    world
}

fn link(world: &Everywhere, name: &str) -> Link {
    world.links().into_iter().find(|(it, _)| *it == name).expect("listed").1
}

fn answers(world: &Everywhere, text: &str) {
    let texts = [text.to_owned()];
    world.say(text);
    world.time.until("answered", MINUTE, SECOND, || world.unanswered(&texts).is_empty().then_some(()));
}

#[test]
fn sockets_that_stay_open_and_say_nothing_are_found_and_made_anew() {
    let world = connected();
    answers(&world, "before");
    world.discord.silence();
    world.slack.silence();
    world.telegram.on("getUpdates").always().does(telegram::Fault::Hang);
    world.say("into the silence");
    // Slack's next socket speaks, so there the answer itself is the proof.
    let deaf = |name: &&str| link(&world, name).standing() != Standing::Up;
    world.time.until("noticed", 10 * MINUTE, SECOND, || NAMES[..2].iter().all(deaf).then_some(()));
    world.discord.speak();
    world.telegram.clear_faults();
    world.time.until("heard again", 10 * MINUTE, SECOND, || world.all_hear());
    let texts = ["into the silence".to_owned()];
    world.time.until("answered", 10 * MINUTE, SECOND, || world.unanswered(&texts).is_empty().then_some(()));
    for (name, chat) in NAMES.iter().zip(world.answers()) {
        let found = chat.iter().filter(|said| said.contains("into the silence")).count();
        assert_eq!(found, 1, "{name}: {chat:?}");
    }
}

#[test]
fn an_hour_without_a_word_disturbs_no_link() {
    let world = connected();
    let before = NAMES.map(|name| link(&world, name).generation);
    world.time.pass(60 * MINUTE, 5 * SECOND);
    assert_eq!(NAMES.map(|name| link(&world, name).generation), before);
    let links = world.links();
    assert!(links.iter().all(|(_, link)| link.published() == "connected"), "{links:?}");
    answers(&world, "after an hour");
}

#[test]
fn a_machine_that_slept_tries_every_link_once() {
    let world = connected();
    let generations = || NAMES.map(|name| link(&world, name).generation);
    let tried = generations().map(|it| it + 1);
    // Too short for any of them to seem silent.
    world.time.jump(45 * SECOND);
    let anew = || (generations() == tried).then_some(());
    world.time.until("tried anew", MINUTE, SECOND, anew);
    world.time.until("connected again", MINUTE, SECOND, || world.all_hear());
    world.time.pass(5 * MINUTE, 5 * SECOND);
    assert_eq!(generations(), tried, "once");
    answers(&world, "awake");
}

#[test]
fn one_that_is_lost_for_good_leaves_the_others_at_work() {
    let world = connected();
    world.telegram.on("*").always().does(telegram::Fault::status(401, "Unauthorized"));
    world.telegram.push_text(CHAT, CHAT, "telegram is lost");
    let fatal = || matches!(link(&world, "telegram").state, State::Fatal { .. });
    world.time.until("lost", 5 * MINUTE, SECOND, || fatal().then_some(()));
    let asked = world.telegram.calls_of("getMe").len();
    world.time.pass(60 * MINUTE, 5 * SECOND);
    let lost = link(&world, "telegram");
    let failure = lost.failure().expect("why");
    assert_eq!((failure.class, failure.code.as_str()), (Class::Fatal, "telegram_invalid_token"));
    assert_eq!(world.telegram.calls_of("getMe").len(), asked, "it is not tried again");
    world.discord.push_text(ROOM, 5, "discord goes on");
    let told = || world.discord.texts(ROOM).iter().any(|said| said.contains("discord goes on"));
    world.time.until("answered", MINUTE, SECOND, || told().then_some(()));
}

#[test]
fn a_platform_is_paused_and_brought_back_from_the_chat_of_another() {
    let world = connected();
    let said = |want: &str| world.discord.texts(ROOM).iter().any(|said| said.contains(want));
    world.discord.push_text(ROOM, 5, "/platform pause telegram");
    world.time.until("told", MINUTE, SECOND, || said("telegram is paused").then_some(()));
    let paused = || link(&world, "telegram").state == State::Paused;
    world.time.until("paused", MINUTE, SECOND, || paused().then_some(()));
    let polls = world.telegram.calls_of("getUpdates").len();
    world.telegram.push_text(CHAT, CHAT, "telegram while paused");
    world.time.pass(10 * MINUTE, 5 * SECOND);
    assert_eq!(world.telegram.calls_of("getUpdates").len(), polls, "nobody asks");
    world.discord.push_text(ROOM, 5, "/platform");
    world.time.until("listed", MINUTE, SECOND, || said("telegram: paused, last heard").then_some(()));
    world.discord.push_text(ROOM, 5, "/platform resume telegram");
    world.time.until("heard", 10 * SECOND, SECOND, || world.all_hear());
    let back = link(&world, "telegram");
    assert_eq!((back.attempts, back.failure(), back.trouble.as_deref()), (0, None, None));
    let answered = || world.telegram.texts(CHAT).iter().any(|said| said.contains("while paused"));
    world.time.until("answered", MINUTE, SECOND, || answered().then_some(()));
}
