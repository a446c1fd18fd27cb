//! Waits for a change of the gateway and shows the progress.

use std::process::ExitCode;
use std::time::Duration;

use petasos_config::Home;
use petasos_runtime::clock;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use super::progress::Progress;
use crate::commands::{Context, open_reader};
use crate::failure::Failure;
use crate::observe::{GatewayWatcher, LifecycleStatus, Observation, to_instant};
use crate::print::{self, outln};

const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// No progress line for shorter waits.
const QUIET_PERIOD: Duration = Duration::from_millis(500);
/// Within this time a gateway follows a marker.
const BRIEF_WAIT: Duration = Duration::from_secs(2);
const AFTER_DRAIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum WaitResult<T> {
    Done(T),
    TimedOut(Box<Observation>),
    Interrupted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Deadline {
    Fixed,
    /// Extended by as much as a stopping gateway gives its turns.
    FollowsTurns,
}

#[derive(Debug)]
pub(super) struct GatewayWait<'a> {
    watcher: GatewayWatcher<'a>,
    progress: Progress,
    /// `None` if the signal handler could not be installed; then Ctrl-C ends the program.
    interrupt: Option<Signal>,
    end: Option<Instant>,
    deadline: Deadline,
}

impl<'a> GatewayWait<'a> {
    /// `max`: `None` waits without a limit.
    pub(super) fn new(context: &'a Context, max: Option<Duration>, deadline: Deadline) -> Self {
        Self {
            watcher: GatewayWatcher::new(&context.home),
            progress: Progress::new(context.json),
            interrupt: signal(SignalKind::interrupt()).ok(),
            end: max.and_then(|max| clock::monotonic().checked_add(max)),
            deadline,
        }
    }

    /// Polls until `step` returns a value. `title` describes what is awaited.
    pub(super) async fn until<T>(
        mut self,
        title: impl Fn(&Observation) -> String,
        mut step: impl FnMut(&Observation) -> Option<T>,
    ) -> WaitResult<T> {
        let started = clock::monotonic();
        loop {
            let seen = tokio::select! {
                seen = self.watcher.poll() => seen,
                () = interrupted(&mut self.interrupt) => return WaitResult::Interrupted,
            };
            if let Some(done) = step(&seen) {
                self.progress.clear();
                return WaitResult::Done(done);
            }
            if self.deadline == Deadline::FollowsTurns {
                self.extend(&seen);
            }
            if self.end.is_some_and(|end| clock::monotonic() >= end) {
                self.progress.clear();
                return WaitResult::TimedOut(Box::new(seen));
            }
            let running_turns = seen.status().is_some_and(|lifecycle| !lifecycle.turns.is_empty());
            if running_turns || started.elapsed() > QUIET_PERIOD {
                self.progress.show(&title(&seen), seen.status());
            }
            tokio::select! {
                () = clock::sleep(POLL_INTERVAL) => {}
                () = interrupted(&mut self.interrupt) => return WaitResult::Interrupted,
            }
        }
    }

    /// Extends the deadline when the turns of a stopping gateway get more time.
    fn extend(&mut self, seen: &Observation) {
        let shutdown = seen.status().filter(|lifecycle| lifecycle.is_shutting_down());
        let extended = shutdown
            .and_then(LifecycleStatus::last_deadline)
            .and_then(to_instant)
            .and_then(|at| at.checked_add(AFTER_DRAIN));
        self.end = self.end.max(extended);
    }
}

async fn interrupted(interrupt: &mut Option<Signal>) {
    match interrupt {
        Some(interrupt) => drop(interrupt.recv().await),
        None => std::future::pending().await,
    }
}

/// Waits up to 2 s for a condition. Returns the last observation and whether the condition held.
pub(super) async fn wait_briefly(
    home: &Home,
    condition: impl Fn(&LifecycleStatus) -> bool,
) -> (Observation, bool) {
    let mut watcher = GatewayWatcher::new(home);
    let end = clock::monotonic() + BRIEF_WAIT;
    loop {
        let seen = watcher.poll().await;
        let holds = seen.status().is_some_and(&condition);
        if holds || seen == Observation::NotRunning || clock::monotonic() >= end {
            return (seen, holds);
        }
        clock::sleep(POLL_INTERVAL).await;
    }
}

pub(super) fn running_turns(count: usize) -> String {
    format!("{} running", print::count(count as u64, "turn", "turns"))
}

/// The number of running turns, and how many of them are skipped.
pub(super) fn turn_summary(lifecycle: &LifecycleStatus) -> String {
    let all = lifecycle.turns.len();
    let awaited = lifecycle.awaited().count();
    match (all, all - awaited) {
        (0, _) => "no turn is running".into(),
        (all, 0) => running_turns(all),
        (1, _) => format!("{}, skipped", running_turns(1)),
        (all, skipped) if skipped == all => format!("{}, all of them skipped", running_turns(all)),
        (all, skipped) => format!("{}, {skipped} of them skipped", running_turns(all)),
    }
}

/// Number of turns that a stopped gateway left unfinished. `None` if the database cannot be read.
pub(super) fn interrupted_turns(home: &Home) -> Option<usize> {
    match open_reader(home).ok()? {
        Some(reader) => Some(reader.open_turns().ok()?.len()),
        None => Some(0),
    }
}

pub(super) fn turns_interrupted(count: usize) -> String {
    format!("{} interrupted", print::count(count as u64, "turn was", "turns were"))
}

pub(super) fn title_with_turns(title: &str, lifecycle: &LifecycleStatus) -> String {
    match lifecycle.awaited().count() {
        0 => title.to_owned(),
        count => format!("{title}: waiting for {}", running_turns(count)),
    }
}

/// Reports that the wait was interrupted, with the exit code of SIGINT.
pub(super) fn detached(context: &Context, what: &str) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&serde_json::json!({ "unwatched": true, "note": what }))?;
    } else {
        outln!("\n{what}");
    }
    Ok(ExitCode::from(130))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn turn_summary_counts_running_and_skipped_turns() {
        for (skipped, want) in [
            (&[][..], "no turn is running"),
            (&[false], "1 turn running"),
            (&[true], "1 turn running, skipped"),
            (&[false, false], "2 turns running"),
            (&[false, true], "2 turns running, 1 of them skipped"),
            (&[true, true], "2 turns running, all of them skipped"),
        ] {
            let holders = skipped.iter().map(|skipped| json!({"key": "a", "since": 1, "skipped": skipped}));
            let holders: Vec<_> = holders.collect();
            let lifecycle = serde_json::from_value(json!({"state": "draining", "holders": holders}));
            assert_eq!(turn_summary(&lifecycle.unwrap()), want);
        }
    }
}
