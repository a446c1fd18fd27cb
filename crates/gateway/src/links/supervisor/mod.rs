//! One supervisor per platform: it connects, listens, and connects again.
//!
//! Owns the link's machine and the connection. The machine's word is published before anything is torn down or built
//! up, so a connection that will not end cannot hide that it is broken. After the ways in are closed nothing of a
//! connection is heard any more, however late it comes to stand. What is heard goes to a [`Taker`]: the gateway's, or
//! a connector's.

pub(crate) mod connection;

use std::sync::Arc;
use std::time::Duration;

use petasos_core::link::{Effect, Event, Lack, Link, Terms};
use petasos_core::message::Delivery;
use petasos_core::{Fault, Inbound, LinkId, Platform, Route, SessionKey};
use petasos_platforms::relay::Relay;
use petasos_platforms::{Adapter, Batch, Health, Post, Taken, Unreadable};
use tokio::sync::{mpsc, watch};

use crate::home::bot_lock::{NotTaken, Scoped, Sole};
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::shutdown::Stopper;
use crate::links::relay::GRANTED_WITHIN;
use crate::links::supervisor::connection::{Connection, Heard, Parting};
use crate::runtime::fault_injection::{Broken, Planted, breaks, planted};
use crate::{Error, clock};

/// Whoever takes what a link hears.
pub trait Taker: Send + Sync + 'static {
    /// How far this link has heard.
    fn cursor(&self, link: LinkId) -> impl Future<Output = Result<Option<String>, Error>> + Send;

    /// `Ok`: events and cursor are on disk, and the platform may forget them.
    fn take(
        &self,
        link: LinkId,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> impl Future<Output = Result<Kept, Error>> + Send;

    /// A message that is to be passed on as it is. Waiting for its delivery must not hold up what comes in.
    fn post(&self, platform: &'static str, account: &str, post: Post);

    /// Somebody wants this conversation to stop what it does.
    fn interrupt(&self, key: SessionKey);

    /// The platform can be reached, again or for the first time.
    fn came_up(&mut self, adapter: &Arc<Adapter>) -> impl Future<Output = ()> + Send;
}

/// What a batch was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Something in it that we did not have.
    pub news: bool,
    /// For each message whether its author hears of us at all.
    pub answered: Vec<bool>,
}

/// The way to one link.
#[derive(Debug, Clone)]
pub struct LinkHandle {
    pub name: &'static str,
    pub link: watch::Receiver<Link>,
    way: Way,
}

#[derive(Debug, Clone)]
enum Way {
    Supervised(mpsc::Sender<Command>),
    /// There is nothing to supervise; what is said of it stands.
    Unbuilt(Arc<watch::Sender<Link>>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Retry,
    Pause,
}

impl LinkHandle {
    /// A platform that is asked for and cannot be spoken as it is configured.
    pub(crate) fn unbuilt(platform: Platform, reason: String) -> Self {
        let name = platform.as_str();
        let (report, link) = watch::channel(Link::unbuilt(format!("{name}_misconfigured"), reason));
        Self { name, link, way: Way::Unbuilt(Arc::new(report)) }
    }

    /// Tries now, whatever the link is waiting for.
    pub(crate) async fn retry(&self) -> Result<(), Error> {
        self.ask(Command::Retry).await
    }

    /// Disconnects until somebody wants it back.
    pub(crate) async fn pause(&self) -> Result<(), Error> {
        self.ask(Command::Pause).await
    }

    async fn ask(&self, command: Command) -> Result<(), Error> {
        match &self.way {
            Way::Supervised(commands) => commands.send(command).await.map_err(|_closed| Error::Stopping),
            Way::Unbuilt(report) => Err(Error::Unbuilt(match report.borrow().failure() {
                Some(failure) => failure.reason.clone(),
                None => self.name.to_owned(),
            })),
        }
    }
}

/// Makes a supervisor; the future is to be spawned.
pub fn supervisor<T: Taker>(
    adapter: Arc<Adapter>,
    taker: T,
    stopper: Stopper,
    lifetime: &Lifetime,
) -> (LinkHandle, impl Future<Output = ()> + Send + use<T>) {
    let (commands, asked) = mpsc::channel(4);
    let (report, link) = watch::channel(Link::default());
    let name = adapter.platform().as_str();
    let terms = Terms { name, longest_silence: adapter.capabilities().longest_silence, ..lifetime.reconnect };
    let farewell = lifetime.disconnect_within;
    let sole = lifetime.sole.iter().find(|sole| sole.platform == adapter.platform()).cloned();
    let supervisor = Supervisor {
        adapter,
        taker,
        stopper,
        terms,
        farewell,
        report,
        asked,
        sole,
        held: None,
        connection: None,
    };
    (LinkHandle { name, link, way: Way::Supervised(commands) }, supervisor.run())
}

struct Supervisor<T> {
    adapter: Arc<Adapter>,
    taker: T,
    stopper: Stopper,
    terms: Terms,
    /// How long a connection may take to end.
    farewell: Duration,
    report: watch::Sender<Link>,
    asked: mpsc::Receiver<Command>,
    /// What nobody else on this machine may use while we do.
    sole: Option<Sole>,
    held: Option<Scoped>,
    connection: Option<Connection>,
}

impl<T: Taker> Supervisor<T> {
    async fn run(self) {
        self.go_on(Event::Start).await;
    }

    async fn go_on(mut self, first: Event) {
        let mut event = Some(first);
        loop {
            while let Some(fed) = event.take() {
                event = self.feed(fed).await;
            }
            let due = self.report.borrow().due(&self.terms);
            event = petasos_runtime::select! {
                biased;
                () = self.stopper.stopped() => break,
                Some(command) = self.asked.recv() => {
                    self.go_idle().await;
                    Some(match command {
                        Command::Retry => Event::Retry,
                        Command::Pause => Event::Pause,
                    })
                }
                (generation, heard) = hear(&mut self.connection) => self.heard(generation, heard).await,
                () = clock::sleep_until(due.unwrap_or_default()), if due.is_some() => Some(Event::Tick),
            };
        }
        self.disconnect().await;
    }

    /// Before the owner ends a relayed connection that stands: the connector keeps what comes from now on. Events that
    /// arrive before its answer are still taken in.
    async fn go_idle(&mut self) {
        let adapter = self.adapter.clone();
        let standing = |relay: &&Relay| relay.leads() && relay.is_up();
        let Some(relay) = adapter.relay().filter(standing) else { return };
        let asking = relay.go_idle(GRANTED_WITHIN);
        tokio::pin!(asking);
        loop {
            petasos_runtime::select! {
                granted = &mut asking => {
                    tracing::info!(link = self.name(), granted, "asked the connector to keep what comes");
                    return;
                }
                (generation, heard) = hear(&mut self.connection) => {
                    let broke = matches!(heard, Heard::Broke { .. });
                    let mut event = self.heard(generation, heard).await;
                    while let Some(fed) = event.take() {
                        event = self.feed(fed).await;
                    }
                    if broke {
                        return;
                    }
                }
            }
        }
    }

    /// What follows at once, if anything does.
    async fn feed(&mut self, event: Event) -> Option<Event> {
        let before = self.report.borrow().clone();
        let (link, effect) = before.clone().step(clock::now(), clock::roll(), event, &self.terms);
        let mut link = link;
        if planted(Planted::GivesUpLink) && link.attempts >= 3 {
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
            Some(Effect::Connect { generation }) => return self.connect(generation).await,
            Some(Effect::Disconnect) => self.disconnect().await,
            Some(Effect::CameUp) => {
                tracing::info!(link = self.name(), "connected");
                self.taker.came_up(&self.adapter).await;
            }
            None => {}
        }
        None
    }

    async fn connect(&mut self, generation: u64) -> Option<Event> {
        self.disconnect().await;
        let not_yet = |(code, reason)| {
            Some(Event::Broke { generation, fault: Fault::Later { after: None }, code, reason })
        };
        if let Err(held) = self.hold().await {
            return not_yet(held);
        }
        match self.cursor().await {
            Ok(cursor) => {
                self.connection = Some(Connection::open(self.adapter.clone(), generation, cursor));
                None
            }
            Err(unreadable) => not_yet(unreadable),
        }
    }

    /// Two gateways with one bot would take each other's messages away.
    async fn hold(&mut self) -> Result<(), (String, String)> {
        let Some(sole) = self.sole.clone() else { return Ok(()) };
        let scope = sole.scope;
        match petasos_runtime::blocking(move || sole.take()).await {
            Ok(Ok(scoped)) => self.held = Some(scoped),
            Ok(Err(error @ NotTaken::Held { .. })) => {
                let next = "stop that one, or give this gateway a bot of its own";
                return Err((format!("{scope}_lock"), format!("{error}; {next}")));
            }
            // A guard against mistakes; without it we are as safe as most programs.
            Ok(Err(error @ NotTaken::Io { .. })) => {
                tracing::warn!(%error, "whether another gateway uses the same bot cannot be seen");
            }
            Err(error) => {
                tracing::warn!(%error, "whether another gateway uses the same bot cannot be seen");
            }
        }
        Ok(())
    }

    /// Without it a link would not ask for what it missed, and its next commit would say that it had heard it.
    async fn cursor(&self) -> Result<Option<String>, (String, String)> {
        self.taker.cursor(self.link_id()).await.map_err(|error| {
            let code = format!("{}_cursor_unreadable", self.name());
            (code, format!("how far it has heard cannot be read: {error}"))
        })
    }

    /// Returns when the old connection is dead, or past waiting for.
    async fn disconnect(&mut self) {
        if let Some(connection) = self.connection.take() {
            match connection.close(self.farewell).await {
                Parting::Gone => {}
                Parting::Abandoned => {
                    tracing::error!(
                        link = self.name(),
                        "the connection does not end; it is left behind, unheard"
                    );
                }
            }
        }
        if let Some(held) = self.held.take() {
            match petasos_runtime::blocking(move || held.release()).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::warn!(%error, "a lock stays; it means nothing once we are gone"),
                Err(error) => tracing::warn!(%error, "a lock stays; it means nothing once we are gone"),
            }
        }
    }

    async fn heard(&mut self, generation: u64, heard: Heard) -> Option<Event> {
        match heard {
            Heard::Batch(batch) => {
                let oldest = batch.events.iter().filter_map(|event| event.sent_at).min();
                let some = !batch.events.is_empty();
                (self.take(batch).await && some).then_some(Event::Took { generation, oldest })
            }
            Heard::Post(post) => {
                self.taker.post(self.name(), self.adapter.account(), post);
                None
            }
            Heard::Interrupt(key) => {
                self.taker.interrupt(key);
                None
            }
            Heard::Health(Health::Polling) => {
                self.count_lacks(generation).await;
                Some(Event::Alive { generation })
            }
            Heard::Health(Health::CatchingUp) => {
                self.count_lacks(generation).await;
                Some(Event::CatchingUp { generation })
            }
            Heard::Health(Health::Degraded { reason }) => {
                tracing::warn!(link = self.name(), reason, "connection troubled");
                Some(Event::Troubled { generation, reason: reason.to_owned() })
            }
            Heard::Health(Health::Connecting) => None,
            Heard::Broke { fault, code, reason } => Some(Event::Broke { generation, fault, code, reason }),
        }
    }

    /// A connection that stands may still be without a part of its platform.
    async fn count_lacks(&mut self, generation: u64) {
        let lacks = self.adapter.lacks();
        let known = self.report.borrow().lacks.clone();
        if lacks == known {
            return;
        }
        for Lack { what, code, reason } in lacks.iter().filter(|lack| !known.contains(lack)) {
            tracing::error!(link = self.name(), what, code, reason, "a part of the platform is lost");
        }
        // Nothing follows from it.
        let _none = self.feed(Event::Lacks { generation, lacks }).await;
    }

    /// `false`: the platform has to keep it for us.
    async fn take(&self, batch: Batch) -> bool {
        let pressed: Vec<_> =
            batch.events.iter().map(|event| (event.dedup.clone(), route_of(event))).collect();
        let events = batch.events.into_iter().map(|event| self.named(event)).collect();
        let taken = self.taker.take(self.link_id(), events, batch.unreadable, batch.cursor).await;
        let answer = match &taken {
            Ok(kept) => {
                let heard = pressed.into_iter().zip(&kept.answered).filter(|(_, answered)| **answered);
                self.acknowledge(heard.map(|(event, _)| event).collect());
                if kept.news { Taken::Committed } else { Taken::Known }
            }
            Err(Error::Closed(closed)) => Taken::Closed(*closed),
            Err(Error::NoHome(_)) => Taken::NoHome,
            Err(error) => {
                tracing::warn!(link = self.name(), %error, "not accepted; the platform keeps it for us");
                match error {
                    _any if breaks(Broken::Refusals) || planted(Planted::IgnoresRefusals) => Taken::Committed,
                    Error::Store(error) if error.fault() == Fault::Refused => Taken::Unfit,
                    _trouble => Taken::NotTaken,
                }
            }
        };
        // An adapter that has gone meanwhile asks again from the stored cursor.
        let _ = batch.done.send(answer);
        taken.is_ok()
    }

    /// Cursors and identities belong to the account: another bot in the same home starts from nothing.
    fn link_id(&self) -> LinkId {
        LinkId { platform: self.adapter.platform(), account: self.adapter.account().to_owned() }
    }

    fn named(&self, mut event: Inbound) -> Inbound {
        event.dedup = format!("{}:{}", self.adapter.account(), event.dedup);
        event
    }

    /// Tells the clients of those who pressed a button that we have it. It is only a courtesy.
    fn acknowledge(&self, events: Vec<(String, Route)>) {
        for (event, chat) in events {
            if self.adapter.check_callback(&chat).is_err() {
                continue;
            }
            let adapter = self.adapter.clone();
            petasos_runtime::spawn(async move {
                if let Err(error) = adapter.answer_callback(&event, None).await {
                    tracing::debug!(%error, "a pressed button was not acknowledged");
                }
            });
        }
    }

    fn name(&self) -> &'static str {
        self.adapter.platform().as_str()
    }
}

/// To the chat that an acknowledgement is for.
fn route_of(event: &Inbound) -> Route {
    Route::back_to(&event.source, Delivery::Push)
}

/// What the connection says, if there is one.
async fn hear(connection: &mut Option<Connection>) -> (u64, Heard) {
    match connection {
        Some(connection) => (connection.generation, connection.hear().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
