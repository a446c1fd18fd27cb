//! Opening the database and recovering the state of the previous process.
//!
//! Large databases are not checked as a whole before they are opened, so recovery may be the first to read damaged
//! pages. The database thread then notes the damage as it ends, and a second attempt salvages.

use std::path::Path;
use std::time::{Duration, Instant};

use petasos_agent::Known;
use petasos_core::lifecycle::boots::Resume;
use petasos_core::message::{Delivery, Route};
use petasos_core::outbox::Draft;
use petasos_core::{Millis, Platform};
use petasos_store::{Booted, Error as StoreError, Found, Hold, Scope, Store, Terms};

use crate::background::processes;
use crate::home::{self, restart};
use crate::lifecycle::config::Settings;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::Stopper;
use crate::lifecycle::startup::boot::{self, World};
use crate::lifecycle::startup::{DATABASE, StartError};
use crate::runtime::commit::Commit;
use crate::storage::database::{self, Db, Writer};
use crate::storage::sessions_json;
use crate::{Error, clock};

/// A restart that was asked for longer ago is no news any more.
const NEWS: Duration = Duration::from_secs(3600);
/// Between two reports of the progress of a salvage.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);
/// Syncing a large file is one step without a report.
const START_EXTENSION: Duration = Duration::from_secs(120);

/// Inputs of a recovery.
#[derive(Debug)]
pub(crate) struct Before<'a> {
    pub(crate) home: &'a Path,
    pub(crate) lifetime: &'a Lifetime,
    pub(crate) settings: &'a Settings,
    pub(crate) notifier: &'a Notifier,
    pub(crate) world: World,
}

/// The open database, and what the previous process left.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) db: Db,
    pub(crate) writer: Writer,
    pub(crate) booted: Booted,
    pub(crate) hold: Hold,
    pub(crate) processes: Vec<Known>,
}

/// Tries a second time if the first attempt finds the database damaged.
pub(crate) async fn recover(
    before: Before<'_>,
    stopper: &Stopper,
    now: Millis,
) -> Result<Recovered, StartError> {
    let mut clean = None;
    let last_change = Store::last_change(&before.home.join(DATABASE), now);
    match attempt(&before, stopper, &mut clean, last_change, now).await {
        Err(StartError::Gateway(Error::Store(
            error @ (StoreError::Corrupt(_) | StoreError::NotDatabase | StoreError::Unreadable(_)),
        ))) => {
            tracing::error!(%error, "the database is damaged; salvaging it");
            attempt(&before, stopper, &mut clean, last_change, now).await
        }
        attempted => attempted,
    }
}

async fn attempt(
    before: &Before<'_>,
    stopper: &Stopper,
    clean: &mut Option<bool>,
    last_change: Millis,
    now: Millis,
) -> Result<Recovered, StartError> {
    let store = open(before.home, last_change, before.notifier.clone()).await?;
    let (db, writer) = database::start(store, stopper.clone())?;
    let read = async {
        let (booted, hold) = take_over(&db, before, clean, now).await?;
        Ok::<_, Error>((booted, hold, processes::known(&db).await?))
    };
    match read.await {
        Ok((booted, hold, processes)) => Ok(Recovered { db, writer, booted, hold, processes }),
        Err(error) => {
            drop(db);
            writer.closed().await?;
            Err(error.into())
        }
    }
}

async fn open(home: &Path, last_change: Millis, notifier: Notifier) -> Result<Store, StartError> {
    let path = home.join(DATABASE);
    let opened = petasos_runtime::blocking(move || {
        let mut reported: Option<Instant> = None;
        let mut progress = |percent: u8| {
            if reported.is_none_or(|at| at.elapsed() >= PROGRESS_INTERVAL) {
                reported = Some(Instant::now());
                report_progress(&notifier, percent);
            }
        };
        Store::open_or_salvage_changed(path, last_change, clock::now(), &mut progress)
    })
    .await;
    let (store, salvage) =
        opened.map_err(|_panicked| Error::Io("opening the database panicked".into()))??;
    if let Some(salvage) = salvage {
        tracing::error!(
            why = salvage.why,
            moved_to = salvage.moved_to,
            report = salvage.report,
            tables = salvage.losses.len(),
            "the database was damaged and has been salvaged"
        );
    }
    Ok(store)
}

/// A service manager must not take a long salvage for a start that hangs.
fn report_progress(notifier: &Notifier, percent: u8) {
    tracing::warn!(percent, "salvaging the damaged database; messages are taken when this is done");
    notifier.status(&format!("salvaging the damaged database: {percent} %"));
    notifier.extend(START_EXTENSION);
}

/// Recovers the state of the previous process in one commit; says how its suspects are resumed.
async fn take_over(
    db: &Db,
    before: &Before<'_>,
    clean: &mut Option<bool>,
    now: Millis,
) -> Result<(Booted, Hold), Error> {
    let Before { home, lifetime, settings, world, notifier: _ } = before;
    let world = world.clone();
    let imported = db.read(|reader| reader.sessions_imported()).await?;
    let found = found(home, lifetime, imported, clean);
    let ledger = home::boots::look(home, lifetime.loop_guard, now);
    let hold = hold(ledger.resume, lifetime);
    let crash_recovery = lifetime.crash_recovery;
    let (window, limits) = (settings.resume_window, settings.limits);
    let terms = Terms { crash_recovery, window, limits, hold };
    let booted =
        db.write(Commit::TakeOver, move |tx| boot::take_over(tx, &found, &terms, &world, now)).await?;
    boot::tell(&booted.report);
    if booted.report.has_unreadable_rows() {
        db.note_unreadable_rows();
    }
    forget_notes(home);
    let (suspects, held) = (booted.report.suspects, booted.held.len());
    if suspects > 0 {
        ledger.keep(home, lifetime.loop_guard);
    }
    if held > 0 {
        let seconds = hold.pause.as_secs();
        let reason = match hold.scope {
            Scope::All => "started too often with interrupted turns",
            Scope::LastTry => "interrupted turns are close to the limit of crashes",
        };
        tracing::error!(suspects, held, seconds, reason, "resuming interrupted turns one by one");
    }
    Ok((booted, hold))
}

/// The restart breaker and the respawn storm both hold all suspects; the longer pause counts. Otherwise a suspect at its last
/// try waits until the others, which are resumed at once, have run for the stable interval.
fn hold(resume: Resume, lifetime: &Lifetime) -> Hold {
    let tripped = match resume {
        Resume::AtOnce => None,
        Resume::OneByOne { pause, .. } => Some(pause),
    };
    let stable = lifetime.loop_guard.stable;
    match tripped.max(lifetime.storm_pause) {
        Some(pause) => Hold { scope: Scope::All, pause, stable },
        None => Hold { scope: Scope::LastTry, pause: stable, stable },
    }
}

/// `clean`: the mark of a clean stop, once it has been taken. `imported`: a `sessions.json` was taken over before; what lies there now is our copy, and may be large.
fn found(home: &Path, lifetime: &Lifetime, imported: bool, clean: &mut Option<bool>) -> Found {
    Found {
        clean: *clean.get_or_insert_with(|| home::clean::take(home)),
        sessions: if imported { None } else { std::fs::read_to_string(sessions_json::path(home)).ok() },
        counts: home::counts::read(home),
        back: back(home, lifetime),
    }
}

/// Notices for the chats that asked for this restart, and an identifier of that restart.
fn back(home: &Path, lifetime: &Lifetime) -> Option<(String, Vec<Draft>)> {
    let mut drafts = Vec::new();
    let mut restart = String::new();
    if let Some(asked) = restart::read::<restart::Notify>(home).filter(|_| is_news::<restart::Notify>(home)) {
        let processed = restart::read::<restart::Processed>(home);
        restart.push_str(&format!("{}:{:?}", asked.chat_id, processed.map(|it| it.requested_at)));
        drafts.extend(notice(
            &asked.platform,
            &asked.chat_id,
            asked.thread_id,
            "✅ Gateway restarted successfully.",
        ));
    }
    if let Some(pending) =
        restart::read::<restart::Pending>(home).filter(|_| is_news::<restart::Pending>(home))
    {
        restart.push_str(&format!("/{}", pending.requested_at));
        let homes = lifetime.home_channels.iter().map(|home| home.place().route());
        let homes = homes.filter(|route| !lifetime.quiet_platforms.contains(&route.platform));
        drafts.extend(homes.map(|route| Draft::notice(route, "✅ Gateway online.")));
    }
    (!drafts.is_empty()).then_some((restart, drafts))
}

fn is_news<N: restart::Note>(home: &Path) -> bool {
    let written = std::fs::metadata(restart::path::<N>(home)).and_then(|meta| meta.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < NEWS))
}

fn notice(platform: &str, chat: &str, thread: Option<String>, text: &str) -> Option<Draft> {
    let route = Route {
        platform: Platform::parse(platform)?,
        chat_id: chat.to_owned(),
        thread_id: thread,
        reply_to: None,
        delivery: Delivery::Push,
    };
    Some(Draft::notice(route, text))
}

/// After the commit: they are owed now, and the database knows which restart it was.
fn forget_notes(home: &Path) {
    for gone in [restart::remove::<restart::Notify>(home), restart::remove::<restart::Pending>(home)] {
        if let Err(error) = gone {
            tracing::warn!(%error, "a note about the last restart stays");
        }
    }
}
