//! Putting the parts together, and taking them apart again.
//!
//! Start: open the store, see how the last process ended, recover what it left in the outbox, start the
//! owners, wake every session with work, connect the platforms. Stop: close the ways in, end the turns (their
//! journal is resumed by the next start), let the sends under way finish, note that the stop was clean,
//! close the store.

use std::sync::Arc;
use std::time::Duration;

use petasos_agent::{Brain, Tools};
use petasos_store::{OpenError, Store};
use tokio::task::JoinHandle;

use crate::channels::Channels;
use crate::config::Config;
use crate::db::{self, Db, Writer};
use crate::deliver::{Deliver, Outward};
use crate::handle::{Handle, Inner};
use crate::ingest::{Ingest, Rules};
use crate::lifecycle::{Phase, Stopper};
use crate::router::{self, Router};
use crate::session::Shell;
use crate::supervise;
use crate::tasks;
use crate::{Error, clock};

/// The file in the home that holds everything.
pub const DATABASE: &str = "petasos.db";
const CLEAN_STOP: &str = "clean_stop";
/// How long sends under way may take to come back once we stop.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often old rows are cleared away.
const SWEEP: Duration = Duration::from_secs(3600);

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
    let (db, writer) = db::start(store)?;
    let (clean_start, due) = db.write(recover).await?;
    let stopper = Stopper::new();
    let channels = Arc::new(Channels::new(config.adapters));
    let streaming = config.settings.streaming.clone();
    let outward = Outward { db: db.clone(), channels: channels.clone(), streaming, stopper: stopper.clone() };
    let (deliver, delivering) = Deliver::new(outward);
    let delivering = tasks::vital("deliver", &stopper, delivering);
    let (router, asks) = Router::new();
    let shell = Shell {
        db: db.clone(),
        brain,
        tools: Tools::default(),
        channels: channels.clone(),
        deliver: deliver.clone(),
        router: router.clone(),
        settings: config.settings,
        stopper: stopper.clone(),
        clean_start,
    };
    let shell = Arc::new(shell);
    let mut running = vec![
        tasks::vital("router", &stopper, router::run(shell.clone(), asks)),
        tasks::vital("sweep", &stopper, sweep(db.clone(), stopper.clone())),
    ];
    let rules = Arc::new(Rules { access: config.access, keys: config.keys });
    let ingest = Ingest {
        db: db.clone(),
        router: router.clone(),
        deliver: deliver.clone(),
        channels: channels.clone(),
        rules,
    };
    let ingest = Arc::new(ingest);
    wake(&db, &router, &deliver, due).await?;
    let mut links = Vec::new();
    for adapter in channels.adapters() {
        let (link, task) = supervise::supervisor(
            adapter.clone(),
            db.clone(),
            ingest.clone(),
            deliver.clone(),
            stopper.clone(),
        );
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

async fn open(home: &std::path::Path) -> Result<Store, StartError> {
    let path = home.join(DATABASE);
    let opened = tokio::task::spawn_blocking(move || Store::open(path)).await;
    Ok(opened.map_err(|_panicked| Error::Io("opening the database panicked".into()))??)
}

/// What the last process left: whether it stopped on purpose, and which lanes have something due.
fn recover(tx: &petasos_store::Tx<'_>) -> Result<(bool, Vec<String>), petasos_store::Error> {
    let clean = tx.meta(CLEAN_STOP)?.as_deref() == Some("yes");
    tx.put_meta(CLEAN_STOP, "no")?;
    let recovered = tx.recover_sending()?;
    if recovered.doubtful > 0 {
        tracing::warn!(items = recovered.doubtful, "sends of unknown outcome will be repeated with a mark");
    }
    let lanes = tx.heads()?.into_iter().map(|head| head.lane).collect();
    Ok((clean, lanes))
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

async fn sweep(db: Db, stopper: Stopper) {
    loop {
        tokio::select! {
            () = stopper.stopped() => return,
            () = tokio::time::sleep(SWEEP) => {}
        }
        let now = clock::now();
        match db.write(move |tx| tx.prune(now)).await {
            Ok(pruned) => tracing::debug!(?pruned, "old rows cleared away"),
            Err(error) => tracing::warn!(%error, "old rows could not be cleared away"),
        }
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
        if let Err(error) = self.db.write(|tx| tx.put_meta(CLEAN_STOP, "yes")).await {
            tracing::warn!(%error, "the clean stop could not be noted");
        }
        drop(self.db);
        drop(self.handle);
        let writer = self.writer;
        // Handles held by others keep the thread; the file is complete either way.
        let closed = tokio::task::spawn_blocking(move || writer.join());
        let _ = tokio::time::timeout(Duration::from_secs(1), closed).await;
        phase
    }
}
