//! The queue of every instance: the one way to it, and every operation a transaction.
//!
//! `list` is what an instance's task starts from, `claim` gives a socket its number, and `commit` carries out what the
//! machine of an instance decided: appends, acknowledgements, strikes, burials and flips, all or none of them. Another
//! engine than SQLite replaces this file and nothing else.

use std::collections::HashMap;

use petasos_gateway::Commit;
use petasos_gateway::shell::Db;
use petasos_gateway::{Error, clock};
use petasos_relay::Session;
use petasos_relay::session::{Carries, Write};
use petasos_store::connector::{Arrival, Gateway};
use petasos_store::{Error as StoreError, Tx};

#[derive(Debug, Clone)]
pub(crate) struct Queue {
    db: Db,
    /// This process: a lease names its holder.
    node: String,
}

/// What is written in one transaction.
#[derive(Debug, Default)]
pub(crate) struct Books {
    pub(crate) writes: Vec<Write>,
    /// What arrived since the last commit, by its number.
    pub(crate) fresh: HashMap<String, Arrival>,
    /// Of these, what was sent and is not kept.
    pub(crate) passed: Vec<String>,
    /// Of these, what no line is long enough for.
    pub(crate) too_long: Vec<String>,
}

impl Queue {
    pub(crate) fn new(db: Db) -> Self {
        Self { db, node: clock::secret() }
    }

    /// The instance as the store knows it.
    pub(crate) async fn list(&self, instance: &str) -> Result<Session, Error> {
        let instance = instance.to_owned();
        let (entries, idle) = self.db.read(move |reader| reader.owed_to(&instance)).await?;
        Ok(Session::recover(entries, idle))
    }

    /// A number for a socket, higher than those of all sockets before it. `None`: its gateway may be here no longer.
    pub(crate) async fn claim(&self, gateway: &Gateway) -> Result<Option<u64>, Error> {
        let (id, instance) = (gateway.id.clone(), gateway.instance.clone());
        let (node, now) = (self.node.clone(), clock::now());
        let claim = move |tx: &Tx<'_>| match tx.gateway(&id, now)? {
            Some(_) => tx.claim_instance(&instance, &node).map(Some),
            None => Ok(None),
        };
        self.db.write(Commit::Connector, claim).await
    }

    /// What is still owed under this number.
    pub(crate) async fn payload(&self, id: &str) -> Result<Option<(Carries, String)>, Error> {
        let id = id.to_owned();
        self.db.read(move |reader| reader.payload(&id)).await
    }

    /// All or nothing. What arrived is given back for its delivery.
    pub(crate) async fn commit(
        &self,
        instance: &str,
        books: Books,
    ) -> Result<HashMap<String, Arrival>, Error> {
        if books.writes.is_empty() && books.passed.is_empty() && books.too_long.is_empty() {
            return Ok(books.fresh);
        }
        let instance = instance.to_owned();
        self.db.write(Commit::Connector, move |tx| keep(tx, &instance, &books).map(|()| books.fresh)).await
    }
}

fn keep(tx: &Tx<'_>, instance: &str, books: &Books) -> Result<(), StoreError> {
    let now = clock::now();
    let fresh = |id: &String| books.fresh.get(id).ok_or(StoreError::Missing("arrival"));
    let mut appended: Vec<&str> = vec![];
    for write in &books.writes {
        match write {
            Write::Append { id } => {
                tx.enqueue(instance, fresh(id)?)?;
                appended.push(id);
            }
            Write::Delete { id } => tx.acknowledge(instance, id)?,
            Write::Strike { id, strikes } => tx.strike(id, *strikes)?,
            Write::Bury { id, why } => match books.fresh.get(id) {
                Some(arrival) if !appended.contains(&id.as_str()) => {
                    tx.refuse(instance, arrival, Some(*why))?
                }
                Some(_) | None => tx.put_aside(id, *why, now)?,
            },
            Write::Flip { idle } => tx.flip(instance, *idle)?,
        }
    }
    for id in &books.passed {
        tx.heard(instance, fresh(id)?)?;
    }
    for id in &books.too_long {
        tx.refuse(instance, fresh(id)?, None)?;
    }
    Ok(())
}
