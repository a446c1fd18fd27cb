//! Reports finished runs exactly once: the outgoing messages and the mark "reported" are one commit.
//!
//! An output file is written before that commit; a crash in between makes the next start write it again, under
//! another name.

use std::path::PathBuf;
use std::time::Duration;

use petasos_core::cron::{Job, LastRun, run_report};
use petasos_core::journal::MessageOutcome;
use petasos_core::message::Delivery;
use petasos_core::target::{ChatAddress, Destination};
use petasos_core::text::is_silence_narration;
use petasos_core::transcript::Role;
use petasos_core::{Millis, SessionKey};
use petasos_store::{Error as StoreError, Occurrence, Tx};

use super::{Scheduler, zone};
use crate::background::notifications::transcript_mirror::{self, SessionActivity};
use crate::background::notifications::{self, output};
use crate::background::notifications::{MirrorMode, Notification};
use crate::notices::work as notices;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::{Error, clock};

const MAX_FAILURE_CHARS: usize = 500;

struct RunReport {
    text: Option<String>,
    last: LastRun,
    failed: bool,
}

type Recipient = (ChatAddress, Delivery);

enum Destinations {
    Resolved {
        chats: Vec<Recipient>,
        /// Destinations that cannot be reached.
        problems: Option<String>,
        file: Option<PathBuf>,
    },
    /// A turn is running in a destination; the report waits for its end.
    Busy,
}

/// Reports that must wait do not delay others; the end of every turn triggers another pass.
pub(super) async fn report_finished(scheduler: &Scheduler) -> Result<(), Error> {
    let mut busy = Vec::new();
    for (job, due) in scheduler.jobs.db.read(|reader| reader.unreported_occurrences()).await? {
        // One at a time: a report depends on the result of the previous run.
        let read = scheduler.jobs.db.read(move |reader| {
            let Some(run) = reader.unreported_occurrence(&job, due)? else { return Ok(None) };
            let role =
                if run.outcome == Some(MessageOutcome::Answered) { Role::Assistant } else { Role::Notice };
            let final_text = run.inbox.map_or(Ok(None), |inbox| reader.last_message_text(inbox, role))?;
            let job = reader.job(&run.job.id)?.map(|(job, _)| job);
            Ok(Some((run, job, final_text.unwrap_or_default())))
        });
        let Some((run, job, final_text)) = read.await? else { continue };
        let report = build_report(scheduler, job.as_ref().unwrap_or(&run.job), &run, &final_text);
        deliver_report(scheduler, run, report, &mut busy).await?;
    }
    Ok(())
}

fn build_report(scheduler: &Scheduler, job: &Job, run: &Occurrence, final_text: &str) -> RunReport {
    let settings = &scheduler.jobs.settings.cron;
    let last = |status: &str, error: Option<String>| LastRun {
        at: run.at,
        status: status.into(),
        error,
        delivery_error: None,
    };
    match (run.inbox, run.outcome) {
        (None, _) => {
            let zone = zone(job.timezone.as_deref().or(settings.timezone.as_deref()));
            let text = notices::job_missed(&job.name, &super::jobs::format_time(run.due, &zone));
            RunReport { text: Some(text), last: last("missed", None), failed: false }
        }
        (Some(_), Some(MessageOutcome::Answered)) => {
            let silent = scheduler.jobs.settings.filter_silence && is_silence_narration(final_text);
            let text = run_report(job, if silent { "" } else { final_text }, run.skipped, settings.wrap);
            let status = if text.is_some() { "ok" } else { "silent" };
            RunReport { text, last: last(status, None), failed: false }
        }
        (Some(_), _) => {
            let why: String = final_text.chars().take(MAX_FAILURE_CHARS).collect();
            let text = (job.failures == 0).then(|| notices::job_failed(&job.name, &why));
            RunReport { text, last: last("error", Some(why)), failed: true }
        }
    }
}

/// Does nothing while a turn is running in a destination. `busy`: destinations known to have one.
async fn deliver_report(
    scheduler: &Scheduler,
    run: Occurrence,
    mut report: RunReport,
    busy: &mut Vec<ChatAddress>,
) -> Result<(), Error> {
    let job = run.job;
    let mut chats = Vec::new();
    let mut saved_file = None;
    if let Some(text) = &report.text {
        match resolve_destinations(scheduler, &job, text, busy).await? {
            Destinations::Resolved { chats: found, problems, file } => {
                (chats, report.last.delivery_error, saved_file) = (found, problems, file);
            }
            Destinations::Busy => return Ok(()),
        }
    }
    let text = report.text.clone().unwrap_or_default();
    let mirror = if scheduler.jobs.settings.cron.mirror { MirrorMode::User } else { MirrorMode::No };
    let now = clock::now();
    let due = run.due;
    let to = chats.clone();
    let twice = planted(PlantedBug::ReportsTwice);
    if twice {
        let to = chats.clone();
        let text = text.clone();
        let committed = scheduler.jobs.db.write(Commit::CronReport, move |tx| {
            to.iter()
                .try_for_each(|(place, delivery)| enqueue(tx, place, *delivery, &text, mirror, now).map(drop))
        });
        committed.await?;
    }
    let committed = scheduler.jobs.db.write(Commit::CronReport, move |tx| {
        let pulled = to.iter().filter(|(_, delivery)| *delivery == Delivery::Pull);
        for (place, _) in pulled {
            if transcript_mirror::session_activity(tx, place)? == SessionActivity::Busy {
                return Ok(None);
            }
        }
        let mut woken = Vec::new();
        if tx.occurrence_delivered(&job.id, due, now)? {
            for (place, delivery) in to.iter().filter(|_| !twice) {
                woken.extend(enqueue(tx, place, *delivery, &text, mirror, now)?);
            }
            store_result(tx, &job, &report)?;
        }
        Ok(Some(woken))
    });
    let Some(woken) = committed.await? else {
        // A turn has started meanwhile. The next pass writes the file again.
        if let Some(file) = saved_file {
            tokio::fs::remove_file(file).await.unwrap_or_else(
                |error| tracing::debug!(%error, "an unreported output file could not be removed"),
            );
        }
        return Ok(());
    };
    for (place, _) in chats.iter().filter(|(_, delivery)| *delivery == Delivery::Push) {
        scheduler.notifications.lanes.wake(place.route().lane()).await;
    }
    for key in woken {
        scheduler.jobs.router.wake(key).await;
    }
    Ok(())
}

/// Returns the session to wake if its clients poll for messages.
fn enqueue(
    tx: &Tx<'_>,
    place: &ChatAddress,
    delivery: Delivery,
    text: &str,
    mirror: MirrorMode,
    now: Millis,
) -> Result<Option<SessionKey>, StoreError> {
    match delivery {
        Delivery::Push => {
            if notifications::enqueue(tx, place, text, now)?.is_some() {
                transcript_mirror::append(tx, place, text, mirror, now)?;
            }
            Ok(None)
        }
        Delivery::Pull => transcript_mirror::append(tx, place, text, MirrorMode::Assistant, now),
    }
}

/// Records the result in the job; deletes a completed job.
fn store_result(tx: &Tx<'_>, job: &Job, report: &RunReport) -> Result<(), StoreError> {
    let Some((mut stored, next)) = tx.job(&job.id)? else { return Ok(()) };
    stored.last = Some(report.last.clone());
    stored.failures = if report.failed { stored.failures.saturating_add(1) } else { 0 };
    if next.is_none() && stored.enabled {
        return tx.delete_job(&stored.id).map(drop);
    }
    tx.put_job(&stored, next)
}

/// Resolves the destinations of a report. A report without a reachable chat is saved in a file.
async fn resolve_destinations(
    scheduler: &Scheduler,
    job: &Job,
    text: &str,
    busy: &mut Vec<ChatAddress>,
) -> Result<Destinations, Error> {
    let about = [("Schedule".to_owned(), job.schedule.clone())].into();
    let post = Notification {
        to: job.deliver.clone(),
        text: text.to_owned(),
        job: output::OutputJob { id: Some(job.id.to_string()), name: Some(job.name.clone()), about },
        origin: job.origin.as_ref().and_then(ChatAddress::of),
        mirror: MirrorMode::No,
        wait: Duration::ZERO,
    };
    let mut chats = Vec::new();
    let mut problems = Vec::new();
    let mut file = false;
    for (target, aim) in notifications::resolve_destinations(&scheduler.notifications, &post).await {
        match aim {
            Ok(Destination::Chat(place)) if busy.contains(&place) => return Ok(Destinations::Busy),
            Ok(Destination::Chat(place)) => match check_destination(scheduler, &place).await? {
                Some(Reachability::Via(delivery)) => chats.push((place, delivery)),
                Some(Reachability::Busy) => {
                    busy.push(place);
                    return Ok(Destinations::Busy);
                }
                None => problems.push(format!("{target}: this chat cannot receive messages")),
            },
            Ok(Destination::File) => file = true,
            Ok(Destination::NoHomeChannel(platform)) => {
                problems.push(format!("{platform} has no home channel"))
            }
            Err(error) => problems.push(format!("{target}: {error}")),
        }
    }
    let long = text.chars().nth(notifications::MAX_CHARS_INLINE).is_some();
    let saved_file = match (file || chats.is_empty(), long) {
        (true, _) => Some(notifications::save_output(&scheduler.notifications, &post, output::save).await),
        (false, true) => {
            Some(notifications::save_output(&scheduler.notifications, &post, output::save_whole).await)
        }
        (false, false) => None,
    };
    let file = match saved_file {
        Some(notifications::NotificationOutcome::Saved { file }) => Some(file),
        Some(notifications::NotificationOutcome::Failed { error }) => {
            problems.push(error);
            None
        }
        _ => None,
    };
    Ok(Destinations::Resolved { chats, problems: (!problems.is_empty()).then(|| problems.join("; ")), file })
}

enum Reachability {
    Via(Delivery),
    Busy,
}

/// `None`: messages cannot be delivered there.
async fn check_destination(
    scheduler: &Scheduler,
    place: &ChatAddress,
) -> Result<Option<Reachability>, Error> {
    if scheduler.notifications.channels.adapter(place.platform).is_some() {
        let platform = place.platform;
        let chat = place.chat_id.clone();
        let now = clock::now();
        let dead = scheduler.jobs.db.read(move |reader| reader.dead_chat(platform, &chat)).await?;
        let refuses = dead.is_some_and(|dead| !dead.probe_due(now));
        return Ok((!refuses).then_some(Reachability::Via(Delivery::Push)));
    }
    let can = scheduler.notifications.channels.capabilities(place.platform);
    if can.delivery == Delivery::Push || !can.async_delivery {
        return Ok(None);
    }
    let to = place.clone();
    Ok(match scheduler.jobs.db.read(move |reader| transcript_mirror::session_activity(reader, &to)).await? {
        SessionActivity::Idle => Some(Reachability::Via(Delivery::Pull)),
        SessionActivity::Busy => Some(Reachability::Busy),
        SessionActivity::None => None,
    })
}
