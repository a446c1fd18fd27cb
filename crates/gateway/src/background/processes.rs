//! The terminal's process ledger, kept in the store: every event is committed before the terminal continues.
//!
//! Owns nothing. The end of a process and its completion are one transaction, so a crash leaves both or neither.

use petasos_agent::{
    BackgroundProcess, ExitReason, Ledger, LedgerWrite, ProcessEvent, ProcessExit, ProcessIdentity,
    RecordedProcess,
};
use petasos_core::Millis;
use petasos_store::{Error as StoreError, ProcessEnd, ProcessRow, Tx};
use std::time::Duration;

use crate::background::completions::WakeSignal;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::storage::database::Db;
use crate::{Error, clock};

/// How long an ended process stays known after a restart.
const REMEMBERED_FOR: Duration = Duration::from_secs(30 * 60);

#[derive(Debug)]
pub(crate) struct ProcessLedger {
    pub(crate) db: Db,
    pub(crate) wake: WakeSignal,
}

impl ProcessLedger {
    fn write(&self, job: impl FnOnce(&Tx<'_>) -> Result<(), StoreError> + Send + 'static) -> LedgerWrite<'_> {
        Box::pin(async move { self.db.write(Commit::Process, job).await.map_err(|error| error.to_string()) })
    }

    /// Commits, then wakes the completion dispatcher, also if the caller is dropped.
    fn write_and_wake(
        &self,
        job: impl FnOnce(&Tx<'_>) -> Result<(), StoreError> + Send + 'static,
    ) -> LedgerWrite<'_> {
        let db = self.db.clone();
        let wake = self.wake.clone();
        let stored = tasks::uncancelled(async move {
            db.write(Commit::Process, job).await?;
            wake.notify();
            Ok::<_, Error>(())
        });
        Box::pin(async move { stored.await.flatten().map_err(|error| error.to_string()) })
    }
}

impl Ledger for ProcessLedger {
    fn begin(&self, record: BackgroundProcess) -> LedgerWrite<'_> {
        self.write(move |tx| tx.begin_process(&row(&record)?))
    }

    fn started(&self, id: &str, identity: ProcessIdentity) -> LedgerWrite<'_> {
        let id = id.to_owned();
        self.write(move |tx| tx.process_started(&id, identity.pid, identity.start_time.as_deref()))
    }

    fn ended(
        &self,
        record: &BackgroundProcess,
        end: ProcessExit,
        event: Option<ProcessEvent>,
    ) -> LedgerWrite<'_> {
        let record = record.clone();
        self.write_and_wake(move |tx| {
            let ended = ProcessEnd {
                exit_code: end.exit_code,
                reason: end.reason.as_str().into(),
                ended_by: end.reason.source().into(),
                at: end.at,
            };
            if tx.process_ended(&record.id, &ended)?
                && let Some(event) = &event
            {
                enqueue_completion(tx, &record, event, end.at)?;
            }
            Ok(())
        })
    }

    fn happened(&self, record: &BackgroundProcess, event: ProcessEvent) -> LedgerWrite<'_> {
        let record = record.clone();
        self.write_and_wake(move |tx| {
            tx.put_process_notification(&record.id, &row(&record)?.notification)?;
            enqueue_completion(tx, &record, &event, clock::now())
        })
    }

    fn consumed(&self, id: &str) -> LedgerWrite<'_> {
        let id = id.to_owned();
        self.write(move |tx| tx.completion_consumed(&id, clock::now()).map(drop))
    }
}

fn enqueue_completion(
    tx: &Tx<'_>,
    record: &BackgroundProcess,
    event: &ProcessEvent,
    now: Millis,
) -> Result<(), StoreError> {
    let payload = serde_json::to_string(event).map_err(|_| StoreError::Unreadable("event of a process"))?;
    let to = (&record.key, Some(&record.session));
    tx.record_completion(&event.dispatch(), to, &record.source, event.kind(), &payload, now).map(drop)
}

/// Processes of earlier gateways that had not ended, and those that ended recently.
pub(crate) async fn load_known(db: &Db) -> Result<Vec<RecordedProcess>, Error> {
    let ledger = db.read(|reader| reader.processes(clock::now().before(REMEMBERED_FOR))).await?;
    Ok(ledger.into_iter().filter_map(known_from).collect())
}

fn row(record: &BackgroundProcess) -> Result<ProcessRow, StoreError> {
    let notify = serde_json::to_string(&record.notify);
    Ok(ProcessRow {
        id: record.id.clone(),
        key: record.key.clone(),
        session: record.session.clone(),
        origin: record.source.clone(),
        command: record.command.clone(),
        cwd: record.cwd.clone(),
        notification: notify.map_err(|_| StoreError::Unreadable("notification of a process"))?,
        started_at: record.started_at,
        pid: None,
        born: None,
        end: None,
    })
}

fn known_from(row: ProcessRow) -> Option<RecordedProcess> {
    let Ok(notify) = serde_json::from_str(&row.notification) else {
        tracing::error!(process = row.id, "skipped an unreadable stored process");
        return None;
    };
    let end = row.end.map(|end| ProcessExit {
        exit_code: end.exit_code,
        // A reason of another version is unknown; the process has ended all the same.
        reason: ExitReason::parse(&end.reason, &end.ended_by).unwrap_or(ExitReason::Exited),
        at: end.at,
    });
    Some(RecordedProcess {
        identity: row.pid.map(|pid| ProcessIdentity { pid, start_time: row.born }),
        end,
        record: BackgroundProcess {
            id: row.id,
            key: row.key,
            session: row.session,
            source: row.origin,
            command: row.command,
            cwd: row.cwd,
            notify,
            started_at: row.started_at,
        },
    })
}

#[cfg(test)]
mod tests {
    use petasos_agent::NotifyMode;
    use petasos_core::message::ChatType;
    use petasos_core::{Platform, SessionId, SessionKey, Source};
    use petasos_store::Store;

    use super::*;
    use crate::lifecycle::shutdown::ShutdownHandle;
    use crate::runtime::tasks::testing::dropped_after;

    #[tokio::test]
    async fn dispatches_process_event_after_the_caller_is_dropped() {
        let mut dropped_behind_commit = 0;
        for polls in 1..64 {
            let home = tempfile::tempdir().unwrap();
            let store = Store::open(home.path().join("petasos.db")).unwrap();
            let (db, _writer) = crate::storage::database::start(store, ShutdownHandle::default()).unwrap();
            let ledger = ProcessLedger { db: db.clone(), wake: WakeSignal::default() };
            let record = BackgroundProcess {
                id: "proc_1".into(),
                key: SessionKey("agent:main:telegram:dm:7".into()),
                session: SessionId("s".into()),
                source: Source::new(Platform::parse("telegram").unwrap(), ChatType::Dm, "7"),
                command: "make".into(),
                cwd: "/".into(),
                notify: NotifyMode::Lines { patterns: vec!["READY".into()], reported: 0 },
                started_at: clock::now(),
            };
            ledger.begin(record.clone()).await.unwrap();
            let event = ProcessEvent::WatchMatch {
                session_id: record.id.clone(),
                command: record.command.clone(),
                pattern: "READY".into(),
                output: "READY".into(),
                suppressed: 0,
                at: 0,
            };
            let dropped = dropped_after(polls, &db, ledger.happened(&record, event)).await;
            if !db.read(|reader| reader.queued_completions()).await.unwrap().is_empty() {
                let woken = std::pin::pin!(ledger.wake.notified());
                assert!(futures_util::poll!(woken).is_ready(), "the dispatcher is not woken");
                dropped_behind_commit += usize::from(dropped);
            }
            if !dropped {
                break;
            }
        }
        assert!(dropped_behind_commit > 0, "never dropped behind its commit");
    }
}
