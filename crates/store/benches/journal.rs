//! Durable accepted messages per second, by number of concurrent writers and by checkpoint mode.
//!
//! Each writer offers one message of 500 bytes, waits until it is committed and synced, and offers the next. One thread
//! owns the store, commits all waiting messages as one group, and maintains the log like the gateway. The modes are
//! interleaved. `PETASOS_JOURNAL_ROUNDS` (5) and `PETASOS_JOURNAL_MS` (2000 per sample) set the size.
//!
//! To find out what costs time: `PETASOS_JOURNAL_WRITERS=1,8` selects the numbers of writers; `PETASOS_JOURNAL_WARM=6000`
//! writes that many pages to the log before each sample, so that no sample contains the growth of the file;
//! `PETASOS_JOURNAL_LIMITS=1000,1500,512` replaces the three limits of the checkpoints beside commits (due, reset, tail).

#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![allow(clippy::expect_used)]

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use petasos_core::message::ChatType;
use petasos_core::{Inbound, Millis, Platform, SessionKey, Source};
use petasos_store::{Checkpointer, Error, LogProbe, LogState, Store};

const MOST_IN_GROUP: usize = 512;
const WRITERS: [u64; 4] = [1, 8, 64, 256];

/// Checkpoint mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checkpoints {
    /// Between commits, with the clock stopped: the cost of commits without checkpoints.
    None,
    /// In a separate thread, as in the gateway.
    Beside,
    /// In the commits themselves.
    InCommits,
}

const WAYS: [Checkpoints; 3] = [Checkpoints::None, Checkpoints::Beside, Checkpoints::InCommits];

fn main() {
    let rounds = size("PETASOS_JOURNAL_ROUNDS", 5);
    let run = Duration::from_millis(size("PETASOS_JOURNAL_MS", 2000));
    println!(
        "{:>8} {:>12} {:>10} {:>10} {:>10} {:>10} {:>10} {:>12}",
        "writers", "checkpoints", "rows/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "rows/commit"
    );
    for writers in numbers("PETASOS_JOURNAL_WRITERS").unwrap_or(WRITERS.into()) {
        let writers = usize::try_from(writers).expect("a small number");
        let [none, beside, before] = samples(writers, rounds, run);
        for (way, sample) in WAYS.into_iter().zip([&none, &beside, &before]) {
            sample.print(writers, way);
        }
        if writers == 1 {
            goal("p99 beside / none, at most 1.2", beside.at(990) / none.at(990), |ratio| ratio <= 1.2);
        }
        goal("rows/s beside / in commits, at least 1", beside.rate() / before.rate(), |ratio| ratio >= 1.0);
    }
    opening();
}

fn size(name: &str, normally: u64) -> u64 {
    std::env::var(name).ok().and_then(|it| it.parse().ok()).unwrap_or(normally)
}

/// A list of numbers, separated by commas.
fn numbers(name: &str) -> Option<Vec<u64>> {
    let text = std::env::var(name).ok()?;
    Some(text.split(',').map(|number| number.trim().parse().expect("numbers")).collect())
}

/// Limits of the checkpoints beside commits, in pages. The product's are in `connection/checkpoint.rs`.
#[derive(Debug, Clone, Copy)]
struct Limits {
    due: u64,
    reset: u64,
    tail: u64,
}

impl Limits {
    fn from_env() -> Option<Self> {
        let limits = numbers("PETASOS_JOURNAL_LIMITS")?;
        let [due, reset, tail] = limits[..] else { panic!("PETASOS_JOURNAL_LIMITS=due,reset,tail") };
        Some(Self { due, reset, tail })
    }
}

/// Writes pages to the log, so that its file has grown, and makes it restart.
fn warm_up(store: &mut Store, pages: u64) {
    let text = "x".repeat(64 << 10);
    let filling = store.checkpointer().expect("a checkpointer");
    for number in 0.. {
        if store.log_state().expect("a log").pages >= pages {
            break;
        }
        store.write(|tx| tx.put_meta(&format!("warm{}", number % 50), &text)).expect("a commit");
    }
    let log = filling.run().expect("checkpointed");
    assert_eq!(log.waiting(), 0, "the next commit restarts the log");
}

fn goal(name: &str, ratio: f64, is_met: impl Fn(f64) -> bool) {
    println!("         goal: {name}: {ratio:.3} {}", if is_met(ratio) { "ok" } else { "MISSED" });
}

/// One sample per mode, made of interleaved rounds; the first mode rotates.
fn samples(writers: usize, rounds: u64, run: Duration) -> [Sample; 3] {
    let mut samples = WAYS.map(|_| Sample::default());
    for round in 0..rounds {
        for step in 0..WAYS.len() {
            let at = (step + usize::try_from(round).unwrap_or_default()) % WAYS.len();
            samples[at].add(measure(writers, WAYS[at], run));
        }
    }
    samples.iter_mut().for_each(|sample| sample.waits.sort_unstable());
    samples
}

#[derive(Default)]
struct Sample {
    commits: usize,
    /// One per row.
    waits: Vec<Duration>,
    took: Duration,
}

impl Sample {
    fn add(&mut self, more: Self) {
        self.commits += more.commits;
        self.waits.extend(more.waits);
        self.took += more.took;
    }

    fn rate(&self) -> f64 {
        self.waits.len() as f64 / self.took.as_secs_f64()
    }

    /// Latency at `part` per mille, in milliseconds.
    fn at(&self, part: usize) -> f64 {
        ms(self.waits.get(self.waits.len() * part / 1000))
    }

    fn print(&self, writers: usize, way: Checkpoints) {
        let way = format!("{way:?}");
        let rate = self.rate();
        let share = self.waits.len() as f64 / self.commits.max(1) as f64;
        let p50 = self.at(500);
        let p99 = self.at(990);
        let p999 = self.at(999);
        let most = ms(self.waits.last());
        println!(
            "{writers:>8} {way:>12} {rate:>10.0} {p50:>10.2} {p99:>10.2} {p999:>10.2} {most:>10.2} {share:>12.1}"
        );
    }
}

fn ms(wait: Option<&Duration>) -> f64 {
    wait.map_or(0.0, |wait| wait.as_secs_f64() * 1000.0)
}

struct Job {
    inbound: Inbound,
    key: SessionKey,
    asked: Instant,
    done: SyncSender<()>,
}

fn measure(writers: usize, way: Checkpoints, run: Duration) -> Sample {
    let folder = tempfile::tempdir_in(".").expect("a folder on a real disk");
    let mut store = Store::open(folder.path().join("petasos.db")).expect("a new database");
    if let Some(pages) = numbers("PETASOS_JOURNAL_WARM") {
        warm_up(&mut store, pages[0]);
        store.checkpoint_in_commits().expect("as after the open");
    }
    let (jobs, waiting) = mpsc::sync_channel(MOST_IN_GROUP);
    let owner = thread::spawn(move || Owner::new(store, way).run(&waiting));
    let began = Instant::now();
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let jobs = jobs.clone();
            thread::spawn(move || offer(writer, &jobs, began + run))
        })
        .collect();
    drop(jobs);
    threads.into_iter().for_each(|thread| thread.join().expect("a writer"));
    let took = began.elapsed();
    let Owner { commits, waits, paused, .. } = owner.join().expect("the owner");
    Sample { commits, waits, took: took.saturating_sub(paused) }
}

/// A reduced version of the gateway's database thread.
struct Owner {
    store: Store,
    log: Log,
    commits: usize,
    waits: Vec<Duration>,
    /// Total time with the clock stopped, and the last interval.
    paused: Duration,
    last_pause: Option<(Instant, Instant)>,
}

enum Log {
    InCommits,
    Beside(LogProbe, SyncSender<()>, JoinHandle<()>),
    /// Beside commits with other limits, and jobs since the log was read.
    Limited(Limits, usize, SyncSender<()>, JoinHandle<()>),
    Between(Box<Checkpointer>),
}

impl Owner {
    fn new(store: Store, way: Checkpoints) -> Self {
        let checkpointer = || store.checkpointer().expect("a checkpointer");
        let log = match way {
            Checkpoints::InCommits => Log::InCommits,
            Checkpoints::None => Log::Between(Box::new(checkpointer())),
            Checkpoints::Beside => {
                let (due, signals) = mpsc::sync_channel(1);
                let beside = checkpointer();
                let run = move || signals.iter().for_each(|()| checkpointed(beside.run()));
                let thread = thread::spawn(run);
                match Limits::from_env() {
                    Some(limits) => Log::Limited(limits, 0, due, thread),
                    None => Log::Beside(LogProbe::default(), due, thread),
                }
            }
        };
        Self { store, log, commits: 0, waits: vec![], paused: Duration::ZERO, last_pause: None }
    }

    fn run(mut self, waiting: &Receiver<Job>) -> Self {
        while let Ok(first) = waiting.recv() {
            let mut batch = vec![first];
            batch.extend(waiting.try_iter().take(MOST_IN_GROUP - 1));
            let group = self.store.group().expect("a transaction");
            for job in &batch {
                group.job(|tx| tx.accept(&job.inbound, &job.key, Millis(1))).expect("an accepted message");
            }
            group.commit().expect("a commit");
            self.commits += 1;
            let jobs = batch.len();
            let now = Instant::now();
            for job in batch {
                self.waits.push(self.waited(job.asked, now));
                let _ = job.done.send(());
            }
            self.after_commit(jobs);
        }
        if let Log::Beside(_, due, thread) | Log::Limited(.., due, thread) =
            std::mem::replace(&mut self.log, Log::InCommits)
        {
            drop(due);
            thread.join().expect("the checkpointer");
        }
        self
    }

    /// All messages that wait during a pause are in the next group, so no job sees two pauses.
    fn waited(&self, asked: Instant, now: Instant) -> Duration {
        let stood = self.last_pause.map(|(from, to)| to.saturating_duration_since(from.max(asked)));
        now.duration_since(asked).saturating_sub(stood.unwrap_or_default())
    }

    fn after_commit(&mut self, jobs: usize) {
        match &mut self.log {
            Log::InCommits => {}
            Log::Beside(probe, due, _) => {
                let Some(log) = probe.read(&self.store, jobs).expect("a log") else { return };
                if log.is_due() {
                    // Full: a checkpoint is already requested.
                    let _ = due.try_send(());
                }
                checkpointed(self.store.bound_log(log));
            }
            Log::Limited(limits, since, due, _) => {
                *since += jobs;
                if *since < 16 {
                    return;
                }
                let log = self.store.log_state().expect("a log");
                // Near its bound the log is read after every commit.
                *since = if log.pages > limits.reset { 16 } else { 0 };
                if log.waiting() >= limits.due {
                    let _ = due.try_send(());
                }
                if log.pages > limits.reset && log.waiting() > 0 && log.waiting() <= limits.tail {
                    checkpointed(self.store.checkpoint_passive().map(|()| log));
                }
            }
            Log::Between(checkpointer) => {
                let from = Instant::now();
                if self.store.log_state().expect("a log").is_due() {
                    checkpointed(checkpointer.run());
                    let to = Instant::now();
                    self.paused += to.duration_since(from);
                    self.last_pause = Some((from, to));
                }
            }
        }
    }
}

/// Busy: the other connection is checkpointing.
fn checkpointed(outcome: Result<LogState, Error>) {
    assert!(matches!(outcome, Ok(_) | Err(Error::Busy)), "{outcome:?}");
}

fn offer(writer: usize, jobs: &SyncSender<Job>, until: Instant) {
    let platform = Platform::parse("telegram").expect("a known platform");
    let (done, committed) = mpsc::sync_channel(1);
    let mut number = 0;
    while Instant::now() < until {
        let chat = (number % 50).to_string();
        let source = Source::new(platform, ChatType::Dm, &chat);
        // About 500 bytes with its source.
        let inbound = Inbound::new(source, format!("{writer}:{number}"), "x".repeat(250));
        let key = SessionKey(format!("agent:main:telegram:dm:{chat}"));
        let job = Job { inbound, key, asked: Instant::now(), done: done.clone() };
        jobs.send(job).expect("the owner lives");
        committed.recv().expect("a commit");
        number += 1;
    }
}

fn opening() {
    let folder = tempfile::tempdir_in(".").expect("a folder on a real disk");
    let path = folder.path().join("petasos.db");
    let first = Instant::now();
    drop(Store::open(&path).expect("a new database"));
    let first = first.elapsed();
    let again = Instant::now();
    drop(Store::open(&path).expect("a small database"));
    println!("create {:.1} ms, open {:.1} ms", ms(Some(&first)), ms(Some(&again.elapsed())));
}
