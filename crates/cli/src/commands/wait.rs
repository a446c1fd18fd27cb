//! Waiting for a gateway, in sight of whoever asked for it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use petasos_config::Home;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::{Context, reader};
use crate::failure::Failure;
use crate::life::{Life, Sight, Watcher, instant};
use crate::print::{self, say};
use crate::progress::Progress;

const LOOK: Duration = Duration::from_millis(50);
/// What takes no longer than this is not worth a line.
const AT_ONCE: Duration = Duration::from_millis(500);
/// A gateway follows a marker within this.
const SOON: Duration = Duration::from_secs(2);
/// What a stop needs when the turns have had their time.
const AFTERWARDS: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Waited<T> {
    Done(T),
    /// What was seen last.
    Late(Box<Sight>),
    /// The person does not want to watch any more.
    Interrupted,
}

/// Whether the end stays where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Patience {
    Fixed,
    /// As long as the turns of a gateway that leaves are given.
    Leaving,
}

#[derive(Debug)]
pub(super) struct Wait<'a> {
    watcher: Watcher<'a>,
    progress: Progress,
    /// Listens from the beginning; `None`: Ctrl-C ends the program as it does by itself.
    interrupt: Option<Signal>,
    end: Option<Instant>,
    patience: Patience,
}

impl<'a> Wait<'a> {
    /// `None`: however long it takes.
    pub(super) fn new(context: &'a Context, most: Option<Duration>, patience: Patience) -> Self {
        Self {
            watcher: Watcher::new(&context.home),
            progress: Progress::new(context.json),
            interrupt: signal(SignalKind::interrupt()).ok(),
            end: most.and_then(|most| Instant::now().checked_add(most)),
            patience,
        }
    }

    /// Until `step` has what it wants. `title` says what that is.
    pub(super) async fn until<T>(
        mut self,
        title: impl Fn(&Sight) -> String,
        mut step: impl FnMut(&Sight) -> Option<T>,
    ) -> Waited<T> {
        let begun = Instant::now();
        loop {
            let sight = tokio::select! {
                sight = self.watcher.look() => sight,
                () = interrupted(&mut self.interrupt) => return Waited::Interrupted,
            };
            if let Some(done) = step(&sight) {
                self.progress.clear();
                return Waited::Done(done);
            }
            if self.patience == Patience::Leaving {
                self.grant(&sight);
            }
            if self.end.is_some_and(|end| Instant::now() >= end) {
                self.progress.clear();
                return Waited::Late(Box::new(sight));
            }
            let at_work = sight.life().is_some_and(|life| !life.holders.is_empty());
            if at_work || begun.elapsed() > AT_ONCE {
                self.progress.show(&title(&sight), sight.life());
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = interrupted(&mut self.interrupt) => return Waited::Interrupted,
            }
        }
    }

    /// Somebody may grant the turns of a gateway that leaves more time than was said at first.
    fn grant(&mut self, sight: &Sight) {
        let leaving = sight.life().filter(|life| life.is_leaving());
        let granted = leaving.and_then(Life::end).and_then(instant).and_then(|at| at.checked_add(AFTERWARDS));
        self.end = self.end.max(granted);
    }
}

async fn interrupted(interrupt: &mut Option<Signal>) {
    match interrupt {
        Some(interrupt) => drop(interrupt.recv().await),
        None => std::future::pending().await,
    }
}

/// Waits a moment for what must come at once. Gives what was seen last, and whether that was it.
pub(super) async fn soon(home: &Home, is_it: impl Fn(&Life) -> bool) -> (Sight, bool) {
    let (mut watcher, end) = (Watcher::new(home), Instant::now() + SOON);
    loop {
        let sight = watcher.look().await;
        let seen = sight.life().is_some_and(&is_it);
        if seen || sight == Sight::Nobody || Instant::now() >= end {
            return (sight, seen);
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// `2 sessions at work`.
pub(super) fn at_work(count: usize) -> String {
    format!("{} at work", print::count(count as u64, "session", "sessions"))
}

/// Everybody at work, and how many of them nobody waits for.
pub(super) fn everybody(life: &Life) -> String {
    let (all, awaited) = (life.holders.len(), life.awaited().count());
    match (all, all - awaited) {
        (0, _) => "nobody is at work".into(),
        (all, 0) => at_work(all),
        (1, _) => format!("{}, not waited for", at_work(1)),
        (all, skipped) if skipped == all => format!("{}, none of them waited for", at_work(all)),
        (all, skipped) => format!("{}, {skipped} of them not waited for", at_work(all)),
    }
}

/// How many turns a gateway that is gone has left open. `None`: the database does not say.
pub(super) fn left_open(home: &Home) -> Option<usize> {
    match reader(home).ok()? {
        Some(reader) => Some(reader.open_turns().ok()?.len()),
        None => Some(0),
    }
}

/// `1 turn was interrupted`.
pub(super) fn turns_interrupted(count: usize) -> String {
    format!("{} interrupted", print::count(count as u64, "turn was", "turns were"))
}

/// What a title says of those who are waited for.
pub(super) fn busy(title: &str, life: &Life) -> String {
    match life.awaited().count() {
        0 => title.to_owned(),
        count => format!("{title}: waiting for {}", at_work(count)),
    }
}

/// As a shell says it of a program that was interrupted; `what` goes on without us.
pub(super) fn unwatched(context: &Context, what: &str) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&serde_json::json!({ "unwatched": true, "note": what }))?;
    } else {
        say!("\n{what}");
    }
    Ok(ExitCode::from(130))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn everybody_at_work_is_counted_and_those_nobody_waits_for_are_named() {
        for (skipped, want) in [
            (&[][..], "nobody is at work"),
            (&[false], "1 session at work"),
            (&[true], "1 session at work, not waited for"),
            (&[false, false], "2 sessions at work"),
            (&[false, true], "2 sessions at work, 1 of them not waited for"),
            (&[true, true], "2 sessions at work, none of them waited for"),
        ] {
            let holders = skipped.iter().map(|skipped| json!({"key": "a", "since": 1, "skipped": skipped}));
            let holders: Vec<_> = holders.collect();
            let life = serde_json::from_value(json!({"state": "draining", "holders": holders}));
            assert_eq!(everybody(&life.unwrap()), want);
        }
    }
}
