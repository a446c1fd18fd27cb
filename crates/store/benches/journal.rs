//! How many accepted messages per second become durable, by number of writers waiting at once.
//!
//! Each writer offers one message of 500 bytes, waits until it is committed and synced, and offers the
//! next. One thread owns the store and commits whatever waits as one group.

#![allow(clippy::expect_used)]

use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use petasos_core::message::ChatType;
use petasos_core::{Inbound, Millis, Platform, SessionKey, Source};
use petasos_store::Store;

const RUN: Duration = Duration::from_secs(2);
const MOST_IN_GROUP: usize = 512;

struct Job {
    inbound: Inbound,
    done: SyncSender<()>,
}

fn main() {
    println!("{:>8} {:>12} {:>10} {:>10} {:>12}", "writers", "rows/s", "p50 ms", "p99 ms", "rows/commit");
    for writers in [1, 8, 64, 256] {
        let Sample { rows, commits, mut waits, took } = measure(writers);
        waits.sort_unstable();
        let at =
            |part: usize| waits.get(waits.len() * part / 100).map_or(0.0, |wait| wait.as_secs_f64() * 1000.0);
        let rate = rows as f64 / took.as_secs_f64();
        let share = rows as f64 / commits.max(1) as f64;
        println!("{writers:>8} {rate:>12.0} {:>10.2} {:>10.2} {share:>12.1}", at(50), at(99));
    }
    checkpoints();
    opening();
}

struct Sample {
    rows: usize,
    commits: usize,
    waits: Vec<Duration>,
    took: Duration,
}

fn measure(writers: usize) -> Sample {
    let folder = tempfile::tempdir_in(".").expect("a folder on a real disk");
    let store = Store::open(folder.path().join("petasos.db")).expect("a new database");
    let (jobs, waiting) = mpsc::sync_channel(MOST_IN_GROUP);
    let owner = thread::spawn(move || own(store, &waiting));
    let began = Instant::now();
    let threads: Vec<_> = (0..writers)
        .map(|writer| {
            let jobs = jobs.clone();
            thread::spawn(move || offer(writer, &jobs, began + RUN))
        })
        .collect();
    drop(jobs);
    let waits: Vec<Duration> =
        threads.into_iter().flat_map(|thread| thread.join().expect("a writer")).collect();
    let took = began.elapsed();
    let commits = owner.join().expect("the owner");
    Sample { rows: waits.len(), commits, waits, took }
}

/// The gateway's db thread in small: everything that waits becomes one commit.
fn own(mut store: Store, waiting: &Receiver<Job>) -> usize {
    let mut commits = 0;
    while let Ok(first) = waiting.recv() {
        let mut batch = vec![first];
        batch.extend(waiting.try_iter().take(MOST_IN_GROUP - 1));
        let group = store.group().expect("a transaction");
        for job in &batch {
            let key = SessionKey("agent:main:telegram:dm:7".into());
            group.job(|tx| tx.accept(&job.inbound, &key, Millis(1))).expect("an accepted message");
        }
        group.commit().expect("a commit");
        commits += 1;
        for job in batch {
            let _ = job.done.send(());
        }
    }
    commits
}

fn offer(writer: usize, jobs: &SyncSender<Job>, until: Instant) -> Vec<Duration> {
    let platform = Platform::parse("telegram").expect("a known platform");
    let mut waits = Vec::new();
    let (done, committed) = mpsc::sync_channel(1);
    while Instant::now() < until {
        let source = Source::new(platform, ChatType::Dm, "7");
        // about 500 bytes with its source
        let inbound = Inbound::new(source, format!("{writer}:{}", waits.len()), "x".repeat(250));
        let asked = Instant::now();
        jobs.send(Job { inbound, done: done.clone() }).expect("the owner lives");
        committed.recv().expect("a commit");
        waits.push(asked.elapsed());
    }
    waits
}

fn opening() {
    let folder = tempfile::tempdir_in(".").expect("a folder on a real disk");
    let path = folder.path().join("petasos.db");
    let first = Instant::now();
    drop(Store::open(&path).expect("a new database"));
    let first = first.elapsed();
    let again = Instant::now();
    drop(Store::open(&path).expect("a small database"));
    println!(
        "create {:.1} ms, open {:.1} ms",
        first.as_secs_f64() * 1000.0,
        again.elapsed().as_secs_f64() * 1000.0
    );
}

/// Where the log is moved into the file while one session commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Checkpoints {
    /// Between commits, while the clock stands: what commits cost without checkpoints.
    Unmeasured,
    /// In a thread of its own, as in the gateway.
    Beside,
    /// In the commits themselves.
    InCommits,
}

const ROUNDS: usize = 5;
const COMMITS: usize = 3000;

/// One session's commits, one after the other, by where the checkpoints are. Rounds are interleaved.
fn checkpoints() {
    let all = [Checkpoints::Unmeasured, Checkpoints::Beside, Checkpoints::InCommits];
    let mut waits = all.map(|_| Vec::new());
    for round in 0..ROUNDS {
        for (mode, waits) in all.into_iter().zip(&mut waits) {
            waits.extend(session(mode, round));
        }
    }
    println!(
        "{:>12} {:>12} {:>10} {:>10} {:>10} {:>10}",
        "checkpoints", "commits/s", "p50 ms", "p99 ms", "p99.9 ms", "max ms"
    );
    for (mode, mut waits) in all.into_iter().zip(waits) {
        waits.sort_unstable();
        let ms = |wait: Option<&Duration>| wait.map_or(0.0, |wait| wait.as_secs_f64() * 1000.0);
        let at = |part: usize| ms(waits.get(waits.len() * part / 1000));
        let rate = waits.len() as f64 / waits.iter().sum::<Duration>().as_secs_f64();
        let mode = format!("{mode:?}");
        println!(
            "{mode:>12} {rate:>12.0} {:>10.2} {:>10.2} {:>10.2} {:>10.2}",
            at(500),
            at(990),
            at(999),
            ms(waits.last())
        );
    }
}

fn session(mode: Checkpoints, round: usize) -> Vec<Duration> {
    let folder = tempfile::tempdir_in(".").expect("a folder on a real disk");
    let mut store = Store::open(folder.path().join("petasos.db")).expect("a new database");
    let platform = Platform::parse("telegram").expect("a known platform");
    let (due, signals) = mpsc::sync_channel::<()>(1);
    let beside = (mode != Checkpoints::InCommits).then(|| store.checkpointer().expect("a checkpointer"));
    let (own, thread) = match mode {
        Checkpoints::Beside => {
            let run = move || beside.iter().for_each(|it| signals.iter().for_each(|()| drop(it.run())));
            (None, Some(thread::spawn(run)))
        }
        Checkpoints::Unmeasured | Checkpoints::InCommits => (beside, None),
    };
    let mut waits = Vec::with_capacity(COMMITS);
    for number in 0..COMMITS {
        let chat = (number % 50).to_string();
        let source = Source::new(platform, ChatType::Dm, &chat);
        let inbound = Inbound::new(source, format!("{round}:{number}"), "x".repeat(250));
        let key = SessionKey(format!("agent:main:telegram:dm:{chat}"));
        let asked = Instant::now();
        store.write(|tx| tx.accept(&inbound, &key, Millis(1))).expect("a commit");
        let log = store.log_state().expect("a log");
        if thread.is_some() && log.is_due() {
            let _ = due.try_send(());
        }
        if thread.is_some() {
            store.bound_log(log).expect("a bounded log");
        }
        waits.push(asked.elapsed());
        if let Some(own) = own.as_ref().filter(|_| log.is_due()) {
            own.run().expect("a checkpoint");
        }
    }
    drop(due);
    if let Some(thread) = thread {
        thread.join().expect("the checkpointer");
    }
    waits
}
