//! A home with many stored conversations against an empty one.

use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use petasos_core::Millis;
use petasos_store::Store;

use super::figure::{Figure, median, per_turn};
use super::process::{cpu, end, rss};
use super::rig::Rig;
use super::{Load, PATIENCE, fill};

/// Of the large home.
const CHATS: usize = 100_000;
const MESSAGES_EACH: usize = 10;
/// How long the gateway is left alone after its start.
const QUIET: Duration = Duration::from_secs(60);
const STARTS: usize = 9;
const TURNS: usize = 300;
const WARM: usize = 50;

pub(super) fn measure(program: &Path, _load: &Load) -> Vec<Figure> {
    let chats = std::env::var("PETASOS_STORED_CHATS").ok().and_then(|it| it.parse().ok()).unwrap_or(CHATS);
    [0, chats].into_iter().flat_map(|chats| home(program, chats)).collect()
}

fn home(program: &Path, chats: usize) -> Vec<Figure> {
    let rig = Rig::new();
    let mut first = rig.launch(program);
    rig.await_state("running");
    stop(&mut first);
    let mut store = Store::open(rig.home.path().join("petasos.db")).expect("a store");
    fill::fill(&mut store, 1_000_000, chats, MESSAGES_EACH, now()).expect("filled");
    store.close().expect("closed");
    let mut starts: Vec<Duration> = (0..STARTS).map(|_| start(&rig, program)).collect();
    let mut gateway = rig.launch(program);
    std::thread::sleep(QUIET);
    let quiet = cpu(gateway.id());
    for turn in 0..WARM {
        rig.ask(i64::try_from(1_000_000 + turn * 7).expect("a chat"));
    }
    let before = cpu(gateway.id());
    for turn in 0..TURNS {
        rig.ask(i64::try_from(1_000_000 + turn * 3).expect("a chat"));
    }
    let turns = cpu(gateway.id()).saturating_sub(before);
    let memory = rss(gateway.id());
    end(&mut gateway);
    let named = |what: &str| format!("{what}, {chats} conversations with {MESSAGES_EACH} messages each");
    vec![
        Figure::time(named("start to first getUpdates, median"), median(&mut starts)),
        Figure::time(named("CPU in the first minute without turns"), quiet),
        per_turn(named("CPU per turn"), turns, TURNS),
        Figure::memory(named("RSS after 350 turns"), memory),
    ]
}

fn start(rig: &Rig, program: &Path) -> Duration {
    let polls = |rig: &Rig| rig.telegram.calls_of("getUpdates").len();
    let before = polls(rig);
    let started = Instant::now();
    let mut gateway = rig.launch(program);
    let first = rig
        .telegram
        .wait_until(PATIENCE, |world| world.calls_of("getUpdates").nth(before).map(|call| call.at))
        .expect("polls");
    rig.await_state("running");
    stop(&mut gateway);
    first.duration_since(started)
}

fn stop(gateway: &mut Child) {
    Command::new("kill").arg(gateway.id().to_string()).status().expect("kill");
    gateway.wait().expect("ends");
}

fn now() -> Millis {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Millis(u64::try_from(since.as_millis()).expect("a time"))
}
