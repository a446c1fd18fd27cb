//! Many programs at once, clients that hang up, and a gateway that is killed and stopped in between: every run that was
//! accepted ends once, none is there twice, and memory does not grow.
//!
//! 300 requests, or as many as `PETASOS_API_REQUESTS` says.

#![allow(
    clippy::expect_used,
    clippy::print_stderr,
    reason = "a test that cannot go on stops; figures are for the reader"
)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, RwLock};
use std::time::{Duration, Instant};

use crate::support::api::{Api, KEY, said};
use crate::support::http::Ask;
use petasos_fakes::Keep;
use petasos_fakes::model::Answer;
use rusqlite::Connection;
use serde_json::json;

const CLIENTS: usize = 64;
/// How often the gateway is ended, in turn by `kill -9` and by SIGTERM, in the first half.
const ENDS: usize = 6;
const PATIENCE: Duration = Duration::from_secs(120);

fn requests() -> usize {
    std::env::var("PETASOS_API_REQUESTS").ok().and_then(|it| it.parse().ok()).unwrap_or(300)
}

/// What a client does with its request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Run,
    /// Hangs up before it hears that its run was accepted, and asks again.
    RunUnheard,
    Chat,
    /// Hangs up in the middle; the run goes on.
    Detached,
    /// Hangs up in the middle; the run ends.
    Left,
    /// Hangs up at once and never comes back.
    Gone,
}

impl Manner {
    fn of(number: usize) -> Self {
        // No order, and the same every time.
        let drawn = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60;
        match drawn {
            0..4 => Self::Run,
            4..6 => Self::RunUnheard,
            6..10 => Self::Chat,
            10..12 => Self::Detached,
            12..14 => Self::Left,
            _ => Self::Gone,
        }
    }
}

struct Crowd {
    address: RwLock<String>,
    next: AtomicUsize,
    /// The run that each request became, as far as its client knows.
    runs: Mutex<HashMap<usize, String>>,
    retries: AtomicUsize,
}

impl Crowd {
    fn work(&self, total: usize) {
        loop {
            let number = self.next.fetch_add(1, Ordering::SeqCst);
            if number >= total {
                return;
            }
            self.request(number);
        }
    }

    fn request(&self, number: usize) {
        let (name, manner) = (format!("request-{number}"), Manner::of(number));
        let ask = ask(number, &name, manner);
        match manner {
            Manner::Gone => drop(ask.begin(self.address().as_str())),
            Manner::RunUnheard => {
                drop(ask.begin(self.address().as_str()));
                self.insist(number, &ask, manner);
            }
            Manner::Run | Manner::Chat | Manner::Detached | Manner::Left => self.insist(number, &ask, manner),
        }
    }

    /// Asks under the same name until it is accepted, as a client does whose connection broke.
    fn insist(&self, number: usize, ask: &Ask<'_>, manner: Manner) {
        let until = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < until, "request {number} is never accepted");
            if let Some(run) = self.attempt(ask, manner) {
                let known = self.runs.lock().expect("unharmed").insert(number, run.clone());
                assert!(known.is_none_or(|known| known == run), "request {number} became two runs");
                return;
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The name of its run; `None`: nobody knows whether there is one.
    fn attempt(&self, ask: &Ask<'_>, manner: Manner) -> Option<String> {
        if matches!(manner, Manner::Detached | Manner::Left) {
            let mut stream = ask.open(self.address().as_str()).ok()?;
            let run = stream.headers.iter().find(|(name, _)| name == "x-petasos-run-id")?.1.clone();
            assert_eq!(stream.status, 200);
            // One frame is heard, unless the gateway ends meanwhile.
            let _ = stream.try_frame();
            return Some(run);
        }
        let reply = ask.send(self.address().as_str()).ok()?;
        match reply.status {
            200 | 202 | 502 => reply.header("x-petasos-run-id").map(str::to_owned),
            429 | 503 => None,
            other => panic!("{other}: {}", reply.body),
        }
    }

    fn address(&self) -> String {
        self.address.read().expect("unharmed").clone()
    }
}

fn ask<'a>(number: usize, name: &str, manner: Manner) -> Ask<'a> {
    let text = format!("request {number}");
    let run = matches!(manner, Manner::Run | Manner::RunUnheard);
    let path = if run { "/v1/runs" } else { "/v1/chat/completions" };
    let mut body = if run { json!({ "input": text }) } else { said(&text) };
    if matches!(manner, Manner::Detached | Manner::Left) {
        body["stream"] = json!(true);
    }
    let detached = if manner == Manner::Detached { "true" } else { "false" };
    Ask::new("POST", path)
        .header("Authorization", format!("Bearer {KEY}"))
        .header("Idempotency-Key", name)
        .header("X-Petasos-Detach", detached)
        .json(&body)
}

fn rss(api: &Api) -> u64 {
    let pid = api.bench.gateway.as_ref().expect("running").pid();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("alive");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse().ok()).expect("a number")
}

/// Waits until this many requests were begun.
fn reached(crowd: &Crowd, count: usize) {
    let until = Instant::now() + 5 * PATIENCE;
    while crowd.next.load(Ordering::SeqCst) < count {
        assert!(Instant::now() < until, "the clients stand still");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Rows of one column of the gateway's database.
fn column(database: &Connection, sql: &str) -> Vec<String> {
    let mut read = database.prepare(sql).expect("a query");
    let rows = read.query_map([], |row| row.get::<_, String>(0)).expect("rows");
    rows.collect::<Result<_, _>>().expect("texts")
}

fn count(database: &Connection, sql: &str) -> usize {
    let count: i64 = database.query_row(sql, [], |row| row.get(0)).expect("a count");
    usize::try_from(count).expect("not negative")
}

#[test]
fn every_accepted_run_ends_once_whatever_happens_to_clients_and_gateway() {
    let total = requests();
    let mut api = Api::with("gateway:\n  api_server:\n    max_concurrent_runs: 100\n    queue_seconds: 5\n");
    api.bench.model.record(Keep::Nothing);
    api.bench.model.respond(|request| {
        let text = format!("echo: {}", crate::support::said(&request.last_user));
        Answer::text(text).chunks(4).every(Duration::from_millis(1))
    });
    let crowd = Crowd {
        address: RwLock::new(api.address.clone()),
        next: AtomicUsize::new(0),
        runs: Mutex::default(),
        retries: AtomicUsize::new(0),
    };
    let started = Instant::now();
    let (early, late) = std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| crowd.work(total));
        }
        for end in 1..=ENDS {
            reached(&crowd, total * end / (2 * ENDS));
            match end % 2 {
                1 => drop(api.bench.kill()),
                _ => drop(api.bench.terminate()),
            }
            api.launch();
            crowd.address.write().expect("unharmed").clone_from(&api.address);
        }
        reached(&crowd, total * 6 / 10);
        let early = rss(&api);
        reached(&crowd, total);
        (early, rss(&api))
    });
    let took = started.elapsed();

    let database = Connection::open(api.bench.database()).expect("a database");
    let until = Instant::now() + PATIENCE;
    while count(&database, "SELECT count(*) FROM runs WHERE outcome IS NULL") > 0 {
        assert!(Instant::now() < until, "some run never ends");
        std::thread::sleep(Duration::from_millis(20));
    }
    let known = crowd.runs.into_inner().expect("unharmed");
    let mut given_up = 0;
    for (number, run) in &known {
        let found = api.get(&format!("/v1/runs/{run}")).json();
        let want: &[&str] = match Manner::of(*number) {
            Manner::Left => &["completed", "cancelled"],
            _ => &["completed"],
        };
        // A run that was executing at three of the kills is blamed for them and reported.
        let blamed = found["status"] == "failed"
            && found["error"].as_str().is_some_and(|it| it.contains("interrupted several times"));
        given_up += usize::from(blamed);
        assert!(blamed || want.iter().any(|want| found["status"] == **want), "request {number}: {found}");
    }
    assert!(given_up <= CLIENTS, "{given_up} of {} runs were given up", known.len());
    // One run, one question and at most one answer for each request.
    let twice = "GROUP BY content HAVING count(*) > 1";
    for role in ["user", "assistant"] {
        let doubled = column(
            &database,
            &format!(
                "SELECT content FROM messages WHERE role = '{role}' AND content LIKE '%request %' {twice}"
            ),
        );
        assert!(doubled.is_empty(), "{role}: {doubled:?}");
    }
    let runs = count(&database, "SELECT count(*) FROM runs");
    let gone = (0..total).filter(|number| Manner::of(*number) == Manner::Gone).count();
    assert!(
        known.len() == total - gone && (known.len()..=total).contains(&runs),
        "{runs} runs of {total} requests"
    );
    assert!(column(&database, "SELECT run FROM repeats GROUP BY run HAVING count(*) > 1").is_empty());
    let grown = late.saturating_sub(early);
    eprintln!(
        "{total} requests, {runs} runs, {} retries, {ENDS} ends, {took:.1?}; RSS {early} KiB, then {late} KiB",
        crowd.retries.load(Ordering::Relaxed)
    );
    assert!(grown < 16 * 1024, "memory grows: {early} KiB, then {late} KiB");
}
