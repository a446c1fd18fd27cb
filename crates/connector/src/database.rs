//! Opens the database at a start, and salvages a damaged one.
//!
//! A large database is not checked as a whole before it is opened, so the first reads may find the damage. The database
//! thread then notes it as it ends, and a second attempt salvages.

use std::path::Path;

use petasos_core::rate_limit::Penalty;
use petasos_core::{InstanceId, Millis};
use petasos_gateway::shell::{self as gateway, Db, ShutdownHandle, Writer};
use petasos_gateway::{Commit, Error, clock};
use petasos_store::{Salvage, Store};

use crate::start::StartError;

#[derive(Debug)]
pub(crate) struct OpenedDatabase {
    pub(crate) db: Db,
    pub(crate) writer: Writer,
    pub(crate) stored: StoredState,
}

/// State of earlier processes.
#[derive(Debug)]
pub(crate) struct StoredState {
    pub(crate) penalties: Vec<Penalty>,
    pub(crate) instances_with_work: Vec<InstanceId>,
    /// Time before which requests of gateways may have been performed without a row.
    pub(crate) requests_unknown_before: Option<Millis>,
}

/// Tries a second time if the first attempt finds the database damaged.
pub(crate) async fn open(
    path: &Path,
    single: Option<&InstanceId>,
    shutdown: &ShutdownHandle,
) -> Result<OpenedDatabase, StartError> {
    let last_change = Store::last_change(path, clock::now());
    match attempt(path, single, shutdown, last_change).await {
        Err(StartError::Connector(Error::Store(error))) if error.is_damage() => {
            tracing::error!(%error, "the database is damaged; salvaging it");
            attempt(path, single, shutdown, last_change).await
        }
        attempted => attempted,
    }
}

async fn attempt(
    path: &Path,
    single: Option<&InstanceId>,
    shutdown: &ShutdownHandle,
    last_change: Millis,
) -> Result<OpenedDatabase, StartError> {
    let (store, salvaged) = open_store(path, last_change).await?;
    salvaged.iter().for_each(gateway::log_salvage);
    let (db, writer) = gateway::open(store, shutdown.clone())?;
    match load(&db, single).await {
        Ok(stored) => Ok(OpenedDatabase { db, writer, stored }),
        Err(error) => {
            drop(db);
            writer.closed().await?;
            Err(error.into())
        }
    }
}

async fn open_store(path: &Path, last_change: Millis) -> Result<(Store, Option<Salvage>), StartError> {
    let path = path.to_owned();
    let opened = petasos_runtime::blocking(move || {
        let mut progress = gateway::paced(|percent| {
            tracing::warn!(percent, "salvaging the damaged database; the connector listens afterwards");
        });
        Store::open_or_salvage_connector(path, last_change, clock::now(), &mut progress)
    });
    Ok(opened.await.map_err(|_panicked| Error::Io("opening the database panicked".into()))??)
}

async fn load(db: &Db, single: Option<&InstanceId>) -> Result<StoredState, Error> {
    let now = clock::now();
    if let Some(single) = single.cloned() {
        db.write(Commit::Connector, move |tx| tx.ensure_single_instance(&single, now)).await?;
    }
    let loaded =
        db.write(Commit::RateLimit, move |tx| Ok((tx.penalties_in_force(now)?, tx.note_restored_copy(now)?)));
    let (penalties, restored) = loaded.await?;
    if restored {
        tracing::warn!("this database was restored from a backup; changes after the backup are unknown");
    }
    db.read(move |reader| {
        let instances_with_work = reader.instances_with_work()?;
        let requests_unknown_before = reader.requests_unknown_before()?;
        Ok(StoredState { penalties, instances_with_work, requests_unknown_before })
    })
    .await
}
