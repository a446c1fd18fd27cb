//! Link supervisor: one per platform, connects and reconnects the adapter.
//!
//! Owns the link's state machine and the connection. A new state is published before a connection is closed or opened,
//! so a connection that does not close cannot hide that it is broken. After the shutdown has begun, events of a connection
//! are ignored. Messages go to a [`LinkSink`], of the gateway or of a connector.

pub(crate) mod connection;

use std::sync::Arc;
use std::time::Duration;

use petasos_core::link::{Event, Link, LinkEffect, LinkPolicy, PartialOutage};
use petasos_core::message::Delivery;
use petasos_core::{Fault, Inbound, LinkId, Platform, Redactor, Route, SessionKey};
use petasos_platforms::relay::Relay;
use petasos_platforms::{Adapter, CommitResult, InboundBatch, LinkHealth, Post, Unreadable};
use tokio::sync::{mpsc, watch};

use crate::home::bot_lock::{AcquireError, BotLock, BotLockGuard};
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::relay::GRANTED_WITHIN;
use crate::links::supervisor::connection::{CloseOutcome, Connection, ConnectionEvent};
use crate::runtime::fault_injection::{Guarantee, PlantedBug, is_disabled, planted};
use crate::{Error, clock};

/// Receives what a link reads.
pub trait LinkSink: Send + Sync + 'static {
    fn cursor(&self, link: LinkId) -> impl Future<Output = Result<Option<String>, Error>> + Send;

    /// `Ok`: events and cursor are on disk, and the platform may drop them.
    fn accept_batch(
        &self,
        link: LinkId,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> impl Future<Output = Result<AcceptedBatch, Error>> + Send;

    /// A message to forward unchanged. Must not block while the message is delivered.
    fn post(&self, platform: &'static str, account: &str, post: Post);

    fn interrupt(&self, key: SessionKey);

    /// The link has connected.
    fn came_up(&mut self, adapter: &Arc<Adapter>) -> impl Future<Output = ()> + Send;
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedBatch {
    /// It contained something new.
    pub has_new: bool,
    /// For each message: whether its author gets any response.
    pub answered: Vec<bool>,
}

#[derive(Debug, Clone)]
pub struct LinkHandle {
    pub name: &'static str,
    pub link: watch::Receiver<Link>,
    control: LinkControl,
}

#[derive(Debug, Clone)]
enum LinkControl {
    Supervised(mpsc::Sender<LinkCommand>),
    /// There is no supervisor; the state never changes.
    UnavailablePlatform(Arc<watch::Sender<Link>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LinkCommand {
    Retry,
    Pause,
}

impl LinkHandle {
    /// A configured platform that cannot be used.
    pub(crate) fn unavailable(platform: Platform, reason: String) -> Self {
        let name = platform.as_str();
        let (report, link) = watch::channel(Link::unconfigured(format!("{name}_misconfigured"), reason));
        Self { name, link, control: LinkControl::UnavailablePlatform(Arc::new(report)) }
    }

    /// Reconnects now, without waiting.
    pub(crate) async fn retry(&self) -> Result<(), Error> {
        self.send(LinkCommand::Retry).await
    }

    /// Disconnects until `retry`.
    pub(crate) async fn pause(&self) -> Result<(), Error> {
        self.send(LinkCommand::Pause).await
    }

    async fn send(&self, command: LinkCommand) -> Result<(), Error> {
        match &self.control {
            LinkControl::Supervised(commands) => {
                commands.send(command).await.map_err(|_closed| Error::Stopping)
            }
            LinkControl::UnavailablePlatform(report) => {
                Err(Error::UnavailablePlatform(match report.borrow().failure() {
                    Some(failure) => failure.reason.clone(),
                    None => self.name.to_owned(),
                }))
            }
        }
    }
}

/// Creates a supervisor; the caller spawns the future.
pub fn supervisor<T: LinkSink>(
    adapter: Arc<Adapter>,
    sink: T,
    shutdown: ShutdownHandle,
    lifetime: &Lifetime,
) -> (LinkHandle, impl Future<Output = ()> + Send + use<T>) {
    let (control, commands) = mpsc::channel(4);
    let (report, link) = watch::channel(Link::default());
    let name = adapter.platform().as_str();
    let policy =
        LinkPolicy { name, longest_silence: adapter.capabilities().longest_silence, ..lifetime.reconnect };
    let close_timeout = lifetime.disconnect_within;
    let bot_lock =
        lifetime.bot_locks.iter().find(|bot_lock| bot_lock.platform == adapter.platform()).cloned();
    let supervisor = Supervisor {
        adapter,
        sink,
        shutdown,
        policy,
        close_timeout,
        redactor: lifetime.redactor.clone(),
        report,
        commands,
        bot_lock,
        lock_guard: None,
        connection: None,
    };
    (LinkHandle { name, link, control: LinkControl::Supervised(control) }, supervisor.run())
}

struct Supervisor<T> {
    adapter: Arc<Adapter>,
    sink: T,
    shutdown: ShutdownHandle,
    policy: LinkPolicy,
    /// A connection that takes longer to close is abandoned.
    close_timeout: Duration,
    redactor: Redactor,
    report: watch::Sender<Link>,
    commands: mpsc::Receiver<LinkCommand>,
    bot_lock: Option<BotLock>,
    lock_guard: Option<BotLockGuard>,
    connection: Option<Connection>,
}

impl<T: LinkSink> Supervisor<T> {
    async fn run(self) {
        self.run_from(Event::Start).await;
    }

    async fn run_from(mut self, first: Event) {
        let mut event = Some(first);
        loop {
            while let Some(next) = event.take() {
                event = self.step(next).await;
            }
            let due = self.report.borrow().due(&self.policy);
            event = petasos_runtime::select! {
                biased;
                () = self.shutdown.stopped() => break,
                Some(command) = self.commands.recv() => {
                    self.go_idle().await;
                    Some(match command {
                        LinkCommand::Retry => Event::Retry,
                        LinkCommand::Pause => Event::Pause,
                    })
                }
                (generation, received) = next_event(&mut self.connection) => self.handle(generation, received).await,
                () = clock::sleep_until(due.unwrap_or_default()), if due.is_some() => Some(Event::Tick),
            };
        }
        self.disconnect().await;
    }

    /// Before a connected relay link is closed on request: asks the connector to keep new messages. Events that arrive
    /// before its response are still processed.
    async fn go_idle(&mut self) {
        let adapter = self.adapter.clone();
        let connected = |relay: &&Relay| relay.leads() && relay.is_up();
        let Some(relay) = adapter.relay().filter(connected) else { return };
        let request = relay.go_idle(GRANTED_WITHIN);
        tokio::pin!(request);
        loop {
            petasos_runtime::select! {
                granted = &mut request => {
                    tracing::info!(link = self.name(), granted, "asked the connector to keep new messages");
                    return;
                }
                (generation, received) = next_event(&mut self.connection) => {
                    let broke = matches!(received, ConnectionEvent::Failed { .. });
                    let mut event = self.handle(generation, received).await;
                    while let Some(next) = event.take() {
                        event = self.step(next).await;
                    }
                    if broke {
                        return;
                    }
                }
            }
        }
    }

    /// Applies an event and its effect. Returns the event that follows at once, if any.
    async fn step(&mut self, event: Event) -> Option<Event> {
        let before = self.report.borrow().clone();
        let (link, effect) = before.clone().step(clock::now(), clock::roll(), event, &self.policy);
        let mut link = link;
        if planted(PlantedBug::AbandonsLink) && link.attempts >= 3 {
            link.state = petasos_core::link::State::Paused;
        }
        if let Some(failure) = link.failure().filter(|failure| before.failure() != Some(failure)) {
            tracing::warn!(
                link = self.name(),
                code = failure.code,
                reason = failure.reason,
                "connection lost"
            );
        }
        self.report.send_if_modified(|known| {
            *known = link;
            *known != before
        });
        match effect {
            Some(LinkEffect::Connect { generation }) => return self.connect(generation).await,
            Some(LinkEffect::Disconnect) => self.disconnect().await,
            Some(LinkEffect::CameUp) => {
                tracing::info!(link = self.name(), "connected");
                self.sink.came_up(&self.adapter).await;
            }
            None => {}
        }
        None
    }

    async fn connect(&mut self, generation: u64) -> Option<Event> {
        self.disconnect().await;
        let retry_later = |(code, reason)| {
            Some(Event::Failed { generation, fault: Fault::Later { after: None }, code, reason })
        };
        if let Err(failure) = self.acquire_bot_lock().await {
            return retry_later(failure);
        }
        match self.cursor().await {
            Ok(cursor) => {
                self.connection = Some(Connection::open(self.adapter.clone(), generation, cursor));
                None
            }
            Err(failure) => retry_later(failure),
        }
    }

    /// Two gateways with the same bot would steal each other's messages.
    async fn acquire_bot_lock(&mut self) -> Result<(), (String, String)> {
        let Some(bot_lock) = self.bot_lock.clone() else { return Ok(()) };
        let scope = bot_lock.scope;
        match petasos_runtime::blocking(move || bot_lock.acquire()).await {
            Ok(Ok(guard)) => self.lock_guard = Some(guard),
            Ok(Err(error @ AcquireError::Held { .. })) => {
                let next = "stop that one, or give this gateway a bot of its own";
                return Err((format!("{scope}_lock"), format!("{error}; {next}")));
            }
            // The lock only protects against mistakes, so errors do not stop the link.
            Ok(Err(error @ AcquireError::Io { .. })) => {
                tracing::warn!(%error, "cannot check whether another gateway uses the same bot");
            }
            Err(error) => {
                tracing::warn!(%error, "cannot check whether another gateway uses the same bot");
            }
        }
        Ok(())
    }

    /// Connecting without the cursor would skip the backfill, and the next commit would hide the gap.
    async fn cursor(&self) -> Result<Option<String>, (String, String)> {
        self.sink.cursor(self.link_id()).await.map_err(|error| {
            let code = format!("{}_cursor_unreadable", self.name());
            (code, format!("cannot read the stored cursor: {error}"))
        })
    }

    async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            match connection.close(self.close_timeout).await {
                CloseOutcome::Closed => {}
                CloseOutcome::Abandoned => {
                    tracing::error!(link = self.name(), "the connection does not close and was abandoned");
                }
            }
        }
        if let Some(lock_guard) = self.lock_guard.take() {
            match petasos_runtime::blocking(move || lock_guard.release()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::warn!(%error, "cannot remove the bot lock; it expires with this process")
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot remove the bot lock; it expires with this process")
                }
            }
        }
    }

    async fn handle(&mut self, generation: u64, received: ConnectionEvent) -> Option<Event> {
        match received {
            ConnectionEvent::Batch(batch) => {
                let oldest = batch.events.iter().filter_map(|event| event.sent_at).min();
                let some = !batch.events.is_empty();
                (self.accept_batch(batch).await && some).then_some(Event::Committed { generation, oldest })
            }
            ConnectionEvent::Post(post) => {
                self.sink.post(self.name(), self.adapter.account(), post);
                None
            }
            ConnectionEvent::Interrupt(key) => {
                self.sink.interrupt(key);
                None
            }
            ConnectionEvent::Health(LinkHealth::Connected) => {
                self.update_partial_outages(generation).await;
                Some(Event::Alive { generation })
            }
            ConnectionEvent::Health(LinkHealth::Backfilling) => {
                self.update_partial_outages(generation).await;
                Some(Event::Backfilling { generation })
            }
            ConnectionEvent::Health(LinkHealth::Degraded { reason }) => {
                tracing::warn!(link = self.name(), reason, "connection degraded");
                Some(Event::Retrying { generation, reason: reason.to_owned() })
            }
            ConnectionEvent::Health(LinkHealth::Connecting) => None,
            ConnectionEvent::Failed { fault, code, reason } => {
                let reason = self.redactor.redact_owned(reason);
                Some(Event::Failed { generation, fault, code, reason })
            }
        }
    }

    /// Publishes partial outages of a connected platform.
    async fn update_partial_outages(&mut self, generation: u64) {
        let outages = self.adapter.partial_outages();
        let known = self.report.borrow().partial_outages.clone();
        if outages == known {
            return;
        }
        for PartialOutage { part: what, code, reason } in
            outages.iter().filter(|outage| !known.contains(outage))
        {
            tracing::error!(link = self.name(), what, code, reason, "partial outage");
        }
        // This event has no follow-up.
        let _none = self.step(Event::PartialOutages { generation, outages }).await;
    }

    /// `false`: not stored, so the platform must keep the batch.
    async fn accept_batch(&self, batch: InboundBatch) -> bool {
        let pressed: Vec<_> =
            batch.events.iter().map(|event| (event.dedup.clone(), route_of(event))).collect();
        let events = batch.events.into_iter().map(|event| self.qualify(event)).collect();
        let accepted = self.sink.accept_batch(self.link_id(), events, batch.unreadable, batch.cursor).await;
        let answer = match &accepted {
            Ok(kept) => {
                let received = pressed.into_iter().zip(&kept.answered).filter(|(_, answered)| **answered);
                self.acknowledge(received.map(|(event, _)| event).collect());
                if kept.has_new { CommitResult::Committed } else { CommitResult::Duplicate }
            }
            Err(Error::Closed(closed)) => CommitResult::Closed(*closed),
            Err(Error::NoHome(_)) => CommitResult::NoHomeChannel,
            Err(error) => {
                tracing::warn!(link = self.name(), %error, "batch not accepted; the platform keeps it");
                match error {
                    _any if is_disabled(Guarantee::Refusals) || planted(PlantedBug::IgnoresRefusals) => {
                        CommitResult::Committed
                    }
                    Error::Store(error) if error.fault() == Fault::Refused => CommitResult::Invalid,
                    _trouble => CommitResult::NotStored,
                }
            }
        };
        // A closed adapter reads again from the stored cursor.
        let _ = batch.done.send(answer);
        accepted.is_ok()
    }

    /// Cursors belong to the account, so another bot in the same home starts without one.
    fn link_id(&self) -> LinkId {
        LinkId { platform: self.adapter.platform(), account: self.adapter.account().to_owned() }
    }

    fn qualify(&self, mut event: Inbound) -> Inbound {
        event.dedup = format!("{}:{}", self.adapter.account(), event.dedup);
        event
    }

    /// Acknowledges pressed buttons to the platform. Best effort.
    fn acknowledge(&self, events: Vec<(String, Route)>) {
        for (event, chat) in events {
            if self.adapter.check_callback(&chat).is_err() {
                continue;
            }
            let adapter = self.adapter.clone();
            petasos_runtime::spawn(async move {
                if let Err(error) = adapter.answer_callback(&event, None).await {
                    tracing::debug!(%error, "cannot acknowledge a pressed button");
                }
            });
        }
    }

    fn name(&self) -> &'static str {
        self.adapter.platform().as_str()
    }
}

fn route_of(event: &Inbound) -> Route {
    Route::to_source(&event.source, Delivery::Push)
}

async fn next_event(connection: &mut Option<Connection>) -> (u64, ConnectionEvent) {
    match connection {
        Some(connection) => (connection.generation, connection.next_event().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
