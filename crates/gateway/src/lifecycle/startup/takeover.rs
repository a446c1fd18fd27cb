//! Opening the database and recovering the state of the previous process.
//!
//! Large databases are not checked as a whole before they are opened, so recovery may be the first to read damaged
//! pages. The database thread then notes the damage as it ends, and a second attempt salvages.

use std::path::Path;
use std::time::Duration;

use petasos_agent::RecordedProcess;
use petasos_core::lifecycle::restart_breaker::ResumePacing;
use petasos_core::message::{Delivery, Route};
use petasos_core::outbox::Draft;
use petasos_core::{Millis, Platform};
use petasos_store::{BootPolicy, BootResult, HoldScope, HomeState, Store, SuspectHold};

use crate::background::processes;
use crate::home::{self, restart};
use crate::lifecycle::config::Settings;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::sd_notify::Notifier;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::lifecycle::startup::boot::{self, RecoveryContext};
use crate::lifecycle::startup::{DATABASE, StartError};
use crate::runtime::commit::Commit;
use crate::storage::database::{self, Db, Writer};
use crate::storage::{salvage, sessions_json};
use crate::{Error, clock};

/// Restart notes older than this are ignored.
const MAX_NOTICE_AGE: Duration = Duration::from_secs(3600);
/// Syncing a large file is one step without a report.
const START_EXTENSION: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(crate) struct RecoveryInputs<'a> {
    pub(crate) home: &'a Path,
    pub(crate) lifetime: &'a Lifetime,
    pub(crate) settings: &'a Settings,
    pub(crate) notifier: &'a Notifier,
    pub(crate) context: RecoveryContext,
}

#[derive(Debug)]
pub(crate) struct RecoveredState {
    pub(crate) db: Db,
    pub(crate) writer: Writer,
    pub(crate) booted: BootResult,
    pub(crate) hold: SuspectHold,
    pub(crate) processes: Vec<RecordedProcess>,
}

/// Tries a second time if the first attempt finds the database damaged.
pub(crate) async fn recover(
    inputs: RecoveryInputs<'_>,
    shutdown: &ShutdownHandle,
    now: Millis,
) -> Result<RecoveredState, StartError> {
    let mut clean = None;
    let last_change = Store::last_change(&inputs.home.join(DATABASE), now);
    match attempt(&inputs, shutdown, &mut clean, last_change, now).await {
        Err(StartError::Gateway(Error::Store(error))) if error.is_damage() => {
            tracing::error!(%error, "the database is damaged; salvaging it");
            attempt(&inputs, shutdown, &mut clean, last_change, now).await
        }
        attempted => attempted,
    }
}

async fn attempt(
    inputs: &RecoveryInputs<'_>,
    shutdown: &ShutdownHandle,
    clean: &mut Option<bool>,
    last_change: Millis,
    now: Millis,
) -> Result<RecoveredState, StartError> {
    let store = open(inputs.home, last_change, inputs.notifier.clone()).await?;
    let (db, writer) = database::start(store, shutdown.clone())?;
    let read = async {
        let (booted, hold) = take_over(&db, inputs, clean, now).await?;
        Ok::<_, Error>((booted, hold, processes::load_known(&db).await?))
    };
    match read.await {
        Ok((booted, hold, processes)) => Ok(RecoveredState { db, writer, booted, hold, processes }),
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
        let mut progress = salvage::paced(|percent| report_progress(&notifier, percent));
        Store::open_or_salvage_changed(path, last_change, clock::now(), &mut progress)
    })
    .await;
    let (store, salvaged) =
        opened.map_err(|_panicked| Error::Io("opening the database panicked".into()))??;
    salvaged.iter().for_each(salvage::log_salvage);
    Ok(store)
}

/// Keeps the service manager from timing out during a long salvage.
fn report_progress(notifier: &Notifier, percent: u8) {
    tracing::warn!(percent, "salvaging the damaged database; messages are accepted afterwards");
    notifier.status(&format!("salvaging the damaged database: {percent} %"));
    notifier.extend(START_EXTENSION);
}

/// Recovers the state of the previous process in one commit. Returns how its suspects are resumed.
async fn take_over(
    db: &Db,
    inputs: &RecoveryInputs<'_>,
    clean: &mut Option<bool>,
    now: Millis,
) -> Result<(BootResult, SuspectHold), Error> {
    let RecoveryInputs { home, lifetime, settings, context, notifier: _ } = inputs;
    let context = context.clone();
    let imported = db.read(|reader| reader.sessions_imported()).await?;
    let found = found(home, lifetime, imported, clean);
    let boots = home::boots::load(home, lifetime.loop_guard, now);
    let hold = hold_policy(boots.resume, lifetime);
    let crash_recovery = lifetime.crash_recovery;
    let window = settings.resume_window;
    let limits = settings.limits;
    let terms = BootPolicy { crash_recovery, window, limits, hold };
    let booted =
        db.write(Commit::TakeOver, move |tx| boot::take_over(tx, &found, &terms, &context, now)).await?;
    boot::log_report(&booted.report);
    if booted.report.has_unreadable_rows() {
        db.note_unreadable_rows();
    }
    remove_restart_notes(home);
    let suspects = booted.report.suspects;
    let held = booted.held.len();
    if suspects > 0 {
        boots.store(home, lifetime.loop_guard);
    }
    if held > 0 {
        let seconds = hold.pause.as_secs();
        let reason = match hold.scope {
            HoldScope::All => "started too often with interrupted turns",
            HoldScope::LastTry => "interrupted turns are close to the limit of crashes",
        };
        tracing::error!(suspects, held, seconds, reason, "resuming interrupted turns one by one");
    }
    Ok((booted, hold))
}

/// The restart breaker and the respawn storm both hold all suspects, for the longer of their pauses. Otherwise only a
/// suspect at its last try waits, until the others have run for the stable interval.
fn hold_policy(resume: ResumePacing, lifetime: &Lifetime) -> SuspectHold {
    let tripped = match resume {
        ResumePacing::AtOnce => None,
        ResumePacing::OneByOne { pause, .. } => Some(pause),
    };
    let stable = lifetime.loop_guard.stable;
    match tripped.max(lifetime.storm_pause) {
        Some(pause) => SuspectHold { scope: HoldScope::All, pause, stable },
        None => SuspectHold { scope: HoldScope::LastTry, pause: stable, stable },
    }
}

/// `clean`: the clean-shutdown marker, once read. `imported`: a `sessions.json` was imported before, so the file is our own
/// copy.
fn found(home: &Path, lifetime: &Lifetime, imported: bool, clean: &mut Option<bool>) -> HomeState {
    HomeState {
        clean: *clean.get_or_insert_with(|| home::clean::consume(home)),
        sessions_json: if imported { None } else { std::fs::read_to_string(sessions_json::path(home)).ok() },
        failure_counts: home::counts::read(home),
        restart_notices: restart_notices(home, lifetime),
    }
}

/// Notices for the chats that requested this restart, and an identifier of the restart.
fn restart_notices(home: &Path, lifetime: &Lifetime) -> Option<(String, Vec<Draft>)> {
    let mut drafts = Vec::new();
    let mut restart = String::new();
    if let Some(asked) =
        restart::read::<restart::RestartRequest>(home).filter(|_| is_recent::<restart::RestartRequest>(home))
    {
        let processed = restart::read::<restart::LastRestart>(home);
        restart.push_str(&format!("{}:{:?}", asked.chat_id, processed.map(|it| it.requested_at)));
        drafts.extend(notice(
            &asked.platform,
            &asked.chat_id,
            asked.thread_id,
            crate::notices::sessions::RESTARTED,
        ));
    }
    if let Some(pending) =
        restart::read::<restart::PendingRestart>(home).filter(|_| is_recent::<restart::PendingRestart>(home))
    {
        restart.push_str(&format!("/{}", pending.requested_at));
        let homes = lifetime.home_channels.iter().map(|home| home.address().route());
        let homes = homes.filter(|route| !lifetime.quiet_platforms.contains(&route.platform));
        drafts.extend(homes.map(|route| Draft::notice(route, crate::notices::sessions::ONLINE)));
    }
    (!drafts.is_empty()).then_some((restart, drafts))
}

fn is_recent<N: restart::RestartNote>(home: &Path) -> bool {
    let written = std::fs::metadata(restart::path::<N>(home)).and_then(|meta| meta.modified());
    written.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < MAX_NOTICE_AGE))
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

/// Called after the commit that enqueues the notices and stores the identifier of the restart.
fn remove_restart_notes(home: &Path) {
    for gone in
        [restart::remove::<restart::RestartRequest>(home), restart::remove::<restart::PendingRestart>(home)]
    {
        if let Err(error) = gone {
            tracing::warn!(%error, "cannot remove a restart note");
        }
    }
}
