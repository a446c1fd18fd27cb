//! Runs: what programs ask for over HTTP. They enter where every message does and their turns are everybody's turns;
//! here they only get their name, their place and their seat.
//!
//! Owns the seats (`limiter.rs`). A run is on disk, with its message, before anybody hears of it; who asked for it may
//! leave and come back, before or after a restart. `bound.rs` is the only way in, `place.rs` finds the transcript.

mod approval;
mod bound;
mod limiter;
mod place;
mod sessions;

use std::time::Duration;

use petasos_core::ids::RowId;
use petasos_core::journal::Outcome;
use petasos_core::lifecycle::{Closed, Door};
use petasos_core::message::Attachment;
use petasos_core::transcript::{Message, Role};
use petasos_core::{Millis, Platform};
use petasos_store::{NewRun, Pending, Repeat, RunEnd, RunRow, Said, Tx};
use serde::{Deserialize, Serialize};

pub use approval::Approval;
pub use limiter::RunLimits;
pub(crate) use limiter::{Desk, Seat};
pub use place::Place;
pub use sessions::{NewSession, NotChanged};

use crate::inbound::downloads;
use crate::inbound::ingest::Ingest;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::runtime::tasks;
use crate::{Error, Handle, clock};
use place::{Placed, Terms};
use std::sync::Arc;

/// Somebody who waits looks into the store this often, whatever they were told or not.
const LOOK: Duration = Duration::from_secs(5);

/// One thing said before, as a client tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    pub role: Role,
    pub text: String,
}

/// What is asked for besides the message itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Wish {
    /// The model as the client named it; shown to it again.
    pub shown_model: String,
    /// Another model of the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Told to the model with this run, never stored in the transcript.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// Said before the message, and not in the transcript yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Told>,
    /// Whoever asked answers questions about commands while it runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answers: bool,
    /// Nobody wants to see it again afterwards.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forget: bool,
}

impl Wish {
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Rows that come before the message.
    pub(crate) fn rows(&self, now: Millis) -> impl Iterator<Item = Message> {
        self.history.iter().map(move |told| match told.role {
            Role::Assistant => Message::assistant(&told.text, now),
            Role::User | Role::Tool | Role::Notice | Role::Summary => Message::user(&told.text, now),
        })
    }
}

/// What a client calls its request, and what the request was.
#[derive(Debug, Clone)]
pub struct Once {
    pub name: String,
    pub fingerprint: [u8; 32],
}

#[derive(Debug)]
pub struct RunAsk {
    /// Made with [`fresh_id`].
    pub run: String,
    /// The credential that asks.
    pub owner: String,
    /// That credential may look at everybody's conversations, so it may go on with them, too.
    pub sees_all: bool,
    pub place: Place,
    pub text: String,
    pub attachments: Vec<Attachment>,
    pub wish: Wish,
    pub once: Option<Once>,
}

/// A run that is on disk.
#[derive(Debug, Clone)]
pub struct Started {
    pub run: RunRow,
    /// The same request had been accepted before; nothing new was started.
    pub duplicate: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    #[error(transparent)]
    Error(#[from] Error),
    /// As many run as may.
    #[error("{cap} runs are at work")]
    Full { cap: usize },
    /// This name was used for another request.
    #[error("this name was used for another request")]
    Reused,
    /// No such transcript, or no such run to go on from.
    #[error("there is nothing to go on from")]
    Nowhere,
}

/// A name that nobody can guess: `prefix` and `N` random bytes.
pub fn fresh_id<const N: usize>(prefix: &str) -> String {
    format!("{prefix}{}", hex::<N>(&clock::random()))
}

pub(crate) fn hex<const N: usize>(bytes: &[u8; N]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

enum Accepted {
    New(Box<Pending>, RunRow),
    Known(RunRow),
    Reused,
    Nowhere,
}

impl Handle {
    /// Accepts a run. Returns after the commit; from then on it ends in one of its final states, whoever waits.
    pub async fn start_run(&self, asked: RunAsk) -> Result<Started, NotStarted> {
        if self.0.handles.lifecycle.stopper.stopping() {
            return Err(Error::Stopping.into());
        }
        if let Some(known) = self.repeated(&asked).await? {
            return Ok(Started { run: known, duplicate: true });
        }
        self.door_is_open()?;
        let desk = &self.0.handles.runs;
        let cap = desk.limits().at_once;
        let seat = desk.seat(&asked.owner).await.ok_or(NotStarted::Full { cap })?;
        // It may have closed while we stood in line.
        self.door_is_open()?;
        let ingest = self.0.ingest.clone();
        let handle = self.clone();
        // Whoever asked may go away meanwhile: what is on disk is handed on all the same.
        tasks::uncancelled(async move { handle.accept(&ingest, asked, seat).await }).await?
    }

    async fn accept(&self, ingest: &Arc<Ingest>, asked: RunAsk, seat: Seat) -> Result<Started, NotStarted> {
        let desk = &self.0.handles.runs;
        let run = asked.run.clone();
        desk.open(&run, seat);
        let (handles, rules) = (self.0.handles.clone(), ingest.rules.clone());
        let again =
            planted(Planted::RepeatsRuns).then(|| (asked.owner.clone(), asked.once.clone(), run.clone()));
        let accepted = self.0.handles.db.write(Commit::Run, move |tx| {
            let hint = &handles.channels.capabilities(Platform::API_SERVER).hint;
            let RunAsk { run, owner, .. } = &asked;
            let sees_all = asked.sees_all;
            let terms = Terms { settings: &handles.settings, keys: &rules.keys, hint, owner, sees_all, run };
            commit(tx, &terms, &asked, clock::now())
        });
        match accepted.await {
            Ok(Accepted::New(pending, row)) => {
                if let Some((owner, Some(Once { name, fingerprint }), run)) = again {
                    let late =
                        move |tx: &Tx<'_>| tx.put_repeat(&owner, &name, &fingerprint, &run, clock::now());
                    self.0.handles.db.write(Commit::Run, late).await?;
                }
                ingest.router.arrived(pending.key.clone(), *pending).await;
                Ok(Started { run: row, duplicate: false })
            }
            other => {
                desk.ended(&run);
                match other? {
                    Accepted::Known(run) => Ok(Started { run, duplicate: true }),
                    Accepted::Reused => Err(NotStarted::Reused),
                    Accepted::Nowhere | Accepted::New(..) => Err(NotStarted::Nowhere),
                }
            }
        }
    }

    async fn repeated(&self, asked: &RunAsk) -> Result<Option<RunRow>, NotStarted> {
        let Some(Once { name, fingerprint }) = asked.once.clone() else { return Ok(None) };
        let owner = asked.owner.clone();
        let known = self.0.handles.db.read(move |reader| {
            Ok(match reader.repeat(&owner, &name, &fingerprint, clock::now())? {
                Some(Repeat::Same(run)) => Some(reader.run(&run)?),
                Some(Repeat::Other) => None,
                None => Some(None),
            })
        });
        known.await?.ok_or(NotStarted::Reused)
    }

    fn door_is_open(&self) -> Result<(), Error> {
        match self.0.handles.lifecycle.gate.door() {
            Door::Open => Ok(()),
            Door::Draining => Err(Error::Closed(Closed::Draining)),
            Door::Leaving { restart } => Err(Error::Closed(Closed::Leaving { restart })),
        }
    }

    pub async fn run(&self, id: &str) -> Result<Option<RunRow>, Error> {
        let id = id.to_owned();
        let mut run = self.0.handles.db.read(move |reader| reader.run(&id)).await?;
        if let Some(run) = &mut run {
            self.show_pictures(run).await;
        }
        Ok(run)
    }

    /// Whoever reads the answer cannot reach our files: pictures that it names are put into it.
    async fn show_pictures(&self, run: &mut RunRow) {
        let Some(RunEnd { outcome: Outcome::Answered, said: Some(said), .. }) = &mut run.end else { return };
        let handles = &self.0.handles;
        let policy = handles.settings.outward_files.with(downloads::folders(&handles.home, &run.key));
        let to = handles.channels.capabilities(Platform::API_SERVER);
        if let Some(shown) = policy.inline(said, &to).await {
            *said = shown;
        }
    }

    /// A run, the rows of its transcript after one of them, and what it asked, as they are at one moment.
    pub async fn run_rows(
        &self,
        id: &str,
        after: RowId,
        limit: usize,
    ) -> Result<Option<(RunRow, Vec<Said>, Vec<Approval>)>, Error> {
        let id = id.to_owned();
        let read = self.0.handles.db.read(move |reader| {
            let Some(run) = reader.run(&id)? else { return Ok(None) };
            let Some(begin) = run.after_row else { return Ok(Some((run, vec![], vec![]))) };
            let mut rows = reader.rows_after(&run.session, after.max(begin), limit)?;
            rows.retain(|row| run.last_row.is_none_or(|last| row.id <= last));
            let noticed = rows.iter().any(|row| row.message.role == Role::Notice);
            let asked = if noticed { approval::of(reader, &run)? } else { vec![] };
            Ok(Some((run, rows, asked)))
        });
        let mut read = read.await?;
        if let Some((run, ..)) = &mut read {
            self.show_pictures(run).await;
        }
        Ok(read)
    }

    /// Waits for the end of a run. `None`: there is no such run.
    pub async fn run_ended(&self, id: &str) -> Result<Option<RunRow>, Error> {
        let (mut ending, known) = self.0.handles.runs.watch(id);
        if known {
            ending.came(LOOK).await;
        }
        loop {
            match self.run(id).await? {
                Some(run) if run.end.is_none() => ending.came(LOOK).await,
                other => return Ok(other),
            }
        }
    }

    /// Ends a run, whether it works or waits. `false`: it was over.
    pub async fn stop_run(&self, run: &RunRow) -> Result<bool, Error> {
        if run.end.is_some() {
            return Ok(false);
        }
        self.0.handles.runs.stopping(&run.id);
        let (router, key, inbox) = (self.0.handles.router.clone(), run.key.clone(), run.inbox);
        tasks::uncancelled(async move { router.cancel(key, inbox).await }).await
    }

    /// It was asked to stop and has not ended yet.
    pub fn is_stopping(&self, run: &str) -> bool {
        self.0.handles.runs.is_stopping(run)
    }

    /// Its owner does not want to see it any more. `false`: there is no such run.
    pub async fn hide_run(&self, id: &str) -> Result<bool, Error> {
        let id = id.to_owned();
        self.0.handles.db.write(Commit::Run, move |tx| tx.hide_run(&id)).await
    }

    /// Runs at work in this process, and how many there may be.
    pub fn runs_at_work(&self) -> (usize, RunLimits) {
        (self.0.handles.runs.seated(), self.0.handles.runs.limits())
    }
}

/// The run, its message, its place and its name: one transaction.
fn commit(
    tx: &Tx<'_>,
    terms: &Terms<'_>,
    asked: &RunAsk,
    now: Millis,
) -> Result<Accepted, petasos_store::Error> {
    if let Some(Once { name, fingerprint }) = &asked.once {
        match tx.repeat(&asked.owner, name, fingerprint, now)? {
            Some(Repeat::Same(run)) => {
                if let Some(run) = tx.run(&run)? {
                    return Ok(Accepted::Known(run));
                }
            }
            Some(Repeat::Other) => return Ok(Accepted::Reused),
            None => {}
        }
    }
    let mut wish = asked.wish.clone();
    let Some(Placed { bound, key, session }) = place::place(tx, terms, &asked.place, &mut wish, now)? else {
        return Ok(Accepted::Nowhere);
    };
    let inbound = bound.inbound(asked.text.clone(), asked.attachments.clone());
    let inbox = tx.accept(&inbound, &key, now)?.id();
    let wish = serde_json::to_string(&wish).map_err(|_| petasos_store::Error::Unreadable("wish of a run"))?;
    let new =
        NewRun { id: &asked.run, inbox, owner: &asked.owner, session: &session, key: &key, wish: &wish };
    tx.begin_run(&new, now)?;
    if asked.wish.forget {
        tx.hide_run(&asked.run)?;
    }
    if let Some(Once { name, fingerprint }) = asked.once.as_ref().filter(|_| !planted(Planted::RepeatsRuns)) {
        tx.put_repeat(&asked.owner, name, fingerprint, &asked.run, now)?;
    }
    let Some(row) = tx.run(&asked.run)? else { return Ok(Accepted::Nowhere) };
    let pending = Pending { id: inbox, key, inbound, received_at: now };
    Ok(Accepted::New(Box::new(pending), row))
}
