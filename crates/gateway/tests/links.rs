//! Links: outages, reconnects, and the owner's notices about them.
#![allow(clippy::expect_used, reason = "tests")]

mod support;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use petasos_core::Platform;
use petasos_core::lifecycle::{ShutdownReason, State as Phase};
use petasos_core::link::{Availability, FailureClass, Link, State};
use petasos_fakes::telegram::{Fault, Side};
use petasos_gateway::home::clean;
use petasos_gateway::network::OutboundAddresses;
use petasos_gateway::retention::disk::DiskLimits;
use petasos_gateway::{DATABASE, HomeChannel, LocalService, UnavailablePlatform};
use petasos_runtime::clock;
use serde_json::json;
use support::{GatewayFixture, telegram};

const HOME: i64 = 99;

fn with_home_channel(patience: Duration) -> GatewayFixture {
    GatewayFixture::with(|setup| {
        setup.lifetime.outage_notice = patience;
        let platform = telegram();
        let chat_id = HOME.to_string();
        setup.lifetime.home_channels =
            vec![HomeChannel { platform, chat_id, thread_id: None, name: "Home".into() }];
    })
}

#[test]
fn announces_long_outage_once_when_a_home_is_reachable() {
    let patience = Duration::from_millis(500);
    let world = with_home_channel(patience);
    world.telegram.push_text(7, 7, "hello");
    world.expect_last_message(7, "echo: hello");
    world.wait_until_delivered();
    let before = world.telegram.texts(HOME).len();
    world.telegram.down();
    let down = || {
        let status = world.runtime.block_on(world.handle().status()).expect("a status");
        (status.links[0].link.status() != "connected").then_some(())
    };
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    support::eventually("down", down);
    let since = clock::monotonic();
    support::eventually("worth telling", || (since.elapsed() > 2 * patience).then_some(()));
    world.telegram.up().expect("telegram comes back");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.expect_last_message(HOME, "telegram is back after 0 min");
    world.telegram.push_text(7, 7, "again");
    world.expect_last_message(7, "echo: again");
    world.wait_until_delivered();
    assert_eq!(world.telegram.texts(HOME).len(), before + 1, "{:?}", world.telegram.texts(HOME));
}

#[test]
fn short_outage_is_not_announced() {
    let world = with_home_channel(Duration::from_secs(600));
    world.telegram.down();
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    let status = || world.runtime.block_on(world.handle().status()).expect("a status");
    support::eventually("down", || (status().links[0].link.status() != "connected").then_some(()));
    world.telegram.up().expect("telegram comes back");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.telegram.push_text(7, 7, "hello");
    world.expect_last_message(7, "echo: hello");
    world.wait_until_delivered();
    assert_eq!(world.telegram.texts(HOME), [""; 0]);
}

fn link(world: &GatewayFixture, name: &str) -> Link {
    let status = world.runtime.block_on(world.handle().status()).expect("a status");
    status.links.into_iter().find(|link| link.name == name).expect("listed").link
}

#[test]
fn abandons_and_reports_hanging_connection() {
    let mut world = GatewayFixture::idle(|setup| {
        setup.lifetime.reconnect.connect_within = Some(Duration::from_millis(300))
    });
    world.telegram.on("getMe").always().does(Fault::Hang);
    world.start();
    let failed = support::eventually("given up", || link(&world, "telegram").failure().cloned());
    assert_eq!((failed.class, failed.code.as_str()), (FailureClass::Passing, "telegram_connect_timeout"));
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
fn link_waits_until_its_cursor_is_readable() {
    let mut world = GatewayFixture::with(|_| {});
    world.telegram.push_text(7, 7, "hello");
    world.expect_last_message(7, "echo: hello");
    world.wait_until_delivered();
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
    assert_eq!((failed.class, failed.code.as_str()), (FailureClass::Passing, "telegram_cursor_unreadable"));
    assert_eq!(world.telegram.calls_of("getMe").len(), asked, "no request without it");
    rename("hidden", "cursors");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried again");
    support::eventually("up", || (link(&world, "telegram").availability() == Availability::Up).then_some(()));
}

/// Telegram only, without page or API.
fn telegram_only() -> GatewayFixture {
    let world = GatewayFixture::with(|setup| {
        setup.page = LocalService::None;
        setup.lifetime.drain_timeout = Duration::from_secs(60);
    });
    support::eventually("up", || (link(&world, "telegram").availability() == Availability::Up).then_some(()));
    world.until("started", |now| (now.state == Phase::Running).then_some(()));
    world
}

#[test]
fn gateway_with_page_survives_loss_of_all_platforms() {
    let world = GatewayFixture::with(|setup| setup.page = LocalService::Served);
    support::eventually("up", || (link(&world, "telegram").availability() == Availability::Up).then_some(()));
    world.telegram.on("getUpdates").always().does(Fault::status(401, "Unauthorized"));
    world.telegram.push_text(8, 8, "/whoami");
    support::eventually("lost for good", || (link(&world, "telegram").status() == "fatal").then_some(()));
    world.send_web("c1", "are you there?");
    assert!(world.model.wait_requests(1, support::SOON), "the page is answered");
    world.until("idle", |now| (now.active() == 0).then_some(()));
    assert_eq!(world.handle().snapshot().leaving, None);
}

#[test]
fn permanent_loss_of_only_platform_stops_after_turns() {
    let mut world = telegram_only();
    let gate = world.hold_model_on("slow");
    world.telegram.push_text(7, 7, "slow");
    assert!(gate.wait(support::SOON));
    world.telegram.on("getUpdates").always().does(Fault::status(401, "Unauthorized"));
    // The waiting poll ends, and the next one is refused.
    world.telegram.push_text(8, 8, "/whoami");
    let first = world.until("leaving", |now| now.leaving);
    assert_eq!(first.why, ShutdownReason::AllPlatformsLost);
    assert_eq!(link(&world, "telegram").status(), "fatal");
    let polls = world.telegram.calls_of("getUpdates").len();
    assert_eq!(world.handle().snapshot().active(), 1, "the turn goes on");
    gate.open();
    let second = world.until("the turn has ended", |now| (now.active() == 0).then_some(now.leaving));
    assert_eq!(
        second.map(|it| (it.why, it.since)),
        Some((ShutdownReason::AllPlatformsLost, first.since)),
        "one stop"
    );
    let end = world.wait_for_exit();
    assert_eq!((end.why, end.why.exit_code()), (ShutdownReason::AllPlatformsLost, 0));
    assert!(end.reason.is_some_and(|why| why.starts_with("telegram: ")));
    assert_eq!(world.state()["gateway_state"], "stopped");
    assert!(clean::path(world.home()).exists(), "no connection was cut");
    assert_eq!((world.transcript(7).len(), world.mark(7)), (2, None));
    assert_eq!(world.telegram.calls_of("getUpdates").len(), polls, "it does not ask again");
}

#[test]
fn temporary_loss_of_only_platform_stops_nothing() {
    let world = telegram_only();
    world.telegram.down();
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    let lost = support::eventually("waiting", || {
        let link = link(&world, "telegram");
        matches!(link.state, State::Waiting { .. }).then_some(link)
    });
    assert_eq!(lost.failure().map(|it| it.class), Some(FailureClass::Passing));
    // The degraded state shows that the loss has been evaluated.
    world.until("deaf", |now| (now.state == Phase::Degraded).then_some(()));
    assert_eq!(world.handle().snapshot().leaving, None);
    world.telegram.up().expect("it is there again");
    world.runtime.block_on(world.handle().link_retry("telegram")).expect("tried");
    world.telegram.push_text(7, 7, "still there?");
    world.expect_last_message(7, "echo: still there?");
}

#[test]
fn lists_unavailable_platform_without_side_effects() {
    let world = GatewayFixture::with(|setup| {
        let platform = Platform::parse("slack").expect("known");
        setup.unbuilt =
            vec![UnavailablePlatform { platform, reason: "platforms.slack has no app token".into() }];
    });
    world.telegram.push_text(7, 7, "hello");
    world.expect_last_message(7, "echo: hello");
    let slack = link(&world, "slack");
    assert_eq!(slack.status(), "fatal");
    assert!(slack.failure().expect("why").reason.contains("no app token"));
    for asked in [world.handle().link_retry("slack").boxed(), world.handle().link_pause("slack").boxed()] {
        let refused = world.runtime.block_on(asked).expect_err("refused").to_string();
        assert!(refused.contains("no app token"), "{refused}");
    }
    world.telegram.push_text(7, 7, "/platform");
    world.expect_last_message(
        7,
        "slack: stopped (slack_misconfigured, fatal), nothing received yet; the owner must correct this",
    );
}

/// Last byte of the outbound address; 0: no address.
static ADDRESS: AtomicU8 = AtomicU8::new(0);

fn current_addresses() -> OutboundAddresses {
    let last = ADDRESS.load(Ordering::Relaxed);
    let v4 = (last > 0).then(|| Ipv4Addr::new(10, 0, 0, last).into());
    OutboundAddresses { v4, v6: None }
}

#[test]
fn network_change_reconnects_every_link_once() {
    ADDRESS.store(1, Ordering::Relaxed);
    let mut world = GatewayFixture::idle(|setup| setup.outward = current_addresses);
    world.telegram.down();
    world.start();
    let waits = support::eventually("waiting", || {
        let link = link(&world, "telegram");
        matches!(link.state, State::Waiting { .. }).then_some(link)
    });
    assert_eq!((waits.attempts, waits.generation), (1, 1));
    world.telegram.up().expect("it is there again");
    ADDRESS.store(2, Ordering::Relaxed);
    support::eventually("up", || (link(&world, "telegram").availability() == Availability::Up).then_some(()));
    assert_eq!(link(&world, "telegram").generation, 2, "one try");
    assert_eq!(world.telegram.calls_of("getMe").len(), 1);
}

#[test]
fn ignores_connection_established_after_shutdown() {
    let mut world = GatewayFixture::idle(|_| {});
    let gate = world.telegram.gate("getMe", Side::Before);
    world.start();
    assert!(gate.wait(support::SOON), "it connects");
    world.shut_down(ShutdownReason::Stop);
    gate.open();
    let state = world.state();
    assert_ne!(state["platforms"]["telegram"]["state"], "connected", "{state:?}");
    assert_eq!(state["gateway_state"], "stopped", "{state:?}");
}

#[test]
fn reports_catch_up_lag_during_backfill() {
    let mut world = GatewayFixture::idle(|_| {});
    let hour = i64::try_from(petasos_gateway::clock::now().0 / 1000).expect("a time") - 3600;
    let late = json!({ "message": {
        "message_id": 900, "date": hour, "text": "an hour ago", "chat": { "id": 7, "type": "private" },
        "from": { "id": 7, "is_bot": false, "first_name": "U" } } });
    world.telegram.push_update(late);
    let gate = world.telegram.gate("getUpdates", Side::Before);
    world.start();
    assert!(gate.wait(support::SOON), "it polls");
    gate.pass_one();
    world.expect_last_message(7, "echo: an hour ago");
    let behind = support::eventually("behind", || {
        let link = link(&world, "telegram");
        link.lag_ms.filter(|_| link.backfilling)
    });
    assert!((3_590_000..3_700_000).contains(&behind), "{behind}");
    // The next poll returns nothing, so there is no lag.
    gate.open();
    support::eventually("caught up", || {
        let link = link(&world, "telegram");
        (link.lag_ms.is_none() && !link.backfilling && link.availability() == Availability::Up).then_some(())
    });
}

#[test]
fn warns_home_channel_when_disk_is_nearly_full() {
    let world = GatewayFixture::with(|setup| {
        let platform = telegram();
        let chat_id = HOME.to_string();
        setup.lifetime.home_channels =
            vec![HomeChannel { platform, chat_id, thread_id: None, name: "Home".into() }];
        let retention = &mut setup.settings.retention;
        retention.every = Duration::from_millis(20);
        retention.disk = DiskLimits { percent: 0, bytes: u64::MAX, days: 0 };
    });
    world.expect_message(HOME, "The disk is nearly full");
    let status = world.runtime.block_on(world.handle().status()).expect("a status");
    assert!(status.storage.warning.is_some_and(|text| text.contains("nearly full")));
}
