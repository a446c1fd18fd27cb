//! `cron/mod.rs`, `cron/tell.rs`: one run per due time, told once.

use std::cell::RefCell;
use std::time::Duration;

use jiff::tz::TimeZone;
use petasos_core::cron::{self, Due, Job, JobId, Missed, NewJob, Terms};
use petasos_core::journal::{Outcome, Write};
use petasos_core::lifecycle::Door;
use petasos_core::outbox::{Draft, Kind};
use petasos_core::person::Person;
use petasos_core::session::session_key;
use petasos_core::transcript::Role;
use petasos_core::{Inbound, InboxId, Millis, Platform};
use petasos_store::{Occurrence, Pending, Result as Stored, Tx};

use super::{Event, Word};
use crate::plant::Bug;
use crate::sim::{Flow, Halt, Sim};

/// How long to wait when the store refuses.
const RETRY: u64 = 5_000;

/// A run that is on disk: its job, its due time, its message.
type Run = (usize, Millis, InboxId);

impl Sim {
    /// Somebody wants something done every minute or so, a few times.
    pub(crate) fn new_job(&mut self, number: usize) -> Flow {
        if self.world.errands[number].made {
            return Ok(());
        }
        if self.process.as_ref().is_none_or(|process| process.stopping) {
            self.later(Event::NewJob(number), 2_000);
            return Ok(());
        }
        let errand = self.world.errands[number].clone();
        let source = self.world.source(errand.chat, "u0");
        let new = NewJob {
            schedule: format!("every {}m", errand.minutes),
            prompt: format!("say [j{number}]"),
            repeat: Some(errand.runs),
            ..NewJob::default()
        };
        let now = self.now;
        let id = JobId::from_bytes([0, 0, 0, 0, 0, u8::try_from(number).unwrap_or_default()]);
        let job = Job::new(id, new, Person::owner(), Some(source), &TimeZone::UTC, now).expect("a job");
        let next = job.next(now, &TimeZone::UTC);
        let known = self.p().store.job(&job.id).is_ok_and(|found| found.is_some());
        if !known {
            // Whoever hears nothing asks again.
            self.later(Event::NewJob(number), 2_000);
            let kept = self.commit("job", |tx| tx.put_job(&job, next));
            if Self::unless_full(kept)?.is_none() {
                return Ok(());
            }
        }
        self.world.errands[number].made = true;
        self.cron_soon();
        Ok(())
    }

    /// Something may be due, or to be told.
    pub(crate) fn cron_soon(&mut self) {
        if self.plan.jobs > 0 {
            self.soon(Event::Cron { life: self.life }, 0, 20);
        }
    }

    pub(crate) fn cron(&mut self) -> Flow {
        if self.p().stopping {
            return Ok(());
        }
        match self.cron_round() {
            Err(Halt::Full) => self.later(Event::Cron { life: self.life }, RETRY),
            Ok(Some(next)) => self.at(next, Event::Cron { life: self.life }),
            Ok(None) => {}
            Err(halt) => return Err(halt),
        }
        Ok(())
    }

    fn cron_round(&mut self) -> Flow<Option<Millis>> {
        self.tell_runs()?;
        let now = self.now;
        let open = self.p().gate.life.door() == Door::Open;
        let next = self.p().store.next_job_due().unwrap_or_default();
        if !open {
            return Ok(None); // whoever opens it rings
        }
        if next.is_none_or(|next| next > now) {
            return Ok(next);
        }
        let seen: RefCell<Vec<Run>> = RefCell::new(vec![]);
        let bug = self.bug.filter(|bug| *bug == Bug::RunsAgain).map(|_| self.life);
        let begun = self.commit("cron begin", |tx| begin_due(tx, bug, now, &seen));
        let runs = seen.take();
        for (job, due, inbox) in &runs {
            self.truth.run(*job, *due, *inbox)?;
        }
        for pending in begun? {
            self.tell(pending.key.clone(), Word::Arrived(Box::new(pending)));
        }
        if bug.is_some() {
            self.commit("cron next", |tx| {
                tx.jobs_due(now)?.into_iter().try_for_each(|due| go_on(tx, due, now))
            })?;
        }
        Ok(self.p().store.next_job_due().unwrap_or_default())
    }

    /// What is owed and the mark that it was told are one commit.
    fn tell_runs(&mut self) -> Flow {
        for (job, due) in self.p().store.runs_to_tell().unwrap_or_default() {
            let Ok(Some(run)) = self.p().store.run_to_tell(&job, due) else { continue };
            let now = self.now;
            let number = number_of(&run.job);
            let role = if run.outcome == Some(Outcome::Answered) { Role::Assistant } else { Role::Notice };
            let words = run.inbox.and_then(|id| self.p().store.last_words(id, role).ok().flatten());
            let text = format!("⏰ [j{number}] at {}: {}", run.due.0, words.unwrap_or_default());
            let source = self.world.source(self.world.errands[number].chat, "u0");
            let route = petasos_core::Route::back_to(&source, petasos_core::message::Delivery::Push);
            let lane = route.lane();
            let told = self.commit("cron tell", move |tx| {
                if tx.occurrence_delivered(&run.job.id, run.due, now)? {
                    let (session_key, turn, kind) = (None, None, Kind::Notice);
                    let draft = Draft { route, session_key, turn, kind, text, buttons: vec![] };
                    tx.apply(&[Write::Owe(draft)], now)?;
                    settle(tx, &run)?;
                }
                Ok(())
            });
            told?;
            self.lane_due(lane);
        }
        Ok(())
    }
}

fn begin_due(tx: &Tx<'_>, again: Option<u32>, now: Millis, seen: &RefCell<Vec<Run>>) -> Stored<Vec<Pending>> {
    let terms = Terms { missed: Missed::Once, grace: Duration::from_secs(12 * 3600) };
    let mut begun = Vec::new();
    for (mut job, first) in tx.jobs_due(now)? {
        let schedule = job.schedule(&TimeZone::UTC).expect("a schedule");
        let Due { run, skipped, next } = cron::due(&schedule, &TimeZone::UTC, first, now, terms);
        job.skipped = job.skipped.saturating_add(skipped);
        for due in run {
            if job.is_spent() {
                break;
            }
            begun.extend(begin(tx, &mut job, due, again, now, seen)?);
        }
        if again.is_none() {
            let next = next.filter(|_| !job.is_spent());
            tx.put_job(&job, next)?;
        }
    }
    Ok(begun)
}

/// A run: its message and its row, or nothing if there is one for this moment.
fn begin(
    tx: &Tx<'_>,
    job: &mut Job,
    due: Millis,
    again: Option<u32>,
    now: Millis,
    seen: &RefCell<Vec<Run>>,
) -> Stored<Option<Pending>> {
    if again.is_none() && tx.has_occurrence(&job.id, due)? {
        return Ok(None);
    }
    let skipped = std::mem::take(&mut job.skipped);
    job.completed = job.completed.saturating_add(1);
    let life = again.map(|life| life.to_string()).unwrap_or_default();
    let inbound = Inbound {
        source: job.source(channel()),
        dedup: format!("cron:{}:{}{life}", job.id, due.0),
        text: cron::prompt(job, skipped),
        attachments: vec![],
        quoted: None,
        context: None,
        sent_at: None,
        answer_to: None,
        fingerprints: vec![],
        internal: true,
    };
    let key = session_key(&inbound.source, &Default::default());
    let id = tx.accept(&inbound, &key, now)?.id();
    tx.accept_occurrence(job, due, Some(id), skipped, now)?;
    seen.borrow_mut().push((number_of(job), due, id));
    Ok(Some(Pending { id, key, inbound, received_at: now }))
}

/// The job's next moment, by itself: what a crash before it forgets.
fn go_on(tx: &Tx<'_>, (mut job, first): (Job, Millis), now: Millis) -> Stored<()> {
    job.completed += 1;
    let schedule = job.schedule(&TimeZone::UTC).expect("a schedule");
    let next = schedule.next(first.max(now), &TimeZone::UTC).filter(|_| !job.is_spent());
    tx.put_job(&job, next)
}

/// One that is over goes.
fn settle(tx: &Tx<'_>, run: &Occurrence) -> Stored<()> {
    match tx.job(&run.job.id)? {
        Some((job, None)) => tx.delete_job(&job.id).map(drop),
        Some((_, Some(_))) | None => Ok(()),
    }
}

pub(super) fn channel() -> Platform {
    Platform::parse("cron").expect("the channel of scheduled work")
}

fn number_of(job: &Job) -> usize {
    usize::from_str_radix(job.id.as_str(), 16).unwrap_or_default()
}
