//! The one way in for everything outside the gateway: web, terminal, companion commands.
//!
//! Cheap to clone, holds no state of its own. What it changes, it changes by asking the owner.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::command::{self, Parsed};
use petasos_core::ids::{OutboxId, RowId, SessionId, SessionKey};
use petasos_core::lifecycle::marker::Marker;
use petasos_core::lifecycle::{From, How, Leave, State};
use petasos_core::link::Standing;
use petasos_core::outbox::{self, Item};
use petasos_core::pairing::{Approval, Book};
use petasos_core::rate_limit::Penalty;
use petasos_core::{Inbound, InboxId, Millis, Platform, Source};
use petasos_store::{Reader, Said, SessionRow};
use serde::Serialize;
use tokio::sync::watch;

use crate::api::status::{self, Counts, LinkStatus, Model, OutboxCounts, Salvaged, ServerStatus, Status};
use crate::background::completions;
use crate::home::drain;
use crate::inbound::ingest::Ingest;
use crate::lifecycle::gate::{Gate, Situation};
use crate::links::supervisor::LinkHandle;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::sessions::Handles;
use crate::sessions::view::View;
use crate::storage::retention;
use crate::{Error, clock};

#[derive(Debug, Clone)]
pub struct Handle(pub(crate) Arc<Inner>);

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) handles: Arc<Handles>,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) links: Vec<LinkHandle>,
}

/// The way out, and nothing else.
#[derive(Debug, Clone)]
pub struct Leaver(Gate);

impl Leaver {
    pub fn leave(&self, why: Leave, reason: Option<String>) {
        self.0.leave(why, reason);
    }

    pub fn hurry(&self) {
        self.0.hurry();
    }

    /// Resolves when everything is in place; `false`: we leave instead.
    pub async fn started(&self) -> bool {
        self.0.started().await
    }
}

/// A message that is on disk.
#[derive(Debug, Clone, Serialize)]
pub struct Submitted {
    pub inbox: InboxId,
    pub key: SessionKey,
    /// The same message had been accepted before; nothing new was started.
    pub duplicate: bool,
}

/// How long a login link may wait to be used, and a login to be seen again.
/// Ended background work that is listed.
const UNTOLD: u32 = 50;
const LINK_LIFE: Duration = Duration::from_secs(24 * 3600);
const LOGIN_LIFE: Duration = Duration::from_secs(30 * 24 * 3600);

impl Handle {
    /// Accepts a message from a channel that has checked its author. Returns after the commit. While no turn may
    /// start, only commands and what can wait behind a running turn are taken.
    pub async fn submit(&self, inbound: Inbound) -> Result<Submitted, Error> {
        if self.0.handles.lifecycle.stopper.stopping() {
            return Err(Error::Stopping);
        }
        if !inbound.internal && command::parse(&inbound.text) == Parsed::Text {
            self.0.handles.lifecycle.gate.hears(&self.key_of(&inbound.source)).map_err(Error::Closed)?;
        }
        self.0.ingest.submit(inbound).await
    }

    /// What the gateway does about its own life, and who is at work.
    pub fn situation(&self) -> Situation {
        self.0.handles.lifecycle.gate.situation()
    }

    /// Moves whenever the situation does.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.handles.lifecycle.gate.watch()
    }

    pub fn home(&self) -> &Path {
        &self.0.handles.home
    }

    pub fn drain_timeout(&self) -> Duration {
        self.0.handles.lifecycle.lifetime.drain_timeout
    }

    /// Asks for a drain, by the marker that anybody could write; the gateway follows within moments.
    pub async fn drain(&self, ask: drain::Ask) -> Result<Marker, Error> {
        let home = self.0.handles.home.clone();
        on_disk(move || drain::write(&home, &ask, clock::now())).await
    }

    /// Takes a drain back. `false`: none was asked for.
    pub async fn cancel_drain(&self) -> Result<bool, Error> {
        let home = self.0.handles.home.clone();
        on_disk(move || drain::clear(&home)).await
    }

    /// Does not wait for this session any more. `false`: it is not at work.
    pub fn skip(&self, key: &SessionKey) -> bool {
        self.0.handles.lifecycle.gate.skip(key)
    }

    /// Waits longer for this session; gives until when. `None`: it is not at work.
    pub fn extend(&self, key: &SessionKey, by: Duration) -> Option<Millis> {
        self.0.handles.lifecycle.gate.extend(key, by)
    }

    pub fn key_of(&self, source: &Source) -> SessionKey {
        self.0.ingest.key_of(source)
    }

    /// What can be seen of a conversation, always current.
    pub async fn view(&self, key: &SessionKey) -> Result<watch::Receiver<View>, Error> {
        let mut view = self.0.handles.router.view(key.clone()).await.ok_or(Error::Stopping)?;
        view.wait_for(|view| view.ready).await.map_err(|_ended| Error::Stopping)?;
        Ok(view)
    }

    /// Ends the running turn. `false`: there was none.
    pub async fn stop_turn(&self, key: &SessionKey) -> Result<bool, Error> {
        let (router, key) = (self.0.handles.router.clone(), key.clone());
        tasks::uncancelled(async move { router.stop_turn(key).await }).await
    }

    /// Newest first.
    pub async fn sessions(&self, limit: usize) -> Result<Vec<SessionRow>, Error> {
        self.0.handles.db.read(move |reader| reader.sessions(None, limit)).await
    }

    pub async fn session(&self, id: &SessionId) -> Result<Option<SessionRow>, Error> {
        let id = id.clone();
        self.0.handles.db.read(move |reader| reader.session(&id)).await
    }

    /// Rows of a transcript, notices included.
    pub async fn rows(&self, session: &SessionId, after: RowId, limit: usize) -> Result<Vec<Said>, Error> {
        let session = session.clone();
        self.0.handles.db.read(move |reader| reader.rows_after(&session, after, limit)).await
    }

    pub async fn outbox(&self, state: outbox::State, limit: usize) -> Result<Vec<Item>, Error> {
        self.0.handles.db.read(move |reader| reader.items_in(state, limit)).await
    }

    /// Owes a given-up message again.
    pub async fn outbox_retry(&self, id: OutboxId) -> Result<bool, Error> {
        let handles = self.0.handles.clone();
        let retry = async move {
            let lane = handles.db.write(Commit::Operator, move |tx| {
                let lane = tx.item(id)?.map(|item| item.draft.route.lane());
                Ok(if tx.retry_item(id, clock::now())? { lane } else { None })
            });
            let Some(lane) = lane.await? else { return Ok(false) };
            handles.delivery.deliver.due(lane).await;
            Ok(true)
        };
        tasks::uncancelled(retry).await?
    }

    pub async fn outbox_drop(&self, id: OutboxId) -> Result<bool, Error> {
        self.0.handles.db.write(Commit::Operator, move |tx| tx.drop_item(id)).await
    }

    pub async fn pairing(&self) -> Result<Vec<(Platform, Book)>, Error> {
        self.0.handles.db.read(|reader| reader.pairing_books()).await
    }

    /// `None`: what was typed cannot be a code.
    pub async fn pairing_approve(&self, platform: Platform, code: &str) -> Result<Option<Approval>, Error> {
        let (code, now) = (code.to_owned(), clock::now());
        self.0.handles.db.write(Commit::Operator, move |tx| tx.pairing_approve(platform, &code, now)).await
    }

    pub async fn pairing_revoke(&self, platform: Platform, user: &str) -> Result<bool, Error> {
        let user = user.to_owned();
        self.0.handles.db.write(Commit::Operator, move |tx| tx.pairing_revoke(platform, &user)).await
    }

    /// Opens pairing again after too many wrong codes. `false`: it was not closed.
    pub async fn pairing_unlock(&self, platform: Platform) -> Result<bool, Error> {
        self.0.handles.db.write(Commit::Operator, move |tx| tx.pairing_unlock(platform)).await
    }

    /// A kind of command, or every kind, is asked about again. Gives how many approvals that were.
    pub async fn approvals_revoke(&self, kind: Option<String>) -> Result<usize, Error> {
        self.0.handles.db.write(Commit::Operator, move |tx| tx.forget_approved(kind.as_deref())).await
    }

    /// A token that lets one browser in, once.
    pub async fn login_link_token(&self) -> Result<String, Error> {
        let now = clock::now();
        let token =
            self.0.handles.db.write(Commit::Operator, move |tx| tx.create_login_link(LINK_LIFE, now)).await?;
        Ok(token.as_str().to_owned())
    }

    /// Trades a link's token for a cookie. `None`: used up, expired or unknown.
    pub async fn redeem(&self, token: &str) -> Result<Option<String>, Error> {
        let (token, now) = (token.to_owned(), clock::now());
        self.0
            .handles
            .db
            .write(Commit::Operator, move |tx| {
                if !tx.redeem_login_link(&token, now)? {
                    return Ok(None);
                }
                Ok(Some(tx.create_login("browser", LOGIN_LIFE, now)?.as_str().to_owned()))
            })
            .await
    }

    pub async fn cookie_ok(&self, cookie: &str) -> Result<bool, Error> {
        let (cookie, now) = (cookie.to_owned(), clock::now());
        self.0.handles.db.read(move |reader| Ok(reader.check_login(&cookie, now)?.is_some())).await
    }

    pub async fn logout(&self, cookie: &str) -> Result<bool, Error> {
        let cookie = cookie.to_owned();
        self.0.handles.db.write(Commit::Operator, move |tx| tx.revoke_login(&cookie)).await
    }

    /// How the links are, without a look at the store.
    #[cfg(feature = "simulation")]
    pub fn link_states(&self) -> Vec<LinkStatus> {
        self.0.links.iter().map(|it| LinkStatus { name: it.name, link: it.link.borrow().clone() }).collect()
    }

    /// Tries a link now, whatever it waits for.
    pub async fn link_retry(&self, name: &str) -> Result<(), Error> {
        let link = self.0.links.iter().find(|link| link.name == name).ok_or(Error::NotFound("link"))?;
        link.retry().await
    }

    /// Disconnects a link until it is tried again.
    pub async fn link_pause(&self, name: &str) -> Result<(), Error> {
        let link = self.0.links.iter().find(|link| link.name == name).ok_or(Error::NotFound("link"))?;
        link.pause().await
    }

    /// Begins to leave. The process ends when `Running::wait` returns. Gives what we leave for: somebody may have
    /// asked for something stronger before.
    pub fn leave(&self, why: Leave, reason: Option<String>) -> Leave {
        self.0.handles.lifecycle.gate.leave(why, reason).unwrap_or(why)
    }

    /// Leaves in a way that brings us back.
    pub fn restart(&self, from: From) -> Leave {
        let how = if self.0.handles.lifecycle.lifetime.supervised { How::Service } else { How::Detached };
        self.leave(Leave::Restart { how, from }, None)
    }

    /// Running turns are not waited for any longer.
    pub fn hurry(&self) {
        self.0.handles.lifecycle.gate.hurry();
    }

    /// For whoever may only end the gateway: it keeps nothing of it open.
    pub fn leaver(&self) -> Leaver {
        Leaver(self.0.handles.lifecycle.gate.clone())
    }

    /// Resolves when we begin to leave.
    pub async fn leaving(&self) {
        self.0.handles.lifecycle.gate.leaving().await;
    }

    /// Resolves when the ways in are to be closed: we leave, and the turns have had their time.
    pub async fn stopped(&self) {
        self.0.handles.lifecycle.stopper.stopped().await;
    }

    fn rate_limits(&self) -> Vec<Penalty> {
        let mut all: Vec<_> =
            self.0.handles.channels.adapters().flat_map(|adapter| adapter.limits().all()).collect();
        all.sort_by(|a, b| (a.platform, &a.scope).cmp(&(b.platform, &b.scope)));
        all
    }

    pub async fn status(&self) -> Result<Status, Error> {
        let links: Vec<_> = self
            .0
            .links
            .iter()
            .map(|it| LinkStatus { name: it.name, link: it.link.borrow().clone() })
            .collect();
        let deaf = links.iter().any(|it| it.link.standing() == Standing::Down);
        let counted = |reader: &Reader| {
            let unsaid = (reader.outbox_counts()?, reader.dead_chats()?, reader.untold_completions(UNTOLD)?);
            Ok((reader.backlog()?, reader.unreadable_count()?, unsaid, reader.last_salvage()?))
        };
        let read = self.0.handles.db.read(counted).await;
        let trouble = self.0.handles.db.trouble();
        let (backlog, unreadable, (owed, dead_chats, untold), salvage) = match read {
            Ok(read) => read,
            // The trouble is what must be seen; nothing can be counted.
            Err(_) if trouble.is_some() => Default::default(),
            Err(error) => return Err(error),
        };
        let situation = self.situation();
        let state = match situation.state {
            State::Running if deaf || trouble.is_some() => State::Degraded,
            state => state,
        };
        let (handles, now) = (&self.0.handles, clock::now());
        let storage =
            retention::storage(&handles.db, &handles.home, &handles.settings.retention, now).await?;
        let untold = untold.into_iter().map(|it| completions::untold(&links, it)).collect();
        let brain = &self.0.handles.agent.brain;
        let model = brain.describe();
        let home = &self.0.handles.home;
        Ok(Status {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            home: home.display().to_string(),
            disk_used_percent: status::disk_used_percent(home),
            config_changed: status::config_changed(home, self.0.handles.lifecycle.started_at),
            started_at: self.0.handles.lifecycle.started_at,
            state,
            lifecycle: situation,
            drain_timeout: self.0.handles.lifecycle.lifetime.drain_timeout,
            model: Model {
                provider: model.provider.as_str(),
                demo: model.is_demo(),
                failing: brain.is_failing(),
                name: model.model,
            },
            links,
            sessions: self.0.handles.router.count().await,
            inbox: Counts { queued: backlog.queued, running: backlog.claimed },
            outbox: OutboxCounts { due: owed.due + owed.sending, dead: owed.dead },
            unreadable,
            dead_chats,
            rate_limits: self.rate_limits(),
            mcp: self.0.handles.agent.tools.servers().states().into_iter().map(ServerStatus::of).collect(),
            untold,
            storage,
            store_trouble: trouble,
            store_recoveries: self.0.handles.db.upkeep().borrow().recoveries,
            salvage: salvage.map(|last| Salvaged {
                at: last.at,
                summary: last.summary(),
                report: last.report,
            }),
        })
    }
}

/// A change of a small file, away from the event loop.
async fn on_disk<T: Send + 'static>(
    job: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let done = petasos_runtime::blocking(job).await;
    done.map_err(|_panicked| Error::Io("writing a file panicked".into()))?
        .map_err(|error| Error::Io(error.to_string()))
}
