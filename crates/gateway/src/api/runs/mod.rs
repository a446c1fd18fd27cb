//! API runs: turns that HTTP clients start. They use the same inbox and sessions as every message.
//!
//! A run is committed with its message before the client gets a reply, and can be watched from another connection or after a
//! restart. Owns the concurrency limit (`limiter.rs`). Every run enters through `source.rs`; `target.rs` chooses the transcript.

mod approval;
mod limiter;
mod sessions;
mod source;
mod target;

use std::time::Duration;

use petasos_core::ids::RowId;
use petasos_core::journal::MessageOutcome;
use petasos_core::lifecycle::{GateState, NotAccepting};
use petasos_core::message::Attachment;
use petasos_core::transcript::{Message, Role};
use petasos_core::{Millis, Platform, RunId};
use petasos_store::{IdempotencyMatch, NewRun, PendingMessage, RunEnd, RunRow, TranscriptRow, Tx};
use serde::{Deserialize, Serialize};

pub use approval::RunApproval;
pub use limiter::RunLimits;
pub(crate) use limiter::{RunLimiter, RunPermit};
pub use sessions::{NewSession, SessionChangeError};
pub(crate) use source::run_of;
pub use target::RunTarget;

use crate::inbound::downloads;
use crate::inbound::ingest::Ingest;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::runtime::tasks;
use crate::{Error, Handle, clock};
use std::sync::Arc;
use target::{ResolvedTarget, RunContext};

/// Interval at which waiters read the store, in addition to notifications.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// An earlier message, as sent by the client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryMessage {
    pub role: Role,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunOptions {
    /// The model name of the request, echoed to the client.
    pub shown_model: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Extra system prompt for this run; not stored in the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Earlier messages that are not in the transcript yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<HistoryMessage>,
    /// The client answers approvals while the run works.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answers: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forget: bool,
}

impl RunOptions {
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    pub(crate) fn rows(&self, now: Millis) -> impl Iterator<Item = Message> {
        self.history.iter().map(move |message| match message.role {
            Role::Assistant => Message::assistant(&message.text, now),
            Role::User | Role::Tool | Role::Notice | Role::Summary => Message::user(&message.text, now),
        })
    }
}

/// Makes a repeated request start only one run.
#[derive(Debug, Clone)]
pub struct IdempotencyKey {
    pub name: String,
    pub fingerprint: [u8; 32],
}

#[derive(Debug)]
pub struct RunRequest {
    /// Created with [`fresh_id`].
    pub run: RunId,
    /// The credential of the client.
    pub owner: String,
    /// The credential may use conversations of other owners.
    pub sees_all: bool,
    pub target: RunTarget,
    pub text: String,
    pub attachments: Vec<Attachment>,
    pub options: RunOptions,
    pub idempotency_key: Option<IdempotencyKey>,
}

#[derive(Debug, Clone)]
pub struct StartedRun {
    pub run: RunRow,
    /// The request had been accepted before; nothing new was started.
    pub duplicate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum StartRunError {
    #[error(transparent)]
    Error(#[from] Error),
    #[error("the limit of {cap} concurrent runs is reached")]
    Full { cap: usize },
    #[error("this idempotency key was used for another request")]
    KeyReused,
    #[error("the conversation or run to continue does not exist")]
    TargetNotFound,
}

/// An unguessable id: `prefix` and `N` random bytes in hex.
pub fn fresh_id<const N: usize>(prefix: &str) -> String {
    format!("{prefix}{}", clock::random_hex::<N>())
}

enum AcceptOutcome {
    New(Box<PendingMessage>, RunRow),
    Known(RunRow),
    KeyReused,
    TargetNotFound,
}

impl Handle {
    /// Accepts a run and returns after the commit. From then on the run reaches a final state without the client.
    pub async fn start_run(&self, request: RunRequest) -> Result<StartedRun, StartRunError> {
        if self.0.handles.lifecycle.shutdown.stopping() {
            return Err(Error::Stopping.into());
        }
        if let Some(known) = self.find_repeated(&request).await? {
            return Ok(StartedRun { run: known, duplicate: true });
        }
        self.check_accepting()?;
        let limiter = &self.0.handles.runs;
        let cap = limiter.limits().max_concurrent;
        let permit = limiter.acquire(&request.owner).await.ok_or(StartRunError::Full { cap })?;
        // The gate may have closed while the request was queued.
        self.check_accepting()?;
        let ingest = self.0.ingest.clone();
        let handle = self.clone();
        // Not cancelled with the caller: a committed run is always dispatched.
        tasks::uncancelled(async move { handle.accept(&ingest, request, permit).await }).await?
    }

    async fn accept(
        &self,
        ingest: &Arc<Ingest>,
        request: RunRequest,
        permit: RunPermit,
    ) -> Result<StartedRun, StartRunError> {
        let limiter = &self.0.handles.runs;
        let run = request.run.clone();
        limiter.track(&run, permit);
        let handles = self.0.handles.clone();
        let rules = ingest.rules.clone();
        let repeated = planted(PlantedBug::RepeatsRuns)
            .then(|| (request.owner.clone(), request.idempotency_key.clone(), run.clone()));
        let accepted = self.0.handles.db.write(Commit::Run, move |tx| {
            let hint = &handles.channels.capabilities(Platform::API_SERVER).hint;
            let RunRequest { run, owner, .. } = &request;
            let sees_all = request.sees_all;
            let context = RunContext {
                settings: &handles.settings,
                keys: &rules.keys,
                hint,
                owner,
                sees_all,
                run: Some(run),
            };
            commit_run(tx, &context, &request, clock::now())
        });
        match accepted.await {
            Ok(AcceptOutcome::New(pending, row)) => {
                if let Some((owner, Some(IdempotencyKey { name, fingerprint }), run)) = repeated {
                    let late = move |tx: &Tx<'_>| {
                        tx.put_idempotency_key(&owner, &name, &fingerprint, &run, clock::now())
                    };
                    self.0.handles.db.write(Commit::Run, late).await?;
                }
                ingest.router.deliver(pending.key.clone(), *pending).await;
                Ok(StartedRun { run: row, duplicate: false })
            }
            other => {
                limiter.mark_ended(&run);
                match other? {
                    AcceptOutcome::Known(run) => Ok(StartedRun { run, duplicate: true }),
                    AcceptOutcome::KeyReused => Err(StartRunError::KeyReused),
                    AcceptOutcome::TargetNotFound | AcceptOutcome::New(..) => {
                        Err(StartRunError::TargetNotFound)
                    }
                }
            }
        }
    }

    async fn find_repeated(&self, request: &RunRequest) -> Result<Option<RunRow>, StartRunError> {
        let Some(IdempotencyKey { name, fingerprint }) = request.idempotency_key.clone() else {
            return Ok(None);
        };
        let owner = request.owner.clone();
        let known = self.0.handles.db.read(move |reader| {
            Ok(match reader.find_idempotency_key(&owner, &name, &fingerprint, clock::now())? {
                Some(IdempotencyMatch::Same(run)) => Some(reader.run(&run)?),
                Some(IdempotencyMatch::Different) => None,
                None => Some(None),
            })
        });
        known.await?.ok_or(StartRunError::KeyReused)
    }

    fn check_accepting(&self) -> Result<(), Error> {
        match self.0.handles.lifecycle.gate.state() {
            GateState::Open => Ok(()),
            GateState::Draining => Err(Error::Closed(NotAccepting::Draining)),
            GateState::ShuttingDown { restart } => Err(Error::Closed(NotAccepting::ShuttingDown { restart })),
        }
    }

    pub async fn run(&self, id: &RunId) -> Result<Option<RunRow>, Error> {
        let id = id.clone();
        let mut run = self.0.handles.db.read(move |reader| reader.run(&id)).await?;
        if let Some(run) = &mut run {
            self.embed_pictures(run).await;
        }
        Ok(run)
    }

    /// Embeds the pictures that the answer names, since the client cannot read local files.
    async fn embed_pictures(&self, run: &mut RunRow) {
        let Some(RunEnd { outcome: MessageOutcome::Answered, answer: Some(answer), .. }) = &mut run.end
        else {
            return;
        };
        let handles = &self.0.handles;
        let policy =
            handles.settings.attachments.with_folders(downloads::session_folders(&handles.home, &run.key));
        let to = handles.channels.capabilities(Platform::API_SERVER);
        if let Some(shown) = policy.inline(answer, &to).await {
            *answer = shown;
        }
    }

    /// A consistent snapshot of a run, its rows after `after`, and its approvals.
    pub async fn run_rows(
        &self,
        id: &RunId,
        after: RowId,
        limit: usize,
    ) -> Result<Option<(RunRow, Vec<TranscriptRow>, Vec<RunApproval>)>, Error> {
        let id = id.clone();
        let read = self.0.handles.db.read(move |reader| {
            let Some(run) = reader.run(&id)? else { return Ok(None) };
            let Some(begin) = run.after_row else { return Ok(Some((run, vec![], vec![]))) };
            let mut rows = reader.rows_after(&run.session, after.max(begin), limit)?;
            rows.retain(|row| run.last_row.is_none_or(|last| row.id <= last));
            let noticed = rows.iter().any(|row| row.message.role == Role::Notice);
            let request = if noticed { approval::approvals_of(reader, &run)? } else { vec![] };
            Ok(Some((run, rows, request)))
        });
        let mut read = read.await?;
        if let Some((run, ..)) = &mut read {
            self.embed_pictures(run).await;
        }
        Ok(read)
    }

    /// Waits for the end of a run. `None`: no such run.
    pub async fn run_ended(&self, id: &RunId) -> Result<Option<RunRow>, Error> {
        let (mut completion, known) = self.0.handles.runs.watch(id);
        if known {
            completion.wait(POLL_INTERVAL).await;
        }
        loop {
            match self.run(id).await? {
                Some(run) if run.end.is_none() => completion.wait(POLL_INTERVAL).await,
                other => return Ok(other),
            }
        }
    }

    /// Stops a running or queued run. `false`: it had ended.
    pub async fn stop_run(&self, run: &RunRow) -> Result<bool, Error> {
        if run.end.is_some() {
            return Ok(false);
        }
        self.0.handles.runs.mark_stopping(&run.id);
        let router = self.0.handles.router.clone();
        let key = run.key.clone();
        let inbox = run.inbox;
        tasks::uncancelled(async move { router.cancel(key, inbox).await }).await
    }

    /// A stop was requested and the run has not ended.
    pub fn is_stopping(&self, run: &RunId) -> bool {
        self.0.handles.runs.is_stopping(run)
    }

    /// Hides a run. `false`: no such run.
    pub async fn hide_run(&self, id: &RunId) -> Result<bool, Error> {
        let id = id.clone();
        self.0.handles.db.write(Commit::Run, move |tx| tx.hide_run(&id)).await
    }

    pub fn active_runs(&self) -> (usize, RunLimits) {
        (self.0.handles.runs.active(), self.0.handles.runs.limits())
    }
}

/// Commits run, message, target and idempotency key in one transaction.
fn commit_run(
    tx: &Tx<'_>,
    context: &RunContext<'_>,
    request: &RunRequest,
    now: Millis,
) -> Result<AcceptOutcome, petasos_store::Error> {
    if let Some(IdempotencyKey { name, fingerprint }) = &request.idempotency_key {
        match tx.find_idempotency_key(&request.owner, name, fingerprint, now)? {
            Some(IdempotencyMatch::Same(run)) => {
                if let Some(run) = tx.run(&run)? {
                    return Ok(AcceptOutcome::Known(run));
                }
            }
            Some(IdempotencyMatch::Different) => return Ok(AcceptOutcome::KeyReused),
            None => {}
        }
    }
    let mut options = request.options.clone();
    let Some(ResolvedTarget { source, key, session }) =
        target::resolve_target(tx, context, &request.target, &mut options, now)?
    else {
        return Ok(AcceptOutcome::TargetNotFound);
    };
    let inbound = source.inbound(request.text.clone(), request.attachments.clone());
    let inbox = tx.accept(&inbound, &key, now)?.id();
    let options =
        serde_json::to_string(&options).map_err(|_| petasos_store::Error::Unreadable("options of a run"))?;
    let new = NewRun {
        id: &request.run,
        inbox,
        owner: &request.owner,
        session: &session,
        key: &key,
        options: &options,
    };
    tx.begin_run(&new, now)?;
    if request.options.forget {
        tx.hide_run(&request.run)?;
    }
    let once = request.idempotency_key.as_ref().filter(|_| !planted(PlantedBug::RepeatsRuns));
    if let Some(IdempotencyKey { name, fingerprint }) = once {
        tx.put_idempotency_key(&request.owner, name, fingerprint, &request.run, now)?;
    }
    let Some(row) = tx.run(&request.run)? else { return Ok(AcceptOutcome::TargetNotFound) };
    let pending = PendingMessage { id: inbox, key, inbound, received_at: now };
    Ok(AcceptOutcome::New(Box::new(pending), row))
}
