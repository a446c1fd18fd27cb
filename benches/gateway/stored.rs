//! A home with many stored sessions compared with an empty one.

use std::path::Path;
use std::process::{Child, Command};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use petasos_core::Millis;
use petasos_store::Store;
use rusqlite::Connection;
use tempfile::TempDir;

use super::figure::{Figure, median, per_turn};
use super::fixture::GatewayFixture;
use super::process::{cpu, end, rss};
use super::{Load, TIMEOUT, fill};

pub(super) const NAME: &str = "stored";
/// Sessions in the large home.
const CHATS: usize = 100_000;
const MESSAGES_EACH: usize = 10;
/// Idle seconds after the start.
const QUIET: usize = 60;
const STARTS: usize = 9;
const TURNS: usize = 300;
const WARM: usize = 50;

pub(super) fn measure(program: &Path, _load: &Load) -> Vec<Figure> {
    let chats = size("PETASOS_STORED_CHATS", CHATS);
    [0, chats].into_iter().flat_map(|chats| home(program, chats)).collect()
}

fn size(name: &str, normally: usize) -> usize {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(normally)
}

fn home(program: &Path, chats: usize) -> Vec<Figure> {
    let fixture = GatewayFixture::new();
    let mut first = fixture.launch(program);
    fixture.await_state("running");
    stop(&mut first);
    if chats > 0 {
        copy_into(&fixture.home.path().join("petasos.db"), chats);
    }
    let mut starts: Vec<Duration> = (0..STARTS).map(|_| start(&fixture, program)).collect();
    let mut gateway = fixture.launch(program);
    std::thread::sleep(Duration::from_secs(size("PETASOS_STORED_QUIET_SECONDS", QUIET) as u64));
    let quiet = cpu(gateway.id());
    for turn in 0..WARM {
        fixture.exchange(i64::try_from(1_000_000 + turn * 7).expect("a chat"));
    }
    let before = cpu(gateway.id());
    for turn in 0..TURNS {
        fixture.exchange(i64::try_from(1_000_000 + turn * 3).expect("a chat"));
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

/// Fills the database of the program through SQL: its schema may be older, and opening it here would migrate it. Copies only
/// the columns that both schemas have.
fn copy_into(path: &Path, chats: usize) {
    let db = Connection::open(path).expect("the program's database");
    db.execute("ATTACH ?1 AS filled", [filled(chats).to_str().expect("UTF-8")]).expect("attached");
    for table in ["sessions", "routing", "messages"] {
        let common = "SELECT group_concat(name) FROM (SELECT name FROM pragma_table_info(?1, 'main')
                      INTERSECT SELECT name FROM pragma_table_info(?1, 'filled'))";
        let columns: String = db.query_row(common, [table], |row| row.get(0)).expect("columns");
        let copy = format!("INSERT INTO main.{table} ({columns}) SELECT {columns} FROM filled.{table}");
        db.execute(&copy, []).expect("copied");
    }
    db.close().expect("closed");
}

/// Sessions to copy, created once.
fn filled(chats: usize) -> std::path::PathBuf {
    static MADE: OnceLock<TempDir> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let folder = TempDir::new().expect("a folder");
        let mut store = Store::open(folder.path().join("petasos.db")).expect("a store");
        fill::fill(&mut store, 1_000_000, chats, MESSAGES_EACH, now()).expect("filled");
        store.close().expect("closed");
        folder
    });
    made.path().join("petasos.db")
}

fn start(fixture: &GatewayFixture, program: &Path) -> Duration {
    let polls = |fixture: &GatewayFixture| fixture.telegram.calls_of("getUpdates").len();
    let before = polls(fixture);
    let started = Instant::now();
    let mut gateway = fixture.launch(program);
    let first = fixture
        .telegram
        .wait_until(TIMEOUT, |world| world.calls_of("getUpdates").nth(before).map(|call| call.at))
        .expect("polls");
    fixture.await_state("running");
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
