//! Storage of the queues: each operation is one transaction. Another engine than SQLite replaces only this file.

use std::collections::HashMap;

use petasos_core::InstanceId;
use petasos_gateway::shell::Db;
use petasos_gateway::{Commit, Error, clock};
use petasos_relay::Session;
use petasos_relay::session::{Carries, Write};
use petasos_store::connector::{Arrival, GatewayCredentials};
use petasos_store::{Error as StoreError, Tx};

#[derive(Debug, Clone)]
pub(crate) struct Queue {
    db: Db,
    /// Identifies the lease of this process.
    node: String,
}

/// The writes of one transaction.
#[derive(Debug, Default)]
pub(crate) struct QueueWrites {
    pub(crate) writes: Vec<Write>,
    /// New events, by buffer id.
    pub(crate) fresh: HashMap<String, Arrival>,
    /// Buffer ids of forwarded control frames, which are not stored.
    pub(crate) passed: Vec<String>,
    /// Buffer ids of events longer than a line.
    pub(crate) too_long: Vec<String>,
}

impl Queue {
    pub(crate) fn new(db: Db) -> Self {
        Self { db, node: clock::secret() }
    }

    pub(crate) async fn load(&self, instance: &InstanceId) -> Result<Session, Error> {
        let instance = instance.clone();
        let (entries, idle) = self.db.read(move |reader| reader.queue_of(&instance)).await?;
        Ok(Session::recover(entries, idle))
    }

    pub(crate) async fn wake_url(&self, instance: &InstanceId) -> Result<Option<String>, Error> {
        let instance = instance.clone();
        let found = self.db.read(move |reader| reader.instance(&instance)).await?;
        Ok(found.and_then(|instance| instance.wake_url))
    }

    /// A socket number higher than all before. `None`: the gateway is no longer authorised.
    pub(crate) async fn claim(&self, gateway: &GatewayCredentials) -> Result<Option<u64>, Error> {
        let id = gateway.id.clone();
        let instance = gateway.instance.clone();
        let node = self.node.clone();
        let now = clock::now();
        let claim = move |tx: &Tx<'_>| match tx.gateway(&id, now)? {
            Some(_) => tx.claim_instance(&instance, &node).map(Some),
            None => Ok(None),
        };
        self.db.write(Commit::Connector, claim).await
    }

    pub(crate) async fn payload(&self, id: &str) -> Result<Option<(Carries, String)>, Error> {
        let id = id.to_owned();
        self.db.read(move |reader| reader.payload(&id)).await
    }

    /// Returns the committed events for delivery.
    pub(crate) async fn commit(
        &self,
        instance: &InstanceId,
        changes: QueueWrites,
    ) -> Result<HashMap<String, Arrival>, Error> {
        if changes.writes.is_empty() && changes.passed.is_empty() && changes.too_long.is_empty() {
            return Ok(changes.fresh);
        }
        let instance = instance.clone();
        self.db
            .write(Commit::Connector, move |tx| apply(tx, &instance, &changes).map(|()| changes.fresh))
            .await
    }
}

fn apply(tx: &Tx<'_>, instance: &InstanceId, changes: &QueueWrites) -> Result<(), StoreError> {
    let now = clock::now();
    let fresh = |id: &String| changes.fresh.get(id).ok_or(StoreError::Missing("arrival"));
    let mut appended: Vec<&str> = vec![];
    for write in &changes.writes {
        match write {
            Write::Append { id } => {
                tx.enqueue(instance, fresh(id)?)?;
                appended.push(id);
            }
            Write::Delete { id } => tx.acknowledge(instance, id)?,
            Write::Strike { id, strikes } => tx.put_strikes(id, *strikes)?,
            Write::DeadLetter { id, why } => match changes.fresh.get(id) {
                Some(arrival) if !appended.contains(&id.as_str()) => {
                    tx.dead_letter_arrival(instance, arrival, Some(*why))?
                }
                Some(_) | None => tx.dead_letter(id, *why, now)?,
            },
            Write::Flip { idle } => tx.set_idle(instance, *idle)?,
        }
    }
    for id in &changes.passed {
        tx.record_event(instance, fresh(id)?)?;
    }
    for id in &changes.too_long {
        tx.dead_letter_arrival(instance, fresh(id)?, None)?;
    }
    Ok(())
}
