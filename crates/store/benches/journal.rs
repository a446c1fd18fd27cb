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
