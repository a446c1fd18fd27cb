//! What has ended is told, once: the messages that are owed and the mark that they are, in one commit.
//!
//! A file is written before that commit; a crash between the two writes it again, under another name.

use std::path::PathBuf;
use std::time::Duration;

use petasos_core::cron::{Job, Last, answer};
use petasos_core::journal::Outcome;
use petasos_core::message::Delivery;
use petasos_core::target::{Aim, Place};
use petasos_core::text::is_silence_narration;
use petasos_core::transcript::Role;
use petasos_core::{Millis, SessionKey};
use petasos_store::{Error as StoreError, Occurrence, Tx};

use super::{Scheduler, zone};
use crate::background::notifications::transcript_mirror::{self, Standing};
use crate::background::notifications::{self, output};
use crate::background::notifications::{Mirror, Post};
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::{Error, clock};

/// Characters of a failure that are told.
const SHOWN: usize = 500;

/// What is to be done about one run.
struct Word {
    /// `None`: nothing is said.
    text: Option<String>,
    last: Last,
    failed: bool,
}

/// A chat, and how something gets there.
type Reached = (Place, Delivery);

/// What is known of where a text goes.
enum Ways {
    Known {
        chats: Vec<Reached>,
        /// What keeps it from going further.
        trouble: Option<String>,
        /// Where it is kept.
        file: Option<PathBuf>,
    },
    /// A turn is running where the text would be put: it comes after that.
    Busy,
}

/// What cannot be told yet stays, and holds nothing else back; the end of every turn is a reason to look again.
pub(super) async fn all(by: &Scheduler) -> Result<(), Error> {
    let mut busy = Vec::new();
    for (job, due) in by.jobs.db.read(|reader| reader.runs_to_tell()).await? {
        // One by one: what is said of a run depends on what became of the one before.
        let read = by.jobs.db.read(move |reader| {
            let Some(run) = reader.run_to_tell(&job, due)? else { return Ok(None) };
            let role = if run.outcome == Some(Outcome::Answered) { Role::Assistant } else { Role::Notice };
            let words = run.inbox.map_or(Ok(None), |inbox| reader.last_words(inbox, role))?;
            let job = reader.job(&run.job.id)?.map(|(job, _)| job);
            Ok(Some((run, job, words.unwrap_or_default())))
        });
        let Some((run, job, words)) = read.await? else { continue };
        let word = word(by, job.as_ref().unwrap_or(&run.job), &run, &words);
        tell(by, run, word, &mut busy).await?;
    }
    Ok(())
}

fn word(by: &Scheduler, job: &Job, run: &Occurrence, words: &str) -> Word {
    let settings = &by.jobs.settings.cron;
    let last = |status: &str, error: Option<String>| Last {
        at: run.at,
        status: status.into(),
        error,
        delivery_error: None,
    };
    match (run.inbox, run.outcome) {
        (None, _) => {
            let zone = zone(job.timezone.as_deref().or(settings.timezone.as_deref()));
            let text = format!(
                "⏰ {} was not run: its time ({}) passed while the gateway was not running.",
                job.name,
                super::jobs::shown(run.due, &zone)
            );
            Word { text: Some(text), last: last("missed", None), failed: false }
        }
        (Some(_), Some(Outcome::Answered)) => {
            let silent = by.jobs.settings.filter_silence && is_silence_narration(words);
            let text = answer(job, if silent { "" } else { words }, run.skipped, settings.wrap);
            let status = if text.is_some() { "ok" } else { "silent" };
            Word { text, last: last(status, None), failed: false }
        }
        (Some(_), _) => {
            let why: String = words.chars().take(SHOWN).collect();
            // Only the first of a row: nobody needs the same news every hour.
            let text = (job.failures == 0).then(|| format!("⚠️ {} failed. {why}", job.name));
            Word { text, last: last("error", Some(why)), failed: true }
        }
    }
}

/// Not yet, if a turn is running where it belongs. `busy`: where that is known.
async fn tell(by: &Scheduler, run: Occurrence, mut word: Word, busy: &mut Vec<Place>) -> Result<(), Error> {
    let job = run.job;
    let (mut chats, mut kept) = (Vec::new(), None);
    if let Some(text) = &word.text {
        match ways(by, &job, text, busy).await? {
            Ways::Known { chats: found, trouble, file } => {
                (chats, word.last.delivery_error, kept) = (found, trouble, file);
            }
            Ways::Busy => return Ok(()),
        }
    }
    let said = word.text.clone().unwrap_or_default();
    let mirror = if by.jobs.settings.cron.mirror { Mirror::Brief } else { Mirror::No };
    let (now, due, to) = (clock::now(), run.due, chats.clone());
    let twice = planted(Planted::TellsTwice);
    if twice {
        let (to, said) = (chats.clone(), said.clone());
        let told = by.jobs.db.write(Commit::CronTell, move |tx| {
            to.iter()
                .try_for_each(|(place, delivery)| owe(tx, place, *delivery, &said, mirror, now).map(drop))
        });
        told.await?;
    }
    let told = by.jobs.db.write(Commit::CronTell, move |tx| {
        let pulled = to.iter().filter(|(_, delivery)| *delivery == Delivery::Pull);
        for (place, _) in pulled {
            if transcript_mirror::standing(tx, place)? == Standing::Busy {
                return Ok(None);
            }
        }
        let mut woken = Vec::new();
        if tx.occurrence_delivered(&job.id, due, now)? {
            for (place, delivery) in to.iter().filter(|_| !twice) {
                woken.extend(owe(tx, place, *delivery, &said, mirror, now)?);
            }
            settle(tx, &job, &word)?;
        }
        Ok(Some(woken))
    });
    let Some(woken) = told.await? else {
        // A turn has begun meanwhile. The next look writes the file again.
        if let Some(file) = kept {
            tokio::fs::remove_file(file)
                .await
                .unwrap_or_else(|error| tracing::debug!(%error, "a page stays"));
        }
        return Ok(());
    };
    for (place, _) in chats.iter().filter(|(_, delivery)| *delivery == Delivery::Push) {
        by.notifications.deliver.due(place.route().lane()).await;
    }
    for key in woken {
        by.jobs.router.wake(key).await;
    }
    Ok(())
}

/// Gives the conversation whose readers come for it themselves.
fn owe(
    tx: &Tx<'_>,
    place: &Place,
    delivery: Delivery,
    text: &str,
    mirror: Mirror,
    now: Millis,
) -> Result<Option<SessionKey>, StoreError> {
    match delivery {
        Delivery::Push => {
            if notifications::owe(tx, place, text, now)?.is_some() {
                transcript_mirror::append(tx, place, text, mirror, now)?;
            }
            Ok(None)
        }
        Delivery::Pull => transcript_mirror::append(tx, place, text, Mirror::Own, now),
    }
}

/// The job remembers how it went; one that is over goes.
fn settle(tx: &Tx<'_>, job: &Job, word: &Word) -> Result<(), StoreError> {
    let Some((mut kept, next)) = tx.job(&job.id)? else { return Ok(()) };
    kept.last = Some(word.last.clone());
    kept.failures = if word.failed { kept.failures.saturating_add(1) } else { 0 };
    if next.is_none() && kept.enabled {
        return tx.delete_job(&kept.id).map(drop);
    }
    tx.put_job(&kept, next)
}

/// Where a text goes. What reaches nobody is kept in a file.
async fn ways(by: &Scheduler, job: &Job, text: &str, busy: &mut Vec<Place>) -> Result<Ways, Error> {
    let about = [("Schedule".to_owned(), job.schedule.clone())].into();
    let post = Post {
        to: job.deliver.clone(),
        text: text.to_owned(),
        job: output::Job { id: Some(job.id.to_string()), name: Some(job.name.clone()), about },
        origin: job.origin.as_ref().and_then(Place::of),
        mirror: Mirror::No,
        wait: Duration::ZERO,
    };
    let (mut chats, mut trouble, mut file) = (Vec::new(), Vec::new(), false);
    for (target, aim) in notifications::aims(&by.notifications, &post).await {
        match aim {
            Ok(Aim::Chat(place)) if busy.contains(&place) => return Ok(Ways::Busy),
            Ok(Aim::Chat(place)) => match way(by, &place).await? {
                Some(Way::By(delivery)) => chats.push((place, delivery)),
                Some(Way::Busy) => {
                    busy.push(place);
                    return Ok(Ways::Busy);
                }
                None => trouble.push(format!("{target}: nothing can be delivered there")),
            },
            Ok(Aim::File) => file = true,
            Ok(Aim::Homeless(platform)) => trouble.push(format!("{platform} has no home channel")),
            Err(error) => trouble.push(format!("{target}: {error}")),
        }
    }
    let long = text.chars().nth(notifications::LONG).is_some();
    let kept = match (file || chats.is_empty(), long) {
        (true, _) => Some(notifications::saved(&by.notifications, &post, output::save).await),
        (false, true) => Some(notifications::saved(&by.notifications, &post, output::save_whole).await),
        (false, false) => None,
    };
    let file = match kept {
        Some(notifications::Fate::Saved { file }) => Some(file),
        Some(notifications::Fate::Failed { error }) => {
            trouble.push(error);
            None
        }
        _ => None,
    };
    Ok(Ways::Known { chats, trouble: (!trouble.is_empty()).then(|| trouble.join("; ")), file })
}

enum Way {
    By(Delivery),
    Busy,
}

/// How something gets there; `None`: it does not.
async fn way(by: &Scheduler, place: &Place) -> Result<Option<Way>, Error> {
    if by.notifications.channels.adapter(place.platform).is_some() {
        let (platform, chat, now) = (place.platform, place.chat_id.clone(), clock::now());
        let dead = by.jobs.db.read(move |reader| reader.dead_chat(platform, &chat)).await?;
        let refuses = dead.is_some_and(|dead| !dead.probe_due(now));
        return Ok((!refuses).then_some(Way::By(Delivery::Push)));
    }
    let can = by.notifications.channels.capabilities(place.platform);
    if can.delivery == Delivery::Push || !can.async_delivery {
        return Ok(None);
    }
    let to = place.clone();
    Ok(match by.jobs.db.read(move |reader| transcript_mirror::standing(reader, &to)).await? {
        Standing::Quiet => Some(Way::By(Delivery::Pull)),
        Standing::Busy => Some(Way::Busy),
        Standing::None => None,
    })
}
