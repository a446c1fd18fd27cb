//! Long outages with a manual clock: the gateway with its real adapters against fakes.
#![allow(clippy::expect_used, reason = "tests")]

#[path = "outage/day.rs"]
mod day;
#[path = "outage/isolation.rs"]
mod isolation;
#[path = "outage/limits.rs"]
mod limits;
#[path = "outage/manual_clock.rs"]
mod manual_clock;
#[path = "outage/stall.rs"]
mod stall;
#[path = "outage/three_platforms.rs"]
mod three_platforms;

use std::time::Duration;

use petasos_core::link::{Availability, FailureClass, LinkPolicy, State};
use petasos_fakes::{discord, slack, telegram};
use three_platforms::{NAMES, ThreePlatforms};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn calm() -> LinkPolicy {
    LinkPolicy { jitter: false, ..LinkPolicy::default() }
}

#[test]
fn recovers_from_full_outage_and_answers_once() {
    let mut world = ThreePlatforms::idle();
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_connected());
    world.send_to_all("before");
    let before = ["before".to_owned()];
    world.time.until("answered", MINUTE, SECOND, || world.unanswered(&before).is_empty().then_some(()));
    world.down();
    for minute in 0..30 {
        if minute % 10 == 5 {
            world.send_to_all(&format!("at {minute}"));
        }
        world.time.pass(MINUTE, 2 * SECOND);
    }
    let links = world.links();
    assert!(links.iter().all(|(_, link)| link.status() == "retrying"), "{links:?}");
    world.up();
    // The longest wait between two attempts.
    world.time.until("heard again", 301 * SECOND, SECOND, || world.all_connected());
    let texts: Vec<String> = ["before", "at 5", "at 15", "at 25"].map(str::to_owned).to_vec();
    world
        .time
        .until("all answered", 5 * MINUTE, SECOND, || world.unanswered(&texts).is_empty().then_some(()));
    world.time.pass(10 * MINUTE, 5 * SECOND);
    for (name, chat) in NAMES.iter().zip(world.answers()) {
        for text in &texts {
            let found = chat.iter().filter(|said| said.contains(&format!("{name} {text}"))).count();
            assert_eq!(found, 1, "{text}: {chat:?}");
        }
    }
    for (home, news) in NAMES.iter().zip(world.home_notices()) {
        for name in NAMES {
            let count =
                |what: &str| news.iter().filter(|line| line.contains(&format!("{name} {what}"))).count();
            let told = (count("has been down for 3"), count("is back after 3"));
            if name == *home {
                assert_eq!(told, (0, 1), "no notice was possible while it was down: {news:?}");
            } else {
                // The first platform to recover got the outage notices of the others, then their recovery.
                assert!(told == (0, 0) || told == (1, 1), "{name} at {home}: {news:?}");
            }
        }
    }
}

#[test]
fn announces_outage_and_recovery_once_to_other_homes() {
    let mut world = ThreePlatforms::idle();
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_connected());
    world.slack.down();
    world.time.pass(30 * MINUTE, 2 * SECOND);
    world.slack.up().expect("a port");
    world.time.until("heard again", 301 * SECOND, SECOND, || world.all_connected());
    world.time.pass(MINUTE, SECOND);
    let [telegram, discord, slack] = world.home_notices();
    for news in [telegram, discord] {
        assert_eq!(news.len(), 2, "{news:?}");
        assert!(news[0].contains("slack has been down for 3 min"), "{news:?}");
        assert!(news[1].contains("slack is back after 3"), "{news:?}");
    }
    assert_eq!(slack.len(), 1, "{slack:?}");
    assert!(slack[0].contains("slack is back after 3"), "{slack:?}");
}

#[test]
fn hanging_connection_does_not_delay_other_links() {
    let mut world = ThreePlatforms::idle();
    world.telegram.on("getMe").always().does(telegram::Fault::Hang);
    // Sooner than the adapter's own request timeout.
    world.start(LinkPolicy { connect_within: Some(15 * SECOND), ..calm() });
    let link = |name: &str| world.links().into_iter().find(|(it, _)| *it == name).expect("listed").1;
    let stand = || ["discord", "slack"].iter().all(|name| link(name).availability() == Availability::Up);
    world.time.until("others connected", Duration::ZERO, SECOND, || stand().then_some(()));
    world.time.pass(14 * SECOND, SECOND);
    let hung = link("telegram");
    assert!(matches!(hung.state, State::Connecting { .. }) && hung.failure().is_none(), "{hung:?}");
    world.time.pass(2 * SECOND, SECOND);
    let waits = link("telegram");
    assert!(matches!(waits.state, State::Waiting { .. }), "{waits:?}");
    let failure = waits.failure().expect("why");
    assert_eq!((failure.class, failure.code.as_str()), (FailureClass::Passing, "telegram_connect_timeout"));
    assert_eq!((waits.attempts, world.telegram.calls_of("getMe").len()), (1, 1));
    world.telegram.clear_faults();
    world.time.until("heard", 31 * SECOND, SECOND, || world.all_connected());
    let generations = NAMES.map(|name| link(name).generation);
    assert_eq!(generations, [2, 1, 1], "no other chat was disturbed");
}

#[test]
fn reconnect_attempts_follow_the_backoff() {
    let mut world = ThreePlatforms::idle();
    world.telegram.on("*").always().does(telegram::Fault::status(502, "Bad Gateway"));
    world.start(calm());
    let step = 5 * SECOND;
    let tries = || world.telegram.calls_of("getMe").len();
    world.time.until("22 tries", Duration::from_secs(9_000), step, || (tries() >= 22).then_some(()));
    let at: Vec<_> = world.telegram.calls_of("getMe").iter().map(|call| call.at).collect();
    let waits: Vec<u64> = at.windows(2).map(|two| (two[1] - two[0]).as_secs()).collect();
    let mut want = vec![30, 60, 120, 240];
    want.extend([300; 15]);
    want.extend([1800; 2]);
    for (number, (wait, want)) in waits.iter().zip(&want).enumerate() {
        assert!((*want..=want + 2 * step.as_secs()).contains(wait), "wait {number}: {waits:?}");
    }
    assert_eq!(waits.len(), want.len());
    // Every request belongs to an attempt.
    let stray = world.telegram.calls_of("getUpdates").iter().filter(|call| !at.contains(&call.at)).count();
    assert_eq!(stray, 0);
    let (_, link) = world.links().into_iter().find(|(name, _)| *name == "telegram").expect("listed");
    assert_eq!((link.attempts, link.status()), (22, "paused"));
}

#[test]
fn failed_attempts_leak_no_resources() {
    let mut world = ThreePlatforms::idle();
    world.telegram.on("*").always().does(telegram::Fault::status(502, "Bad Gateway"));
    world.discord.on("*").always().does(discord::Fault::status(502, 0, "Bad Gateway"));
    world.slack.on("*").always().does(slack::Fault::ProxyError(502));
    world.start(LinkPolicy { fast_attempts: None, ..calm() });
    let failed = |count: u32| {
        let links = world.links();
        links.iter().all(|(_, link)| link.attempts >= count).then_some(())
    };
    let step = MINUTE;
    let long = Duration::from_secs(100_000);
    world.time.until("20 failed", long, step, || failed(20));
    let before = ResourceUse::now(&world);
    world.time.until("200 failed", long, step, || failed(200));
    let after = ResourceUse::now(&world);
    // The number of pooled HTTP connections depends on how many requests overlapped; each is two files and two tasks of
    // this process. There are 540 failed attempts between the two measurements.
    let pooled = 20;
    let grown = after.files > before.files + pooled || after.tasks > before.tasks + pooled;
    assert!(!grown, "before {before:?}, after {after:?}");
}

#[derive(Debug)]
struct ResourceUse {
    files: usize,
    tasks: usize,
    resident: u64,
}

impl ResourceUse {
    fn now(world: &ThreePlatforms) -> Self {
        let status = std::fs::read_to_string("/proc/self/status").expect("this process");
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a size");
        let kilobytes: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
        Self {
            files: std::fs::read_dir("/proc/self/fd").expect("this process").count(),
            tasks: world.time.runtime.metrics().num_alive_tasks(),
            resident: kilobytes << 10,
        }
    }
}
