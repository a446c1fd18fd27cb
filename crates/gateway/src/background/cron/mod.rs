//! Scheduled work. Owns the timer; everything else is rows.
//!
//! A job that is due becomes a run: its row, its message in the inbox and the job's next moment are one commit, so there is
//! one run per due time, whatever happens. The message goes the way of every message and is claimed like a person's: while
//! nobody may start a turn, it waits. When its turn ends, the same commit marks the run; what was said is then owed to
//! whoever is to hear it, in one commit with the mark that it was told (`tell.rs`).
//!
//! A crash leaves: jobs that are due (the next start decides what of it was missed), messages in the inbox, runs to tell.

mod jobs;
mod tell;
mod timer;

use std::time::Duration;

use jiff::tz::TimeZone;
use petasos_core::cron::{self, Due, Job, Terms};
use petasos_core::lifecycle::Door;
use petasos_core::message::Platform;
use petasos_core::session::{KeyOptions, session_key};
use petasos_core::{Inbound, Millis};
use petasos_store::{Error as StoreError, Pending, Tx};
use tokio::sync::watch;

pub(crate) use jobs::{Asker, Jobs};
pub use jobs::{JobError, Scheduled};

use crate::background::notifications::Notifications;
use crate::lifecycle::gate::Gate;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::{Error, clock};
use timer::Timer;

/// How scheduled work is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub terms: Terms,
    /// Say which job an answer comes from.
    pub wrap: bool,
    /// Whether the conversation in the chat learns what was said there.
    pub mirror: bool,
    /// IANA name; `None`: this machine's.
    pub timezone: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let terms = Terms { missed: cron::Missed::Once, grace: Duration::from_secs(12 * 3600) };
        Self { terms, wrap: true, mirror: false, timezone: None }
    }
}

/// How long to wait when the store or the timer refuses.
const RETRY: Duration = Duration::from_secs(5);

/// What the timer starts jobs with.
#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) jobs: Jobs,
    pub(crate) notifications: Notifications,
    pub(crate) gate: Gate,
    pub(crate) keys: KeyOptions,
}

pub(crate) async fn run(by: Scheduler) {
    let timer = loop {
        match Timer::new() {
            Ok(timer) => break timer,
            Err(error) => {
                tracing::error!(%error, "no timer for scheduled work");
                if pause(&by).await {
                    return;
                }
            }
        }
    };
    loop {
        let mut news = by.gate.watch();
        let open = by.gate.door() == Door::Open;
        let next = match round(&by, open).await {
            Ok(next) => next,
            Err(Error::Stopping) => return,
            Err(error) => {
                tracing::warn!(%error, "scheduled work waits for the store");
                if pause(&by).await {
                    return;
                }
                continue;
            }
        };
        petasos_runtime::select! {
            () = by.notifications.stopper.stopped() => return,
            () = by.jobs.bell.rung() => {}
            () = opened(&by, &mut news), if !open => {}
            waited = timer.wait(next), if open => if let Err(error) = waited {
                tracing::error!(%error, "the timer of scheduled work fails");
                if pause(&by).await {
                    return;
                }
            },
        }
    }
}

/// Who works and who does not is no news; that more may start again is.
async fn opened(by: &Scheduler, news: &mut watch::Receiver<u64>) {
    // The gate lives as long as we do.
    while by.gate.door() != Door::Open && news.changed().await.is_ok() {}
}

/// `true`: we stop.
async fn pause(by: &Scheduler) -> bool {
    petasos_runtime::select! {
        () = by.notifications.stopper.stopped() => true,
        () = tokio::time::sleep(RETRY) => false,
    }
}

/// Begins what is due, tells what has ended. Gives the next moment.
async fn round(by: &Scheduler, open: bool) -> Result<Option<Millis>, Error> {
    tell::all(by).await?;
    let now = clock::now();
    let next = by.jobs.db.read(|reader| reader.next_job_due()).await?;
    if !open || next.is_none_or(|next| next > now) {
        return Ok(next);
    }
    let (settings, keys) = (by.jobs.settings.cron.clone(), by.keys);
    let begun = by.jobs.db.write(Commit::CronBegin, move |tx| begin_due(tx, &settings, &keys, now)).await?;
    if planted(Planted::RunsAgain) {
        let later = by.jobs.settings.cron.clone();
        by.jobs.db.write(Commit::CronJob, move |tx| put_next_moments(tx, &later, now)).await?;
    }
    for pending in begun {
        by.jobs.router.arrived(pending.key.clone(), pending).await;
    }
    // What was missed for good is told at once.
    tell::all(by).await?;
    by.jobs.db.read(|reader| reader.next_job_due()).await
}

fn begin_due(
    tx: &Tx<'_>,
    settings: &Settings,
    keys: &KeyOptions,
    now: Millis,
) -> Result<Vec<Pending>, StoreError> {
    let mut begun = Vec::new();
    for (mut job, first) in tx.jobs_due(now)? {
        let zone = zone(job.timezone.as_deref().or(settings.timezone.as_deref()));
        let schedule = match job.schedule(&zone) {
            Ok(schedule) => schedule,
            Err(why) => {
                tracing::error!(job = %job.id, why, "a schedule cannot be read any more; its job is paused");
                (job.enabled, job.paused_at) = (false, Some(now));
                tx.put_job(&job, None)?;
                continue;
            }
        };
        let Due { run, skipped, next } = cron::due(&schedule, &zone, first, now, settings.terms);
        job.skipped = job.skipped.saturating_add(skipped);
        let over = run.is_empty() && next.is_none();
        for due in run {
            if job.is_spent() {
                break;
            }
            begun.extend(begin(tx, &mut job, due, keys, now)?);
        }
        if over {
            tx.accept_occurrence(&job, first, None, job.skipped, now)?;
        }
        let next = next.filter(|_| !job.is_spent());
        if !planted(Planted::RunsAgain) {
            tx.put_job(&job, next)?;
        }
    }
    Ok(begun)
}

/// For a planted bug: the next moments of jobs that are due, by themselves.
fn put_next_moments(tx: &Tx<'_>, settings: &Settings, now: Millis) -> Result<(), StoreError> {
    for (mut job, first) in tx.jobs_due(now)? {
        let zone = zone(job.timezone.as_deref().or(settings.timezone.as_deref()));
        let Ok(schedule) = job.schedule(&zone) else { continue };
        let Due { run, next, .. } = cron::due(&schedule, &zone, first, now, settings.terms);
        job.completed = job.completed.saturating_add(u32::try_from(run.len()).unwrap_or(u32::MAX));
        let next = next.filter(|_| !job.is_spent());
        tx.put_job(&job, next)?;
    }
    Ok(())
}

/// A run: its message and its row, or nothing if there is one for this moment.
fn begin(
    tx: &Tx<'_>,
    job: &mut Job,
    due: Millis,
    keys: &KeyOptions,
    now: Millis,
) -> Result<Option<Pending>, StoreError> {
    let again = planted(Planted::RunsAgain);
    if !again && tx.has_occurrence(&job.id, due)? {
        return Ok(None);
    }
    let skipped = std::mem::take(&mut job.skipped);
    job.completed = job.completed.saturating_add(1);
    let inbound = Inbound::internal(
        job.source(Platform::CRON),
        format!("cron:{}:{}{}", job.id, due.0, if again { format!("!{}", now.0) } else { String::new() }),
        cron::prompt(job, skipped),
    );
    let key = session_key(&inbound.source, keys);
    let id = tx.accept(&inbound, &key, now)?.id();
    tx.accept_occurrence(job, due, Some(id), skipped, now)?;
    Ok(Some(Pending { id, key, inbound, received_at: now }))
}

/// A zone that nobody knows any more is this machine's: a job that runs at another hour is better than none.
pub(crate) fn zone(name: Option<&str>) -> TimeZone {
    name.and_then(|name| TimeZone::get(name).ok()).unwrap_or_else(TimeZone::system)
}
