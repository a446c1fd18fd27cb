//! Platforms that come and go, and what the owner hears of it.
#![allow(clippy::expect_used, reason = "tests")]

mod support;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use petasos_core::Platform;
use petasos_core::lifecycle::{Leave, State as Phase};
use petasos_core::link::{Class, Link, Standing, State};
use petasos_fakes::telegram::{Fault, Side};
use petasos_gateway::home::clean;
use petasos_gateway::network::Outward;
use petasos_gateway::retention::disk::DiskLimits;
use petasos_gateway::{DATABASE, HomeChannel, Page, Unbuilt};
use serde_json::json;
use support::{World, telegram};

const HOME: i64 = 99;

fn at_home(patience: Duration) -> World {
    World::with(|setup| {
        setup.lifetime.outage_notice = patience;
        let (platform, chat_id) = (telegram(), HOME.to_string());
        setup.lifetime.home_channels =
            vec![HomeChannel { platform, chat_id, thread_id: None, name: "Home".into() }];
    })
}

#[test]
fn an_outage_that_lasts_is_told_when_somebody_can_hear_it_and_once() {
    let patience = Duration::from_millis(500);
    let world = at_home(patience);
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    world.owes_nothing();
    let before = world.telegram.texts(HOME).len();
    world.telegram.down();
    let down = || {
        let status = world.runtime.block_on(world.handle().status()).expect("a status");
        (status.links[0].link.published() != "connected").then_some(())
    };
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    support::eventually("down", down);
    let since = Instant::now();
    support::eventually("worth telling", || (since.elapsed() > 2 * patience).then_some(()));
    world.telegram.up().expect("telegram comes back");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.ends_with(HOME, "telegram is back after 0 min");
    world.telegram.push_text(7, 7, "again");
    world.ends_with(7, "echo: again");
    world.owes_nothing();
    assert_eq!(world.telegram.texts(HOME).len(), before + 1, "{:?}", world.telegram.texts(HOME));
}

#[test]
fn a_short_outage_is_nobodys_business() {
    let world = at_home(Duration::from_secs(600));
    world.telegram.down();
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    let status = || world.runtime.block_on(world.handle().status()).expect("a status");
    support::eventually("down", || (status().links[0].link.published() != "connected").then_some(()));
    world.telegram.up().expect("telegram comes back");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    world.owes_nothing();
    assert_eq!(world.telegram.texts(HOME), [""; 0]);
}

/// What is said of the link by this name.
fn link(world: &World, name: &str) -> Link {
    let status = world.runtime.block_on(world.handle().status()).expect("a status");
    status.links.into_iter().find(|link| link.name == name).expect("listed").link
}

#[test]
fn a_connection_that_hangs_is_given_up_in_time_and_named() {
    let mut world =
        World::idle(|setup| setup.lifetime.reconnect.connect_within = Some(Duration::from_millis(300)));
    world.telegram.on("getMe").always().does(Fault::Hang);
    world.start();
    let failed = support::eventually("given up", || link(&world, "telegram").failure().cloned());
    assert_eq!((failed.class, failed.code.as_str()), (Class::Passing, "telegram_connect_timeout"));
    assert!(failed.reason.starts_with("telegram connect timed out after "), "{}", failed.reason);
    let told = support::eventually("on disk", || {
        let state = world.state();
        let told = state.get("platforms")?.get("telegram")?.clone();
        (told["state"] == "retrying").then_some(told)
    });
    assert_eq!((told["attempts"].as_u64(), told["error_class"].as_str()), (Some(1), Some("passing")));
    assert!(told["next_retry_at"].is_string(), "{told}");
    assert_eq!(world.telegram.calls_of("getMe").len(), 1);
}

#[test]
fn a_link_whose_cursor_cannot_be_read_waits_for_it() {
    let mut world = World::with(|_| {});
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    world.owes_nothing();
    world.stop();
    let asked = world.telegram.calls_of("getMe").len();
    let path = world.home().join(DATABASE);
    let rename = |from: &str, to: &str| {
        let database = rusqlite::Connection::open(&path).expect("a database");
        database.execute_batch(&format!("ALTER TABLE {from} RENAME TO {to}")).expect("renamed");
    };
    rename("cursors", "hidden");
    world.start();
    let failed = support::eventually("given up", || link(&world, "telegram").failure().cloned());
    assert_eq!((failed.class, failed.code.as_str()), (Class::Passing, "telegram_cursor_unreadable"));
    assert_eq!(world.telegram.calls_of("getMe").len(), asked, "nobody is asked without it");
    rename("hidden", "cursors");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried again");
    support::eventually("up", || (link(&world, "telegram").standing() == Standing::Up).then_some(()));
}

/// On Telegram alone: nothing else is served.
fn alone() -> World {
    let world = World::with(|setup| {
        setup.page = Page::None;
        setup.lifetime.drain_timeout = Duration::from_secs(60);
    });
    support::eventually("up", || (link(&world, "telegram").standing() == Standing::Up).then_some(()));
    world.until("started", |now| (now.state == Phase::Running).then_some(()));
    world
}

#[test]
fn gateway_that_serves_a_page_goes_on_without_any_platform() {
    let world = World::with(|setup| setup.page = Page::Served);
    support::eventually("up", || (link(&world, "telegram").standing() == Standing::Up).then_some(()));
    world.telegram.on("getUpdates").always().does(Fault::status(401, "Unauthorized"));
    world.telegram.push_text(8, 8, "/whoami");
    support::eventually("lost for good", || (link(&world, "telegram").published() == "fatal").then_some(()));
    world.say("c1", "are you there?");
    assert!(world.model.wait_requests(1, support::SOON), "the page is answered");
    world.until("idle", |now| (now.active() == 0).then_some(()));
    assert_eq!(world.handle().situation().leaving, None);
}

#[test]
fn losing_the_only_platform_for_good_is_one_stop_that_lets_turns_end() {
    let mut world = alone();
    let gate = world.thinks_long_about("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(support::SOON));
    world.telegram.on("getUpdates").always().does(Fault::status(401, "Unauthorized"));
    // The poll that waits now ends, and the next one is refused.
    world.telegram.push_text(8, 8, "/whoami");
    let first = world.until("leaving", |now| now.leaving);
    assert_eq!(first.why, Leave::Deserted);
    assert_eq!(link(&world, "telegram").published(), "fatal");
    let polls = world.telegram.calls_of("getUpdates").len();
    assert_eq!(world.handle().situation().active(), 1, "the turn goes on");
    gate.open();
    let second = world.until("the turn has ended", |now| (now.active() == 0).then_some(now.leaving));
    assert_eq!(second.map(|it| (it.why, it.since)), Some((Leave::Deserted, first.since)), "one stop");
    let end = world.end();
    assert_eq!((end.why, end.why.exit_code()), (Leave::Deserted, 0));
    assert!(end.reason.is_some_and(|why| why.starts_with("telegram: ")));
    assert_eq!(world.state()["gateway_state"], "stopped");
    assert!(clean::path(world.home()).exists(), "nobody was cut off");
    assert_eq!((world.transcript(7).len(), world.mark(7)), (2, None));
    assert_eq!(world.telegram.calls_of("getUpdates").len(), polls, "it does not ask again");
}

#[test]
fn losing_the_only_platform_for_a_while_stops_nothing() {
    let world = alone();
    world.telegram.down();
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    let lost = support::eventually("waiting", || {
        let link = link(&world, "telegram");
        matches!(link.state, State::Waiting { .. }).then_some(link)
    });
    assert_eq!(lost.failure().map(|it| it.class), Some(Class::Passing));
    // Who watches the links has judged this loss when it has said that nobody hears us.
    world.until("deaf", |now| (now.state == Phase::Degraded).then_some(()));
    assert_eq!(world.handle().situation().leaving, None);
    world.telegram.up().expect("it is there again");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.telegram.push_text(7, 7, "still there?");
    world.ends_with(7, "echo: still there?");
}

#[test]
fn a_platform_that_cannot_be_built_is_listed_and_disturbs_nobody() {
    let world = World::with(|setup| {
        let platform = Platform::parse("slack").expect("known");
        setup.unbuilt = vec![Unbuilt { platform, reason: "platforms.slack has no app token".into() }];
    });
    world.telegram.push_text(7, 7, "hello");
    world.ends_with(7, "echo: hello");
    let slack = link(&world, "slack");
    assert_eq!(slack.published(), "fatal");
    assert!(slack.failure().expect("why").reason.contains("no app token"));
    for asked in [world.handle().link_retry("slack").boxed(), world.handle().link_pause("slack").boxed()] {
        let refused = world.runtime.block_on(asked).expect_err("refused").to_string();
        assert!(refused.contains("no app token"), "{refused}");
    }
    world.telegram.push_text(7, 7, "/platform");
    world.ends_with(7, "slack: stopped (slack_misconfigured, fatal), never heard; it needs its owner");
}

/// The last number of our address; zero: we have none.
static ADDRESS: AtomicU8 = AtomicU8::new(0);

fn outward() -> Outward {
    let last = ADDRESS.load(Ordering::Relaxed);
    let v4 = (last > 0).then(|| Ipv4Addr::new(10, 0, 0, last).into());
    Outward { v4, v6: None }
}

#[test]
fn another_network_makes_every_link_try_once() {
    ADDRESS.store(1, Ordering::Relaxed);
    let mut world = World::idle(|setup| setup.outward = outward);
    world.telegram.down();
    world.start();
    let waits = support::eventually("waiting", || {
        let link = link(&world, "telegram");
        matches!(link.state, State::Waiting { .. }).then_some(link)
    });
    assert_eq!((waits.attempts, waits.generation), (1, 1));
    world.telegram.up().expect("it is there again");
    ADDRESS.store(2, Ordering::Relaxed);
    support::eventually("up", || (link(&world, "telegram").standing() == Standing::Up).then_some(()));
    assert_eq!(link(&world, "telegram").generation, 2, "one try");
    assert_eq!(world.telegram.calls_of("getMe").len(), 1);
}

#[test]
fn what_comes_to_stand_after_the_ways_in_are_closed_is_not_published() {
    let mut world = World::idle(|_| {});
    let gate = world.telegram.gate("getMe", Side::Before);
    world.start();
    assert!(gate.wait(support::SOON), "it connects");
    world.leave(Leave::Stop);
    gate.open();
    let state = world.state();
    assert_ne!(state["platforms"]["telegram"]["state"], "connected", "{state:?}");
    assert_eq!(state["gateway_state"], "stopped", "{state:?}");
}

#[test]
fn how_far_behind_we_are_is_told_while_the_platform_is_ahead() {
    let mut world = World::idle(|_| {});
    let hour = i64::try_from(petasos_gateway::clock::now().0 / 1000).expect("a time") - 3600;
    let late = json!({ "message": {
        "message_id": 900, "date": hour, "text": "an hour ago", "chat": { "id": 7, "type": "private" },
        "from": { "id": 7, "is_bot": false, "first_name": "U" } } });
    world.telegram.push_update(late);
    let gate = world.telegram.gate("getUpdates", Side::Before);
    world.start();
    assert!(gate.wait(support::SOON), "it polls");
    gate.pass_one();
    world.ends_with(7, "echo: an hour ago");
    let behind = support::eventually("behind", || {
        let link = link(&world, "telegram");
        link.behind_ms.filter(|_| link.catching_up)
    });
    assert!((3_590_000..3_700_000).contains(&behind), "{behind}");
    // The next poll brings nothing: nothing waits.
    gate.open();
    support::eventually("caught up", || {
        let link = link(&world, "telegram");
        (link.behind_ms.is_none() && !link.catching_up && link.standing() == Standing::Up).then_some(())
    });
}

#[test]
fn warns_the_home_when_the_disk_is_nearly_full() {
    let world = World::with(|setup| {
        let (platform, chat_id) = (telegram(), HOME.to_string());
        setup.lifetime.home_channels =
            vec![HomeChannel { platform, chat_id, thread_id: None, name: "Home".into() }];
        let retention = &mut setup.settings.retention;
        retention.every = Duration::from_millis(20);
        retention.disk = DiskLimits { percent: 0, bytes: u64::MAX, days: 0 };
    });
    world.sees(HOME, "The disk is nearly full");
    let status = world.runtime.block_on(world.handle().status()).expect("a status");
    assert!(status.storage.warning.is_some_and(|text| text.contains("nearly full")));
}
