//! Scheduled jobs. Owns the timer; all other state is in the store.
//!
//! One commit turns a due job into a run: the run's row, its inbox message and the job's next due time. So there is one
//! run per due time. The message is processed like a message from a person and waits while the accept gate is closed. The
//! commit that ends its turn also marks the run as finished. Its result is enqueued in one commit with the mark that it
//! was reported (`report.rs`).
//!
//! A crash leaves due jobs (the next start decides which due times were missed), inbox messages and unreported runs.

mod jobs;
mod report;
mod timer;

use std::time::Duration;

use jiff::tz::TimeZone;
use petasos_core::cron::{self, CatchUpPolicy, DueRuns, Job};
use petasos_core::lifecycle::GateState;
use petasos_core::message::Platform;
use petasos_core::session::{KeyOptions, session_key};
use petasos_core::{Inbound, Millis};
use petasos_store::{Error as StoreError, PendingMessage, Tx};
use tokio::sync::watch;

pub use jobs::{JobError, ScheduledJob};
pub(crate) use jobs::{JobRequester, Jobs};

use crate::background::notifications::Notifications;
use crate::lifecycle::gate::AcceptGate;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::{Error, clock};
use timer::Timer;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub terms: CatchUpPolicy,
    /// Prefix an answer with the name of its job.
    pub wrap: bool,
    /// Add reports to the transcript of the chat.
    pub mirror: bool,
    /// IANA name; `None`: the time zone of this machine.
    pub timezone: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        let terms =
            CatchUpPolicy { missed: cron::MissedRunMode::Once, grace: Duration::from_secs(12 * 3600) };
        Self { terms, wrap: true, mirror: false, timezone: None }
    }
}

const RETRY: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Scheduler {
    pub(crate) jobs: Jobs,
    pub(crate) notifications: Notifications,
    pub(crate) gate: AcceptGate,
    pub(crate) keys: KeyOptions,
}

pub(crate) async fn run(scheduler: Scheduler) {
    let timer = loop {
        match Timer::new() {
            Ok(timer) => break timer,
            Err(error) => {
                tracing::error!(%error, "cannot create the timer for scheduled jobs");
                if pause(&scheduler).await {
                    return;
                }
            }
        }
    };
    loop {
        let mut changes = scheduler.gate.watch();
        let open = scheduler.gate.state() == GateState::Open;
        let next = match tick(&scheduler, open).await {
            Ok(next) => next,
            Err(Error::Stopping) => return,
            Err(error) => {
                tracing::warn!(%error, "scheduled jobs wait for the store");
                if pause(&scheduler).await {
                    return;
                }
                continue;
            }
        };
        petasos_runtime::select! {
            () = scheduler.notifications.shutdown.stopped() => return,
            () = scheduler.jobs.wake.notified() => {}
            () = gate_opened(&scheduler, &mut changes), if !open => {}
            waited = timer.wait(next), if open => if let Err(error) = waited {
                tracing::error!(%error, "the timer for scheduled jobs failed");
                if pause(&scheduler).await {
                    return;
                }
            },
        }
    }
}

/// Resolves when the gate is open; ignores other changes of the gate.
async fn gate_opened(scheduler: &Scheduler, changes: &mut watch::Receiver<u64>) {
    while scheduler.gate.state() != GateState::Open && changes.changed().await.is_ok() {}
}

/// Waits before the next attempt. `true`: the gateway stops.
async fn pause(scheduler: &Scheduler) -> bool {
    petasos_runtime::select! {
        () = scheduler.notifications.shutdown.stopped() => true,
        () = clock::sleep(RETRY) => false,
    }
}

/// Starts due jobs and reports finished runs. Returns the next due time.
async fn tick(scheduler: &Scheduler, open: bool) -> Result<Option<Millis>, Error> {
    report::report_finished(scheduler).await?;
    let now = clock::now();
    let next = scheduler.jobs.db.read(|reader| reader.next_job_due()).await?;
    if !open || next.is_none_or(|next| next > now) {
        return Ok(next);
    }
    let settings = scheduler.jobs.settings.cron.clone();
    let keys = scheduler.keys;
    let started = scheduler
        .jobs
        .db
        .write(Commit::CronBegin, move |tx| start_due_runs(tx, &settings, &keys, now))
        .await?;
    if planted(PlantedBug::RunsJobTwice) {
        let later = scheduler.jobs.settings.cron.clone();
        scheduler.jobs.db.write(Commit::CronJob, move |tx| store_next_due_times(tx, &later, now)).await?;
    }
    for pending in started {
        scheduler.jobs.router.deliver(pending.key.clone(), pending).await;
    }
    // Skipped due times are reported at once.
    report::report_finished(scheduler).await?;
    scheduler.jobs.db.read(|reader| reader.next_job_due()).await
}

fn start_due_runs(
    tx: &Tx<'_>,
    settings: &Settings,
    keys: &KeyOptions,
    now: Millis,
) -> Result<Vec<PendingMessage>, StoreError> {
    let mut started = Vec::new();
    for (mut job, first) in tx.jobs_due(now)? {
        let zone = zone(job.timezone.as_deref().or(settings.timezone.as_deref()));
        let schedule = match job.schedule(&zone) {
            Ok(schedule) => schedule,
            Err(why) => {
                tracing::error!(job = %job.id, why, "the schedule is invalid; the job is paused");
                (job.enabled, job.paused_at) = (false, Some(now));
                tx.put_job(&job, None)?;
                continue;
            }
        };
        let DueRuns { run, skipped, next } = cron::due_runs(&schedule, &zone, first, now, settings.terms);
        job.skipped = job.skipped.saturating_add(skipped);
        let over = run.is_empty() && next.is_none();
        for due in run {
            if job.is_exhausted() {
                break;
            }
            started.extend(start_run(tx, &mut job, due, keys, now)?);
        }
        if over {
            tx.accept_occurrence(&job, first, None, job.skipped, now)?;
        }
        let next = next.filter(|_| !job.is_exhausted());
        if !planted(PlantedBug::RunsJobTwice) {
            tx.put_job(&job, next)?;
        }
    }
    Ok(started)
}

/// Planted bug: stores the next due times in a commit of their own.
fn store_next_due_times(tx: &Tx<'_>, settings: &Settings, now: Millis) -> Result<(), StoreError> {
    for (mut job, first) in tx.jobs_due(now)? {
        let zone = zone(job.timezone.as_deref().or(settings.timezone.as_deref()));
        let Ok(schedule) = job.schedule(&zone) else { continue };
        let DueRuns { run, next, .. } = cron::due_runs(&schedule, &zone, first, now, settings.terms);
        job.completed = job.completed.saturating_add(u32::try_from(run.len()).unwrap_or(u32::MAX));
        let next = next.filter(|_| !job.is_exhausted());
        tx.put_job(&job, next)?;
    }
    Ok(())
}

/// Stores a run and its message. `None`: this due time has a run already.
fn start_run(
    tx: &Tx<'_>,
    job: &mut Job,
    due: Millis,
    keys: &KeyOptions,
    now: Millis,
) -> Result<Option<PendingMessage>, StoreError> {
    let again = planted(PlantedBug::RunsJobTwice);
    if !again && tx.has_occurrence(&job.id, due)? {
        return Ok(None);
    }
    let skipped = std::mem::take(&mut job.skipped);
    job.completed = job.completed.saturating_add(1);
    let inbound = Inbound::internal(
        job.source(Platform::CRON),
        format!("cron:{}:{}{}", job.id, due.0, if again { format!("!{}", now.0) } else { String::new() }),
        cron::run_prompt(job, skipped),
    );
    let key = session_key(&inbound.source, keys);
    let id = tx.accept(&inbound, &key, now)?.id();
    tx.accept_occurrence(job, due, Some(id), skipped, now)?;
    Ok(Some(PendingMessage { id, key, inbound, received_at: now }))
}

/// Falls back to the time zone of this machine: a job at another hour is better than none.
pub(crate) fn zone(name: Option<&str>) -> TimeZone {
    name.and_then(|name| TimeZone::get(name).ok()).unwrap_or_else(TimeZone::system)
}
