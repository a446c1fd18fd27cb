//! Putting the parts together, and taking them apart again.
//!
//! Start: open the store, see how the last process ended, recover what it left in the outbox, start the
//! owners, wake every session with work, connect the platforms. Stop: close the ways in, end the turns (their
//! journal is resumed by the next start), let the sends under way finish, note that the stop was clean,
//! close the store.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use petasos_agent::{Brain, Tools};
use petasos_core::InboxId;
use petasos_core::journal::{Outcome, Write};
use petasos_store::{OpenError, Store, Tx};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::channels::Channels;
use crate::config::Config;
use crate::db::{self, Db, Writer};
use crate::deliver::{Deliver, Outward};
use crate::handle::{Handle, Inner};
use crate::ingest::{Ingest, Rules};
use crate::lifecycle::{Phase, Stopper};
use crate::mirror;
use crate::router::{self, Router};
use crate::session::Shell;
use crate::supervise;
use crate::tasks;
use crate::{Error, clock};

/// The file in the home that holds everything.
pub const DATABASE: &str = "petasos.db";
const CLEAN_STOP: &str = "clean_stop";
const IMPORTED: &str = "sessions_json_imported";
/// How long sends under way may take to come back once we stop.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often old rows are cleared away.
const SWEEP: Duration = Duration::from_secs(300);
const FIRST_SWEEP: Duration = Duration::from_secs(60);
const SWEEP_STEP: Duration = Duration::from_secs(1);
/// A conversation nobody used for this long starts anew; its transcript stays.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(90 * 24 * 3600);

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("the model is not configured: {0}")]
    Model(#[from] petasos_agent::ConfigError),
    #[error(transparent)]
    Gateway(#[from] Error),
}

/// A running gateway. Dropping it without `wait` leaves everything to the next start's recovery.
#[derive(Debug)]
pub struct Running {
    stopper: Stopper,
    db: Db,
    writer: Writer,
    /// Links, sessions, housekeeping: ended by the stop itself.
    tasks: Vec<JoinHandle<()>>,
    deliver: JoinHandle<()>,
    handle: Handle,
}

pub async fn start(config: Config) -> Result<(Handle, Running), StartError> {
    let brain = Brain::new(config.model)?;
    let store = open(&config.home).await?;
    let stopper = Stopper::new();
    let (db, writer) = db::start(store, stopper.clone())?;
    let legacy = legacy_sessions(&config.home);
    let (clean_start, due) = db.write(move |tx| recover(tx, legacy.as_deref())).await?;
    let channels = Arc::new(Channels::new(config.adapters));
    let streaming = config.settings.streaming.clone();
    let outward = Outward::new(db.clone(), channels.clone(), streaming, stopper.clone());
    let (deliver, delivering) = Deliver::new(outward);
    let delivering = tasks::vital("deliver", &stopper, delivering);
    let (router, asks) = Router::new();
    let parallel = config.settings.parallel_calls.max(1);
    let shell = Shell {
        db: db.clone(),
        brain,
        tools: Tools::default(),
        channels: channels.clone(),
        deliver: deliver.clone(),
        router: router.clone(),
        settings: config.settings,
        stopper: stopper.clone(),
        calls: Semaphore::new(parallel),
    };
    let shell = Arc::new(shell);
    let mut running = vec![
        tasks::vital("router", &stopper, router::run(shell.clone(), asks, clean_start)),
        tasks::vital("sweep", &stopper, sweep(shell.clone())),
    ];
    if config.mirror {
        let mirror = mirror::run(db.clone(), config.home.clone(), stopper.clone());
        running.push(tasks::vital("mirror", &stopper, mirror));
    }
    let ingest = Arc::new(Ingest {
        db: db.clone(),
        router: router.clone(),
        deliver: deliver.clone(),
        channels: channels.clone(),
        rules: Arc::new(Rules { access: config.access, keys: config.keys }),
    });
    wake(&db, &router, &deliver, due).await?;
    let mut links = Vec::new();
    for adapter in channels.adapters() {
        let (link, task) = supervise::supervisor(adapter.clone(), ingest.clone(), stopper.clone());
        links.push(link);
        running.push(tasks::vital("link", &stopper, task));
    }
    let handle = Handle(Arc::new(Inner {
        db: db.clone(),
        ingest,
        router,
        deliver,
        stopper: stopper.clone(),
        links,
        model: shell.brain.describe(),
        home: config.home,
        started_at: clock::now(),
    }));
    Ok((handle.clone(), Running { stopper, db, writer, tasks: running, deliver: delivering, handle }))
}

async fn open(home: &Path) -> Result<Store, StartError> {
    let path = home.join(DATABASE);
    let opened = tokio::task::spawn_blocking(move || Store::open(path)).await;
    Ok(opened.map_err(|_panicked| Error::Io("opening the database panicked".into()))??)
}

/// A `sessions.json` of another program, to be taken over once.
fn legacy_sessions(home: &Path) -> Option<String> {
    std::fs::read_to_string(mirror::path(home)).ok()
}

/// What the last process left: whether it stopped on purpose, and which lanes have something due.
fn recover(tx: &Tx<'_>, legacy: Option<&str>) -> Result<(bool, Vec<String>), petasos_store::Error> {
    let clean = tx.meta(CLEAN_STOP)?.as_deref() == Some("yes");
    tx.put_meta(CLEAN_STOP, "no")?;
    if tx.meta(IMPORTED)?.is_none() {
        tx.put_meta(IMPORTED, "yes")?;
        match legacy.map(|text| tx.import_sessions(text)).transpose()? {
            Some(Some(found)) => {
                tracing::info!(taken = found.taken, skipped = found.skipped, "sessions.json taken over")
            }
            Some(None) => tracing::warn!("sessions.json is not readable and was left alone"),
            None => {}
        }
    }
    let recovered = tx.recover_sending()?;
    if recovered.doubtful > 0 {
        tracing::warn!(items = recovered.doubtful, "sends of unknown outcome will be repeated with a mark");
    }
    let lost = tx.end_unreadable_turns(clock::now())?;
    if lost > 0 {
        tracing::error!(turns = lost, "turns that cannot be read are given up");
    }
    give_up(tx, tx.stranded()?, "accepted messages whose turn is over without them")?;
    give_up(tx, tx.unreadable_inbox()?, "accepted messages that cannot be read")?;
    let lanes = tx.heads()?.into_iter().map(|head| head.lane).collect();
    Ok((clean, lanes))
}

/// Should never find anything; if it does, it is said and listed, not passed over.
fn give_up(tx: &Tx<'_>, inbox: Vec<InboxId>, what: &str) -> Result<(), petasos_store::Error> {
    if inbox.is_empty() {
        return Ok(());
    }
    tracing::error!(count = inbox.len(), what, "given up; `petasos doctor` lists them");
    let at = clock::now();
    tx.apply(&[Write::SettleInbox { inbox, outcome: Outcome::Dead, at }], at)
}

async fn wake(db: &Db, router: &Router, deliver: &Deliver, due: Vec<String>) -> Result<(), Error> {
    for lane in due {
        deliver.due(lane).await;
    }
    for key in db.read(|reader| reader.keys_with_work()).await? {
        router.wake(key).await;
    }
    Ok(())
}

/// Keeps house: old rows go, and conversations whose time is over end.
async fn sweep(shell: Arc<Shell>) {
    let mut pause = FIRST_SWEEP;
    loop {
        tokio::select! {
            () = shell.stopper.stopped() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let (now, resets) = (clock::now(), shell.settings.resets.clone());
        let swept = shell.db.write(move |tx| {
            let pruned = tx.prune(now)?;
            tx.prune_entries(now.before(FORGOTTEN_AFTER), &[])?;
            let expired = tx.finalize_expired(&resets, now)?;
            Ok((pruned, expired))
        });
        pause = match swept.await {
            // Bounded steps, so that nobody waits long behind one.
            Ok((pruned, _)) if pruned.more => SWEEP_STEP,
            Ok((_, expired)) => {
                if expired > 0 {
                    tracing::info!(sessions = expired, "sessions ended by their reset policy");
                }
                SWEEP
            }
            Err(error) => {
                tracing::warn!(%error, "old rows could not be cleared away");
                SWEEP
            }
        };
    }
}

impl Running {
    /// Resolves when the gateway has stopped and everything is on disk.
    pub async fn wait(self) -> Phase {
        self.stopper.stopped().await;
        let phase = self.stopper.phase();
        for task in self.tasks {
            // Its end was logged where it happened.
            let _ = task.await;
        }
        if tokio::time::timeout(FAREWELL, self.deliver).await.is_err() {
            tracing::warn!("a send has no answer yet; it will be repeated with a mark");
        }
        if phase == Phase::Stopping
            && let Err(error) = self.db.write(|tx| tx.put_meta(CLEAN_STOP, "yes")).await
        {
            tracing::warn!(%error, "the clean stop could not be noted");
        }
        self.db.fold().await;
        drop(self.db);
        drop(self.handle);
        let writer = self.writer;
        // Handles held by others keep the thread; the file is complete either way.
        let closed = tokio::task::spawn_blocking(move || writer.join());
        let _ = tokio::time::timeout(Duration::from_secs(1), closed).await;
        phase
    }
}
