//! Long outages of real links in little time: the gateway with its real adapters against the fakes, on a clock that
//! is moved by hand.
#![allow(clippy::expect_used, reason = "tests")]

#[path = "outage/apart.rs"]
mod apart;
#[path = "outage/day.rs"]
mod day;
#[path = "outage/everywhere.rs"]
mod everywhere;
#[path = "outage/limits.rs"]
mod limits;
#[path = "outage/stall.rs"]
mod stall;
#[path = "outage/time.rs"]
mod time;

use std::time::Duration;

use everywhere::{Everywhere, NAMES};
use petasos_core::link::{Class, Standing, State, Terms};
use petasos_fakes::{discord, slack, telegram};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn calm() -> Terms {
    Terms { jitter: false, ..Terms::default() }
}

#[test]
fn everything_out_for_half_an_hour_is_heard_again_within_one_step_and_answered_once() {
    let mut world = Everywhere::idle();
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_hear());
    world.say("before");
    let before = ["before".to_owned()];
    world.time.until("answered", MINUTE, SECOND, || world.unanswered(&before).is_empty().then_some(()));
    world.down();
    for minute in 0..30 {
        if minute % 10 == 5 {
            world.say(&format!("at {minute}"));
        }
        world.time.pass(MINUTE, 2 * SECOND);
    }
    let links = world.links();
    assert!(links.iter().all(|(_, link)| link.published() == "retrying"), "{links:?}");
    world.up();
    // The longest wait between two tries.
    world.time.until("heard again", 301 * SECOND, SECOND, || world.all_hear());
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
    for (home, news) in NAMES.iter().zip(world.news()) {
        for name in NAMES {
            let count =
                |what: &str| news.iter().filter(|line| line.contains(&format!("{name} {what}"))).count();
            let told = (count("has been down for 3"), count("is back after 3"));
            if name == *home {
                assert_eq!(told, (0, 1), "nobody could hear there that it was down: {news:?}");
            } else {
                // Who came back first heard what was still down, and then of its end.
                assert!(told == (0, 0) || told == (1, 1), "{name} at {home}: {news:?}");
            }
        }
    }
}

#[test]
fn one_that_is_out_is_told_to_the_others_once_and_so_is_its_return() {
    let mut world = Everywhere::idle();
    world.start(calm());
    world.time.until("connected", MINUTE, SECOND, || world.all_hear());
    world.slack.down();
    world.time.pass(30 * MINUTE, 2 * SECOND);
    world.slack.up().expect("a port");
    world.time.until("heard again", 301 * SECOND, SECOND, || world.all_hear());
    world.time.pass(MINUTE, SECOND);
    let [telegram, discord, slack] = world.news();
    for news in [telegram, discord] {
        assert_eq!(news.len(), 2, "{news:?}");
        assert!(news[0].contains("slack has been down for 3 min"), "{news:?}");
        assert!(news[1].contains("slack is back after 3"), "{news:?}");
    }
    assert_eq!(slack.len(), 1, "{slack:?}");
    assert!(slack[0].contains("slack is back after 3"), "{slack:?}");
}

#[test]
fn a_connection_that_hangs_keeps_no_other_waiting() {
    let mut world = Everywhere::idle();
    world.telegram.on("getMe").always().does(telegram::Fault::Hang);
    // Sooner than the adapter itself gives the request up.
    world.start(Terms { connect_within: Some(15 * SECOND), ..calm() });
    let link = |name: &str| world.links().into_iter().find(|(it, _)| *it == name).expect("listed").1;
    let stand = || ["discord", "slack"].iter().all(|name| link(name).standing() == Standing::Up);
    world.time.until("others connected", Duration::ZERO, SECOND, || stand().then_some(()));
    world.time.pass(14 * SECOND, SECOND);
    let hung = link("telegram");
    assert!(matches!(hung.state, State::Connecting { .. }) && hung.failure().is_none(), "{hung:?}");
    world.time.pass(2 * SECOND, SECOND);
    let waits = link("telegram");
    assert!(matches!(waits.state, State::Waiting { .. }), "{waits:?}");
    let failure = waits.failure().expect("why");
    assert_eq!((failure.class, failure.code.as_str()), (Class::Passing, "telegram_connect_timeout"));
    assert_eq!((waits.attempts, world.telegram.calls_of("getMe").len()), (1, 1));
    world.telegram.clear_faults();
    world.time.until("heard", 31 * SECOND, SECOND, || world.all_hear());
    let generations = NAMES.map(|name| link(name).generation);
    assert_eq!(generations, [2, 1, 1], "nobody else was disturbed");
}

#[test]
fn tries_wait_as_planned_and_nothing_is_asked_between_them() {
    let mut world = Everywhere::idle();
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
    // Every request belongs to a try: none was made while nothing was due.
    let stray = world.telegram.calls_of("getUpdates").iter().filter(|call| !at.contains(&call.at)).count();
    assert_eq!(stray, 0);
    let (_, link) = world.links().into_iter().find(|(name, _)| *name == "telegram").expect("listed");
    assert_eq!((link.attempts, link.published()), (22, "paused"));
}

#[test]
fn two_hundred_failed_tries_leave_nothing_behind() {
    let mut world = Everywhere::idle();
    world.telegram.on("*").always().does(telegram::Fault::status(502, "Bad Gateway"));
    world.discord.on("*").always().does(discord::Fault::status(502, 0, "Bad Gateway"));
    world.slack.on("*").always().does(slack::Fault::Status(502));
    world.start(Terms { fast_attempts: None, ..calm() });
    let failed = |count: u32| {
        let links = world.links();
        links.iter().all(|(_, link)| link.attempts >= count).then_some(())
    };
    let (step, long) = (MINUTE, Duration::from_secs(100_000));
    world.time.until("20 failed", long, step, || failed(20));
    let before = Held::now(&world);
    world.time.until("200 failed", long, step, || failed(200));
    let after = Held::now(&world);
    // How many connections the HTTP clients keep for later depends on how many of their requests overlapped; each is two
    // files and two tasks of this process. 540 failed tries lie between the two looks.
    let pooled = 20;
    let grown = after.files > before.files + pooled || after.tasks > before.tasks + pooled;
    assert!(!grown, "before {before:?}, after {after:?}");
}

/// What the process holds.
#[derive(Debug)]
struct Held {
    files: usize,
    tasks: usize,
    resident: u64,
}

impl Held {
    fn now(world: &Everywhere) -> Self {
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
