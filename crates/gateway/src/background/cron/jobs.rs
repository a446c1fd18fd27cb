//! Creating, changing, removing and running scheduled jobs, for tools, the page and the command line.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use petasos_core::cron::{Job, JobId, JobUpdate, NewJob, Schedule};
use petasos_core::person::Person;
use petasos_core::session::KeyOptions;
use petasos_core::{Millis, Source};
use petasos_store::{Error as StoreError, Tx};
use serde_json::{Value, json};

use super::{Settings, start_run, zone};
use crate::api::handle::Handle;
use crate::background::completions::WakeSignal;
use crate::lifecycle::config::Settings as GatewaySettings;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::sessions::router::Router;
use crate::storage::database::Db;
use crate::{Error, clock};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledJob {
    pub job: Job,
    /// `None`: paused or completed.
    pub next: Option<Millis>,
}

#[derive(Debug, thiserror::Error)]
pub enum JobError {
    #[error("{0}")]
    Invalid(String),
    #[error("there is no such job")]
    NotFound,
    #[error(transparent)]
    Gateway(#[from] Error),
}

/// The person who creates a job, and the chat where they asked.
#[derive(Debug, Clone)]
pub(crate) struct JobRequester {
    pub(crate) person: Person,
    pub(crate) origin: Option<Source>,
}

const MAX_JOBS: usize = 500;

impl Handle {
    pub fn schedule(&self) -> &Settings {
        &self.0.handles.jobs.settings.cron
    }

    pub async fn jobs(&self) -> Result<Vec<ScheduledJob>, JobError> {
        self.0.handles.jobs.jobs(None).await
    }

    pub async fn job(&self, id: &JobId) -> Result<ScheduledJob, JobError> {
        self.0.handles.jobs.job(id, None).await
    }

    /// Creates a job of the owner of this machine. `origin`: the chat for its results, if it has one.
    pub async fn job_create(&self, new: NewJob, origin: Option<Source>) -> Result<ScheduledJob, JobError> {
        self.0.handles.jobs.job_create(new, JobRequester { person: Person::owner(), origin }).await
    }

    /// Also pauses and resumes: `Change::enabled`.
    pub async fn job_change(&self, id: &JobId, change: JobUpdate) -> Result<ScheduledJob, JobError> {
        self.0.handles.jobs.job_change(id, change, None).await
    }

    pub async fn job_remove(&self, id: &JobId) -> Result<(), JobError> {
        self.0.handles.jobs.job_remove(id, None).await
    }

    /// Runs a job now, in addition to its schedule.
    pub async fn job_run(&self, id: &JobId) -> Result<ScheduledJob, JobError> {
        self.0.handles.jobs.job_run(id, None, self.0.ingest.rules.keys).await
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Jobs {
    pub(crate) db: Db,
    pub(crate) router: Router,
    pub(crate) settings: Arc<GatewaySettings>,
    /// Wakes the scheduler: jobs have changed, or a turn has ended.
    pub(crate) wake: WakeSignal,
}

/// `owner`: restricts the call to the jobs of this person; other jobs are reported as absent.
impl Jobs {
    pub(crate) async fn jobs(&self, owner: Option<Person>) -> Result<Vec<ScheduledJob>, JobError> {
        let all = self.db.read(|reader| reader.jobs()).await?;
        let theirs =
            all.into_iter().filter(|(job, _)| owner.as_ref().is_none_or(|owner| *owner == job.person));
        Ok(theirs.map(|(job, next)| ScheduledJob { job, next }).collect())
    }

    pub(crate) async fn job(&self, id: &JobId, owner: Option<Person>) -> Result<ScheduledJob, JobError> {
        let id = id.clone();
        let found = self.db.read(move |reader| reader.job(&id)).await?;
        let found = found.filter(|(job, _)| owner.as_ref().is_none_or(|owner| *owner == job.person));
        found.map(|(job, next)| ScheduledJob { job, next }).ok_or(JobError::NotFound)
    }

    pub(crate) async fn job_create(
        &self,
        new: NewJob,
        requester: JobRequester,
    ) -> Result<ScheduledJob, JobError> {
        if let Some(name) = &new.timezone {
            TimeZone::get(name).map_err(|_| JobError::Invalid(format!("unknown time zone {name:?}")))?;
        }
        let now = clock::now();
        let zone = self.zone_of(new.timezone.as_deref());
        let id = JobId::from_bytes(clock::random());
        let job =
            Job::new(id, new, requester.person, requester.origin, &zone, now).map_err(JobError::Invalid)?;
        let next = job.next(now, &zone);
        let kept = job.clone();
        let room = self.schedule_job(move |tx| {
            let room = tx.job_count()? < MAX_JOBS;
            if room {
                tx.put_job(&kept, next)?;
            }
            Ok(room)
        });
        if !room.await? {
            return Err(JobError::Invalid(format!("there are {MAX_JOBS} jobs already; remove one first")));
        }
        Ok(ScheduledJob { job, next })
    }

    pub(crate) async fn job_change(
        &self,
        id: &JobId,
        change: JobUpdate,
        owner: Option<Person>,
    ) -> Result<ScheduledJob, JobError> {
        let ScheduledJob { job, .. } = self.job(id, owner).await?;
        let now = clock::now();
        let zone = self.zone_of(job.timezone.as_deref());
        // Validated here, applied to the stored job in the transaction.
        job.change(change.clone(), &zone, now).map_err(JobError::Invalid)?;
        let id = id.clone();
        let changed = self.schedule_job(move |tx| {
            let Some((job, _)) = tx.job(&id)? else { return Ok(None) };
            let job = job
                .change(change, &zone, now)
                .map_err(|_| StoreError::Conflict("a job has changed meanwhile"))?;
            let next = job.next(now, &zone);
            tx.put_job(&job, next)?;
            Ok(Some(ScheduledJob { job, next }))
        });
        changed.await?.ok_or(JobError::NotFound)
    }

    /// Commits a change of jobs and wakes the scheduler.
    async fn schedule_job<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Error> {
        let db = self.db.clone();
        let wake = self.wake.clone();
        let changed = async move {
            let value = db.write(Commit::CronJob, change).await?;
            wake.notify();
            Ok(value)
        };
        tasks::uncancelled(changed).await?
    }

    pub(crate) async fn job_remove(&self, id: &JobId, owner: Option<Person>) -> Result<(), JobError> {
        self.job(id, owner).await?;
        let id = id.clone();
        let deleted = self.db.write(Commit::CronJob, move |tx| tx.delete_job(&id)).await?;
        if deleted { Ok(()) } else { Err(JobError::NotFound) }
    }

    pub(crate) async fn job_run(
        &self,
        id: &JobId,
        owner: Option<Person>,
        keys: KeyOptions,
    ) -> Result<ScheduledJob, JobError> {
        self.job(id, owner).await?;
        let jobs = self.clone();
        let id = id.clone();
        tasks::uncancelled(async move { jobs.start_now(id, keys).await }).await?
    }

    async fn start_now(&self, id: JobId, keys: KeyOptions) -> Result<ScheduledJob, JobError> {
        let now = clock::now();
        let started = self.db.write(Commit::CronBegin, move |tx| {
            let Some((mut job, next)) = tx.job(&id)? else { return Ok(None) };
            // Each request gets its own run, at a due time that no other run has.
            let mut due = now;
            while next == Some(due) || tx.has_occurrence(&job.id, due)? {
                due = due.after(Duration::from_millis(1));
            }
            let pending = start_run(tx, &mut job, due, &keys, now)?;
            // The run counts towards `repeat`; the job ends when no repeats are left.
            tx.put_job(&job, next.filter(|_| !job.is_exhausted()))?;
            Ok(Some((ScheduledJob { job, next }, pending)))
        });
        let (scheduled, pending) = started.await?.ok_or(JobError::NotFound)?;
        if let Some(pending) = pending {
            self.router.deliver(pending.key.clone(), pending).await;
        }
        Ok(scheduled)
    }

    fn zone_of(&self, name: Option<&str>) -> TimeZone {
        zone(name.or(self.settings.cron.timezone.as_deref()))
    }
}

impl ScheduledJob {
    pub fn to_json(&self, settings: &Settings) -> Value {
        let Self { job, next } = self;
        let zone = zone(job.timezone.as_deref().or(settings.timezone.as_deref()));
        let time = |at: Option<Millis>| at.map(|at| format_time(at, &zone));
        let state = match (job.enabled, next) {
            (false, _) => "paused",
            (true, Some(_)) => "scheduled",
            (true, None) => "completed",
        };
        let (kind, minutes) = match job.schedule(&zone) {
            Ok(Schedule::Once(_)) => ("once", None),
            Ok(Schedule::Every { span, .. }) => ("interval", Some(span.as_secs() / 60)),
            Ok(Schedule::Days { days, .. }) => ("interval", Some(u64::from(days) * 24 * 60)),
            Ok(Schedule::Cron(_)) => ("cron", None),
            Err(_) => ("unreadable", None),
        };
        let last = job.last.as_ref();
        json!({
            "id": job.id,
            "name": job.name,
            "prompt": job.prompt,
            "schedule": { "kind": kind, "minutes": minutes, "display": job.schedule },
            "schedule_display": job.schedule,
            "timezone": zone.iana_name(),
            "repeat": { "times": job.repeat, "completed": job.completed },
            "enabled": job.enabled,
            "state": state,
            "paused_at": time(job.paused_at),
            "created_at": time(Some(job.created_at)),
            "next_run_at": time(*next),
            "last_run_at": time(last.map(|last| last.at)),
            "last_status": last.map(|last| &last.status),
            "last_error": last.and_then(|last| last.error.as_ref()),
            "last_delivery_error": last.and_then(|last| last.delivery_error.as_ref()),
            "deliver": job.deliver,
            "origin": job.origin.as_ref().map(|from| json!({
                "platform": from.platform, "chat_id": from.chat_id, "thread_id": from.thread_id,
            })),
        })
    }
}

/// RFC 3339 with offset.
pub(super) fn format_time(at: Millis, zone: &TimeZone) -> String {
    let stamp = i64::try_from(at.0).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    stamp
        .map(|stamp| stamp.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
        .unwrap_or_default()
}
