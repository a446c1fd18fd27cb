//! The handle through which the web server, the terminal and companion commands use the gateway.
//!
//! Stateless and cheap to clone: every change goes through the task or table that owns the state.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::command::{self, Parsed};
use petasos_core::ids::{OutboxId, RowId, SessionId, SessionKey};
use petasos_core::lifecycle::marker::Marker;
use petasos_core::lifecycle::{RestartMethod, RestartOrigin, ShutdownReason, State};
use petasos_core::link::Availability;
use petasos_core::outbox::{self, Item};
use petasos_core::pairing::{CodeApproval, PairingState};
use petasos_core::rate_limit::Penalty;
use petasos_core::{Inbound, InboxId, Millis, Platform, Source};
use petasos_store::{Reader, SessionRow, TranscriptRow};
use serde::Serialize;
use tokio::sync::watch;

use crate::api::status::{
    self, GatewayStatus, InboxCounts, LinkStatus, McpServerStatus, ModelStatus, OutboxCounts, Salvaged,
};
use crate::background::completions;
use crate::home::drain;
use crate::inbound::ingest::Ingest;
use crate::lifecycle::gate::{AcceptGate, LifecycleSnapshot};
use crate::links::supervisor::LinkHandle;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::sessions::Handles;
use crate::sessions::view::SessionView;
use crate::storage::retention;
use crate::{Error, clock};

#[derive(Debug, Clone)]
pub struct Handle(pub(crate) Arc<HandleInner>);

#[derive(Debug)]
pub(crate) struct HandleInner {
    pub(crate) handles: Arc<Handles>,
    pub(crate) ingest: Arc<Ingest>,
    pub(crate) links: Vec<LinkHandle>,
}

/// Can start the shutdown without keeping the gateway's resources alive.
#[derive(Debug, Clone)]
pub struct ShutdownTrigger(AcceptGate);

impl ShutdownTrigger {
    pub fn shut_down(&self, why: ShutdownReason, reason: Option<String>) {
        self.0.shut_down(why, reason);
    }

    pub fn skip_drain(&self) {
        self.0.skip_all();
    }

    /// Resolves after startup; `false`: shutdown began first.
    pub async fn started(&self) -> bool {
        self.0.started().await
    }
}

#[derive(Debug, Clone, Serialize)]
pub struct Submitted {
    pub inbox: InboxId,
    pub key: SessionKey,
    /// The message had been accepted before; nothing new was started.
    pub duplicate: bool,
}

const MAX_UNDELIVERED: u32 = 50;
const LOGIN_LINK_LIFETIME: Duration = Duration::from_secs(24 * 3600);
const LOGIN_LIFETIME: Duration = Duration::from_secs(30 * 24 * 3600);

impl Handle {
    /// Accepts a message from a channel that has authenticated its author; returns after the commit. While no turn may start, accepts
    /// only commands and messages that can wait behind a running turn.
    pub async fn submit(&self, inbound: Inbound) -> Result<Submitted, Error> {
        if self.0.handles.lifecycle.shutdown.stopping() {
            return Err(Error::Stopping);
        }
        if !inbound.internal && command::parse(&inbound.text) == Parsed::Text {
            self.0.handles.lifecycle.gate.accepts(&self.key_of(&inbound.source)).map_err(Error::Closed)?;
        }
        self.0.ingest.submit(inbound).await
    }

    pub fn snapshot(&self) -> LifecycleSnapshot {
        self.0.handles.lifecycle.gate.snapshot()
    }

    /// Changes whenever the lifecycle snapshot changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.0.handles.lifecycle.gate.watch()
    }

    pub fn home(&self) -> &Path {
        &self.0.handles.home
    }

    pub fn drain_timeout(&self) -> Duration {
        self.0.handles.lifecycle.lifetime.drain_timeout
    }

    /// Requests a drain by writing the drain marker; the gateway follows within moments.
    pub async fn drain(&self, ask: drain::DrainRequest) -> Result<Marker, Error> {
        let home = self.0.handles.home.clone();
        run_blocking(move || drain::write(&home, &ask, clock::now())).await
    }

    /// Cancels a drain. `false`: none was requested.
    pub async fn cancel_drain(&self) -> Result<bool, Error> {
        let home = self.0.handles.home.clone();
        run_blocking(move || drain::clear(&home)).await
    }

    /// Stops waiting for this session. `false`: it has no running turn.
    pub fn skip(&self, key: &SessionKey) -> bool {
        self.0.handles.lifecycle.gate.skip(key)
    }

    /// Extends the deadline of this session and returns it. `None`: it has no running turn.
    pub fn extend(&self, key: &SessionKey, by: Duration) -> Option<Millis> {
        self.0.handles.lifecycle.gate.extend(key, by)
    }

    pub fn key_of(&self, source: &Source) -> SessionKey {
        self.0.ingest.key_of(source)
    }

    pub async fn view(&self, key: &SessionKey) -> Result<watch::Receiver<SessionView>, Error> {
        let mut view = self.0.handles.router.view(key.clone()).await.ok_or(Error::Stopping)?;
        view.wait_for(|view| view.ready).await.map_err(|_ended| Error::Stopping)?;
        Ok(view)
    }

    /// Stops the running turn. `false`: none was running.
    pub async fn stop_turn(&self, key: &SessionKey) -> Result<bool, Error> {
        let router = self.0.handles.router.clone();
        let key = key.clone();
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
    pub async fn rows(
        &self,
        session: &SessionId,
        after: RowId,
        limit: usize,
    ) -> Result<Vec<TranscriptRow>, Error> {
        let session = session.clone();
        self.0.handles.db.read(move |reader| reader.rows_after(&session, after, limit)).await
    }

    pub async fn outbox(&self, state: outbox::State, limit: usize) -> Result<Vec<Item>, Error> {
        self.0.handles.db.read(move |reader| reader.items_in(state, limit)).await
    }

    /// Enqueues a dead-lettered message again.
    pub async fn outbox_retry(&self, id: OutboxId) -> Result<bool, Error> {
        let handles = self.0.handles.clone();
        let retry = async move {
            let lane = handles.db.write(Commit::Operator, move |tx| {
                let lane = tx.item(id)?.map(|item| item.draft.route.lane());
                Ok(if tx.retry_item(id, clock::now())? { lane } else { None })
            });
            let Some(lane) = lane.await? else { return Ok(false) };
            handles.delivery.lanes.wake(lane).await;
            Ok(true)
        };
        tasks::uncancelled(retry).await?
    }

    pub async fn outbox_drop(&self, id: OutboxId) -> Result<bool, Error> {
        self.0.handles.db.write(Commit::Operator, move |tx| tx.drop_item(id)).await
    }

    pub async fn pairing(&self) -> Result<Vec<(Platform, PairingState)>, Error> {
        self.0.handles.db.read(|reader| reader.pairing_states()).await
    }

    /// `None`: not a valid code.
    pub async fn pairing_approve(
        &self,
        platform: Platform,
        code: &str,
    ) -> Result<Option<CodeApproval>, Error> {
        let code = code.to_owned();
        let now = clock::now();
        self.0.handles.db.write(Commit::Operator, move |tx| tx.pairing_approve(platform, &code, now)).await
    }

    pub async fn pairing_revoke(&self, platform: Platform, user: &str) -> Result<bool, Error> {
        let user = user.to_owned();
        self.0.handles.db.write(Commit::Operator, move |tx| tx.pairing_revoke(platform, &user)).await
    }

    /// Unlocks pairing after too many wrong codes. `false`: it was not locked.
    pub async fn pairing_unlock(&self, platform: Platform) -> Result<bool, Error> {
        self.0.handles.db.write(Commit::Operator, move |tx| tx.pairing_unlock(platform)).await
    }

    /// Revokes stored approvals of one category, or all; returns how many.
    pub async fn approvals_revoke(&self, kind: Option<String>) -> Result<usize, Error> {
        self.0.handles.db.write(Commit::Operator, move |tx| tx.forget_approved(kind.as_deref())).await
    }

    pub async fn login_link_token(&self) -> Result<String, Error> {
        let now = clock::now();
        let token = self
            .0
            .handles
            .db
            .write(Commit::Operator, move |tx| tx.create_login_link(LOGIN_LINK_LIFETIME, now))
            .await?;
        Ok(token.as_str().to_owned())
    }

    /// Exchanges a login token for a cookie. `None`: used, expired or unknown.
    pub async fn redeem(&self, token: &str) -> Result<Option<String>, Error> {
        let token = token.to_owned();
        let now = clock::now();
        self.0
            .handles
            .db
            .write(Commit::Operator, move |tx| {
                if !tx.redeem_login_link(&token, now)? {
                    return Ok(None);
                }
                Ok(Some(tx.create_login("browser", LOGIN_LIFETIME, now)?.as_str().to_owned()))
            })
            .await
    }

    pub async fn cookie_ok(&self, cookie: &str) -> Result<bool, Error> {
        let cookie = cookie.to_owned();
        let now = clock::now();
        self.0.handles.db.read(move |reader| reader.is_logged_in(&cookie, now)).await
    }

    pub async fn logout(&self, cookie: &str) -> Result<bool, Error> {
        let cookie = cookie.to_owned();
        self.0.handles.db.write(Commit::Operator, move |tx| tx.revoke_login(&cookie)).await
    }

    /// The state of the links, without reading the store.
    #[cfg(feature = "simulation")]
    pub fn link_states(&self) -> Vec<LinkStatus> {
        self.0.links.iter().map(|it| LinkStatus { name: it.name, link: it.link.borrow().clone() }).collect()
    }

    pub async fn link_retry(&self, name: &str) -> Result<(), Error> {
        let link = self.0.links.iter().find(|link| link.name == name).ok_or(Error::NotFound("platform"))?;
        link.retry().await
    }

    /// Disconnects a link until it is retried.
    pub async fn link_pause(&self, name: &str) -> Result<(), Error> {
        let link = self.0.links.iter().find(|link| link.name == name).ok_or(Error::NotFound("platform"))?;
        link.pause().await
    }

    /// Starts the shutdown; the process ends when `RunningGateway::wait` returns. Returns the reason in effect: a stronger one may
    /// have been requested before.
    pub fn shut_down(&self, why: ShutdownReason, reason: Option<String>) -> ShutdownReason {
        self.0.handles.lifecycle.gate.shut_down(why, reason).unwrap_or(why)
    }

    /// Starts a shutdown that is followed by a restart.
    pub fn restart(&self, from: RestartOrigin) -> ShutdownReason {
        let how = if self.0.handles.lifecycle.lifetime.supervised {
            RestartMethod::Service
        } else {
            RestartMethod::Detached
        };
        self.shut_down(ShutdownReason::Restart { method: how, origin: from }, None)
    }

    /// Ends the drain now.
    pub fn skip_drain(&self) {
        self.0.handles.lifecycle.gate.skip_all();
    }

    pub fn shutdown_trigger(&self) -> ShutdownTrigger {
        ShutdownTrigger(self.0.handles.lifecycle.gate.clone())
    }

    /// Resolves when the shutdown starts.
    pub async fn shutdown_started(&self) {
        self.0.handles.lifecycle.gate.leaving().await;
    }

    /// Resolves when listeners must close: the drain of the shutdown is over.
    pub async fn stopped(&self) {
        self.0.handles.lifecycle.shutdown.stopped().await;
    }

    fn rate_limits(&self) -> Vec<Penalty> {
        let mut all: Vec<_> =
            self.0.handles.channels.adapters().flat_map(|adapter| adapter.limits().all()).collect();
        all.sort_by(|a, b| (a.platform, &a.scope).cmp(&(b.platform, &b.scope)));
        all
    }

    pub async fn status(&self) -> Result<GatewayStatus, Error> {
        let links: Vec<_> = self
            .0
            .links
            .iter()
            .map(|it| LinkStatus { name: it.name, link: it.link.borrow().clone() })
            .collect();
        let link_down = links.iter().any(|it| it.link.availability() == Availability::Down);
        let read_counts = |reader: &Reader| {
            let unsaid = (
                reader.outbox_counts()?,
                reader.dead_chats()?,
                reader.unreported_completions(MAX_UNDELIVERED)?,
            );
            Ok((reader.backlog()?, reader.unreadable_count()?, unsaid, reader.last_salvage()?))
        };
        let read = self.0.handles.db.read(read_counts).await;
        let store_error = self.0.handles.db.problem();
        let (backlog, unreadable, (outbox_counts, dead_chats, undelivered), salvage) = match read {
            Ok(read) => read,
            // Report the store's error; nothing can be counted.
            Err(_) if store_error.is_some() => Default::default(),
            Err(error) => return Err(error),
        };
        let situation = self.snapshot();
        let state = match situation.state {
            State::Running if link_down || store_error.is_some() => State::Degraded,
            state => state,
        };
        let handles = &self.0.handles;
        let now = clock::now();
        let storage =
            retention::storage_status(&handles.db, &handles.home, &handles.settings.retention, now).await?;
        let undelivered = undelivered.into_iter().map(|it| completions::undelivered(&links, it)).collect();
        let model_chain = &self.0.handles.agent.model_chain;
        let model = model_chain.describe();
        let home = &self.0.handles.home;
        Ok(GatewayStatus {
            version: env!("CARGO_PKG_VERSION"),
            pid: std::process::id(),
            home: home.display().to_string(),
            disk_used_percent: status::disk_used_percent(home),
            config_changed: status::config_changed(home, self.0.handles.lifecycle.started_at),
            started_at: self.0.handles.lifecycle.started_at,
            state,
            lifecycle: situation,
            drain_timeout: self.0.handles.lifecycle.lifetime.drain_timeout,
            model: ModelStatus {
                provider: model.provider.as_str(),
                demo: model.is_demo(),
                failing: model_chain.is_failing(),
                name: model.model,
            },
            links,
            sessions: self.0.handles.router.count().await,
            inbox: InboxCounts { queued: backlog.queued, running: backlog.claimed },
            outbox: OutboxCounts { due: outbox_counts.due + outbox_counts.sending, dead: outbox_counts.dead },
            unreadable,
            dead_chats,
            rate_limits: self.rate_limits(),
            mcp: self.0.handles.agent.tools.servers().states().into_iter().map(McpServerStatus::of).collect(),
            undelivered,
            storage,
            store_trouble: store_error,
            store_recoveries: self.0.handles.db.file_status().borrow().recoveries,
            salvage: salvage.map(|last| Salvaged {
                at: last.at,
                summary: last.summary(),
                report: last.report,
            }),
        })
    }
}

/// Runs a small file operation off the event loop.
async fn run_blocking<T: Send + 'static>(
    job: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Error> {
    let done = petasos_runtime::blocking(job).await;
    done.map_err(|_panicked| Error::Io("writing a file panicked".into()))?
        .map_err(|error| Error::Io(error.to_string()))
}
