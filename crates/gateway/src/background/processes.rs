//! Background processes in the store: what the terminal tells us is committed before it goes on.
//!
//! Owns nothing. An end and the completion it owes are one transaction, so a crash leaves both or neither.

use petasos_agent::{End, Event, Identity, Kept, Known, Ledger, Reason, Record};
use petasos_core::Millis;
use petasos_store::{Error as StoreError, ProcessEnd, ProcessRow, Tx};
use std::time::Duration;

use crate::background::completions::Bell;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::storage::database::Db;
use crate::{Error, clock};

/// How long an ended process can still be asked about after a restart.
const REMEMBERED: Duration = Duration::from_secs(30 * 60);

#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) db: Db,
    pub(crate) bell: Bell,
}

impl Rows {
    fn keep(&self, job: impl FnOnce(&Tx<'_>) -> Result<(), StoreError> + Send + 'static) -> Kept<'_> {
        Box::pin(async move { self.db.write(Commit::Process, job).await.map_err(|error| error.to_string()) })
    }

    /// Like `keep`, and then somebody has to be told.
    fn tell(&self, job: impl FnOnce(&Tx<'_>) -> Result<(), StoreError> + Send + 'static) -> Kept<'_> {
        let (db, bell) = (self.db.clone(), self.bell.clone());
        let told = tasks::uncancelled(async move {
            db.write(Commit::Process, job).await?;
            bell.ring();
            Ok::<_, Error>(())
        });
        Box::pin(async move { told.await.flatten().map_err(|error| error.to_string()) })
    }
}

impl Ledger for Rows {
    fn begin(&self, record: Record) -> Kept<'_> {
        self.keep(move |tx| tx.begin_process(&row(&record)?))
    }

    fn started(&self, id: &str, who: Identity) -> Kept<'_> {
        let id = id.to_owned();
        self.keep(move |tx| tx.process_started(&id, who.pid, who.born.as_deref()))
    }

    fn ended(&self, record: &Record, end: End, event: Option<Event>) -> Kept<'_> {
        let record = record.clone();
        self.tell(move |tx| {
            let ended = ProcessEnd {
                exit_code: end.exit_code,
                reason: end.reason.as_str().into(),
                ended_by: end.reason.source().into(),
                at: end.at,
            };
            if tx.process_ended(&record.id, &ended)?
                && let Some(event) = &event
            {
                owe(tx, &record, event, end.at)?;
            }
            Ok(())
        })
    }

    fn happened(&self, record: &Record, event: Event) -> Kept<'_> {
        let record = record.clone();
        self.tell(move |tx| {
            tx.put_promise(&record.id, &row(&record)?.promise)?;
            owe(tx, &record, &event, clock::now())
        })
    }

    fn consumed(&self, id: &str) -> Kept<'_> {
        let id = id.to_owned();
        self.keep(move |tx| tx.completion_consumed(&id, clock::now()).map(drop))
    }
}

fn owe(tx: &Tx<'_>, record: &Record, event: &Event, now: Millis) -> Result<(), StoreError> {
    let payload = serde_json::to_string(event).map_err(|_| StoreError::Unreadable("event of a process"))?;
    let to = (&record.key, Some(&record.session));
    tx.complete_work(&event.dispatch(), to, &record.source, event.kind(), &payload, now).map(drop)
}

/// What the gateways before us started and did not see the end of, and what ended lately.
pub(crate) async fn known(db: &Db) -> Result<Vec<Known>, Error> {
    let rows = db.read(|reader| reader.processes(clock::now().before(REMEMBERED))).await?;
    Ok(rows.into_iter().filter_map(known_from).collect())
}

fn row(record: &Record) -> Result<ProcessRow, StoreError> {
    let promise = serde_json::to_string(&record.promise);
    Ok(ProcessRow {
        id: record.id.clone(),
        key: record.key.clone(),
        session: record.session.clone(),
        origin: record.source.clone(),
        command: record.command.clone(),
        cwd: record.cwd.clone(),
        promise: promise.map_err(|_| StoreError::Unreadable("promise of a process"))?,
        started_at: record.started_at,
        pid: None,
        born: None,
        end: None,
    })
}

fn known_from(row: ProcessRow) -> Option<Known> {
    let Ok(promise) = serde_json::from_str(&row.promise) else {
        tracing::error!(process = row.id, "a stored process cannot be read and is passed over");
        return None;
    };
    let end = row.end.map(|end| End {
        exit_code: end.exit_code,
        // Words of another version: it ended, and that is what counts.
        reason: Reason::parse(&end.reason, &end.ended_by).unwrap_or(Reason::Exited),
        at: end.at,
    });
    Some(Known {
        who: row.pid.map(|pid| Identity { pid, born: row.born }),
        end,
        record: Record {
            id: row.id,
            key: row.key,
            session: row.session,
            source: row.origin,
            command: row.command,
            cwd: row.cwd,
            promise,
            started_at: row.started_at,
        },
    })
}

#[cfg(test)]
mod tests {
    use petasos_agent::Promise;
    use petasos_core::message::ChatType;
    use petasos_core::{Platform, SessionId, SessionKey, Source};
    use petasos_store::Store;

    use super::*;
    use crate::lifecycle::shutdown::Stopper;
    use crate::runtime::tasks::testing::dropped_after;

    #[tokio::test]
    async fn end_of_a_process_is_handed_over_after_the_caller_is_dropped() {
        let mut dropped_behind_commit = 0;
        for polls in 1..64 {
            let home = tempfile::tempdir().unwrap();
            let store = Store::open(home.path().join("petasos.db")).unwrap();
            let (db, _writer) = crate::storage::database::start(store, Stopper::default()).unwrap();
            let rows = Rows { db: db.clone(), bell: Bell::default() };
            let record = Record {
                id: "proc_1".into(),
                key: SessionKey("agent:main:telegram:dm:7".into()),
                session: SessionId("s".into()),
                source: Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7"),
                command: "make".into(),
                cwd: "/".into(),
                promise: Promise::Lines { patterns: vec!["READY".into()], told: 0 },
                started_at: clock::now(),
            };
            rows.begin(record.clone()).await.unwrap();
            let event = Event::WatchMatch {
                session_id: record.id.clone(),
                command: record.command.clone(),
                pattern: "READY".into(),
                output: "READY".into(),
                suppressed: 0,
                at: 0,
            };
            let dropped = dropped_after(polls, &db, rows.happened(&record, event)).await;
            if !db.read(|reader| reader.queued_completions()).await.unwrap().is_empty() {
                let rung = std::pin::pin!(rows.bell.rung());
                assert!(futures_util::poll!(rung).is_ready(), "nobody hands the event over");
                dropped_behind_commit += usize::from(dropped);
            }
            if !dropped {
                break;
            }
        }
        assert!(dropped_behind_commit > 0, "never dropped behind its commit");
    }
}
