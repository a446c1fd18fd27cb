//! Setting jobs: what a tool, the page and the command line ask for.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use petasos_core::cron::{Change, Job, JobId, NewJob, Schedule};
use petasos_core::person::Person;
use petasos_core::session::KeyOptions;
use petasos_core::{Millis, Source};
use petasos_store::{Error as StoreError, Occurrence, Tx};
use serde_json::{Value, json};

use super::{Settings, begin, zone};
use crate::api::handle::Handle;
use crate::background::completions::Bell;
use crate::lifecycle::config::Settings as GatewaySettings;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::sessions::router::Router;
use crate::storage::database::Db;
use crate::{Error, clock};

/// A job, and when it is due next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scheduled {
    pub job: Job,
    /// `None`: it rests, or it is over.
    pub next: Option<Millis>,
}

/// Why something asked of jobs was not done.
#[derive(Debug, thiserror::Error)]
pub enum JobError {
    /// What was asked makes no sense, and why.
    #[error("{0}")]
    Bad(String),
    #[error("there is no such job")]
    NotFound,
    #[error(transparent)]
    Gateway(#[from] Error),
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Asker {
    pub(crate) person: Person,
    pub(crate) origin: Option<Source>,
}

/// Jobs that may be kept.
const MOST: usize = 500;

impl Handle {
    /// How scheduled work is done here.
    pub fn schedule(&self) -> &Settings {
        &self.0.handles.jobs.settings.cron
    }

    /// All of them, in the order in which they were made.
    pub async fn jobs(&self) -> Result<Vec<Scheduled>, JobError> {
        self.0.handles.jobs.jobs(None).await
    }

    pub async fn job(&self, id: &JobId) -> Result<Scheduled, JobError> {
        self.0.handles.jobs.job(id, None).await
    }

    /// A job of the owner of this machine. `origin`: where it was asked for, if answers can go there.
    pub async fn job_create(&self, new: NewJob, origin: Option<Source>) -> Result<Scheduled, JobError> {
        self.0.handles.jobs.job_create(new, Asker { person: Person::owner(), origin }).await
    }

    /// Also pauses and resumes: `Change::enabled`.
    pub async fn job_change(&self, id: &JobId, change: Change) -> Result<Scheduled, JobError> {
        self.0.handles.jobs.job_change(id, change, None).await
    }

    pub async fn job_remove(&self, id: &JobId) -> Result<(), JobError> {
        self.0.handles.jobs.job_remove(id, None).await
    }

    /// Runs a job now, whatever its schedule says; that stays as it is.
    pub async fn job_run(&self, id: &JobId) -> Result<Scheduled, JobError> {
        self.0.handles.jobs.job_run(id, None, self.0.ingest.rules.keys).await
    }

    /// The last runs of a job, the latest first.
    pub async fn job_runs(&self, id: &JobId, limit: usize) -> Result<Vec<Occurrence>, JobError> {
        let id = id.clone();
        Ok(self.0.handles.db.read(move |reader| reader.occurrences(&id, limit)).await?)
    }
}

/// Jobs as they are kept, and what changes them.
#[derive(Debug, Clone)]
pub(crate) struct Jobs {
    pub(crate) db: Db,
    pub(crate) router: Router,
    pub(crate) settings: Arc<GatewaySettings>,
    /// Rung when the timer is to look again: jobs have changed, or a turn has ended.
    pub(crate) bell: Bell,
}

/// `of`: only what is this person's; of anything else they do not learn that it is there.
impl Jobs {
    pub(crate) async fn jobs(&self, of: Option<Person>) -> Result<Vec<Scheduled>, JobError> {
        let all = self.db.read(|reader| reader.jobs()).await?;
        let theirs = all.into_iter().filter(|(job, _)| of.as_ref().is_none_or(|of| *of == job.person));
        Ok(theirs.map(|(job, next)| Scheduled { job, next }).collect())
    }

    pub(crate) async fn job(&self, id: &JobId, of: Option<Person>) -> Result<Scheduled, JobError> {
        let id = id.clone();
        let found = self.db.read(move |reader| reader.job(&id)).await?;
        let found = found.filter(|(job, _)| of.as_ref().is_none_or(|of| *of == job.person));
        found.map(|(job, next)| Scheduled { job, next }).ok_or(JobError::NotFound)
    }

    pub(crate) async fn job_create(&self, new: NewJob, by: Asker) -> Result<Scheduled, JobError> {
        if let Some(name) = &new.timezone {
            TimeZone::get(name).map_err(|_| JobError::Bad(format!("no time zone is called {name:?}")))?;
        }
        let now = clock::now();
        let zone = self.zone_of(new.timezone.as_deref());
        let id = JobId::from_bytes(clock::random());
        let job = Job::new(id, new, by.person, by.origin, &zone, now).map_err(JobError::Bad)?;
        let next = job.next(now, &zone);
        let kept = job.clone();
        let room = self.schedule_job(move |tx| {
            let room = tx.job_count()? < MOST;
            if room {
                tx.put_job(&kept, next)?;
            }
            Ok(room)
        });
        if !room.await? {
            return Err(JobError::Bad(format!("there are {MOST} jobs already; remove one first")));
        }
        Ok(Scheduled { job, next })
    }

    pub(crate) async fn job_change(
        &self,
        id: &JobId,
        change: Change,
        of: Option<Person>,
    ) -> Result<Scheduled, JobError> {
        let Scheduled { job, .. } = self.job(id, of).await?;
        let (now, zone) = (clock::now(), self.zone_of(job.timezone.as_deref()));
        // Checked here, and done on what is there then.
        job.change(change.clone(), &zone, now).map_err(JobError::Bad)?;
        let id = id.clone();
        let changed = self.schedule_job(move |tx| {
            let Some((job, _)) = tx.job(&id)? else { return Ok(None) };
            let job = job
                .change(change, &zone, now)
                .map_err(|_| StoreError::Conflict("a job has changed meanwhile"))?;
            let next = job.next(now, &zone);
            tx.put_job(&job, next)?;
            Ok(Some(Scheduled { job, next }))
        });
        changed.await?.ok_or(JobError::NotFound)
    }

    /// Changes jobs, and has the timer look at them again.
    async fn schedule_job<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Tx<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, Error> {
        let (db, bell) = (self.db.clone(), self.bell.clone());
        let changed = async move {
            let value = db.write(Commit::CronJob, change).await?;
            bell.ring();
            Ok(value)
        };
        tasks::uncancelled(changed).await?
    }

    pub(crate) async fn job_remove(&self, id: &JobId, of: Option<Person>) -> Result<(), JobError> {
        self.job(id, of).await?;
        let id = id.clone();
        match self.db.write(Commit::CronJob, move |tx| tx.delete_job(&id)).await? {
            true => Ok(()),
            false => Err(JobError::NotFound),
        }
    }

    pub(crate) async fn job_run(
        &self,
        id: &JobId,
        of: Option<Person>,
        keys: KeyOptions,
    ) -> Result<Scheduled, JobError> {
        self.job(id, of).await?;
        let (jobs, id) = (self.clone(), id.clone());
        tasks::uncancelled(async move { jobs.begin_now(id, keys).await }).await?
    }

    /// A run that does not belong to the schedule, handed to its session.
    async fn begin_now(&self, id: JobId, keys: KeyOptions) -> Result<Scheduled, JobError> {
        let now = clock::now();
        let begun = self.db.write(Commit::CronBegin, move |tx| {
            let Some((mut job, next)) = tx.job(&id)? else { return Ok(None) };
            // Everybody who asks gets a run, and the schedule keeps its own.
            let mut due = now;
            while next == Some(due) || tx.has_occurrence(&job.id, due)? {
                due = due.after(Duration::from_millis(1));
            }
            let pending = begin(tx, &mut job, due, &keys, now)?;
            // It counts as one of its runs, but for the last one: that belongs to the schedule.
            tx.put_job(&job, next.filter(|_| !job.is_spent()))?;
            Ok(Some((Scheduled { job, next }, pending)))
        });
        let (scheduled, pending) = begun.await?.ok_or(JobError::NotFound)?;
        if let Some(pending) = pending {
            self.router.arrived(pending.key.clone(), pending).await;
        }
        Ok(scheduled)
    }

    fn zone_of(&self, name: Option<&str>) -> TimeZone {
        zone(name.or(self.settings.cron.timezone.as_deref()))
    }
}

impl Scheduled {
    /// As clients know it.
    pub fn to_json(&self, settings: &Settings) -> Value {
        let Self { job, next } = self;
        let zone = zone(job.timezone.as_deref().or(settings.timezone.as_deref()));
        let time = |at: Option<Millis>| at.map(|at| shown(at, &zone));
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

/// With its offset.
pub(super) fn shown(at: Millis, zone: &TimeZone) -> String {
    let stamp = i64::try_from(at.0).ok().and_then(|at| Timestamp::from_millisecond(at).ok());
    stamp
        .map(|stamp| stamp.to_zoned(zone.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string())
        .unwrap_or_default()
}
