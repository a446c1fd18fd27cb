//! One supervisor per platform: it connects, listens, and connects again.
//!
//! Owns the link's machine and the connection's task. The adapter runs in a task of its own, so that a
//! panic there is a broken link like any other; dropping the connection ends it.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::link::{Effect, Event, Link};
use petasos_core::{Fault, Inbound, Millis};
use petasos_platforms::{Adapter, Batch, Health, Intake, Taken};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::ingest::Ingest;
use crate::resume::{self, Candidate};
use crate::stopper::Stopper;
use crate::{Error, clock};

/// The way to one supervisor.
#[derive(Debug, Clone)]
pub(crate) struct LinkHandle {
    pub(crate) name: &'static str,
    pub(crate) link: watch::Receiver<Link>,
    commands: mpsc::Sender<Command>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    Retry,
    Pause,
}

impl LinkHandle {
    /// Tries now, whatever the link is waiting for.
    pub(crate) async fn retry(&self) -> Result<(), Error> {
        self.commands.send(Command::Retry).await.map_err(|_closed| Error::Stopping)
    }

    /// Disconnects until somebody wants it back.
    pub(crate) async fn pause(&self) -> Result<(), Error> {
        self.commands.send(Command::Pause).await.map_err(|_closed| Error::Stopping)
    }
}

/// Makes a supervisor; the future is to be spawned.
pub(crate) fn supervisor(
    adapter: Arc<Adapter>,
    ingest: Arc<Ingest>,
    stopper: Stopper,
    waiting: Vec<Candidate>,
) -> (LinkHandle, impl Future<Output = ()>) {
    let (commands, asked) = mpsc::channel(4);
    let (report, link) = watch::channel(Link::default());
    let name = adapter.platform().as_str();
    let supervisor = Supervisor { adapter, ingest, stopper, report, asked, waiting, connection: None };
    (LinkHandle { name, link, commands }, supervisor.run())
}

struct Supervisor {
    adapter: Arc<Adapter>,
    ingest: Arc<Ingest>,
    stopper: Stopper,
    report: watch::Sender<Link>,
    asked: mpsc::Receiver<Command>,
    /// What goes on as soon as the link is up for the first time.
    waiting: Vec<Candidate>,
    connection: Option<Connection>,
}

/// A running adapter. Dropping it ends the adapter at its next wait.
struct Connection {
    generation: u64,
    task: JoinHandle<petasos_platforms::Error>,
    batches: mpsc::Receiver<Batch>,
    /// What it said last: news that nobody has noticed yet gives way to newer.
    health: watch::Receiver<Health>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Batches that may wait for a commit.
const BATCHES: usize = 2;

impl Supervisor {
    async fn run(mut self) {
        let mut event = Some(Event::Start);
        let mut wake: Option<Millis> = None;
        loop {
            if let Some(event) = event.take() {
                match self.feed(event).await {
                    Some(Effect::WakeAt(at)) => wake = Some(at),
                    Some(Effect::Connect { .. } | Effect::Disconnect | Effect::CameUp) | None => wake = None,
                }
            }
            event = tokio::select! {
                () = self.stopper.stopped() => return,
                Some(command) = self.asked.recv() => Some(match command {
                    Command::Retry => Event::Retry,
                    Command::Pause => Event::Pause,
                }),
                () = clock::sleep_until(wake.unwrap_or_default()), if wake.is_some() => Some(Event::Tick),
                heard = hear(&mut self.connection) => self.heard(heard).await,
            };
        }
    }

    async fn feed(&mut self, event: Event) -> Option<Effect> {
        let link = self.report.borrow().clone();
        let (link, effect) = link.step(clock::now(), clock::roll(), event);
        self.report.send_if_modified(|known| {
            let changed = *known != link;
            *known = link;
            changed
        });
        match effect? {
            Effect::Connect { generation } => self.connect(generation).await,
            Effect::Disconnect => self.connection = None,
            Effect::CameUp => {
                tracing::info!(link = self.name(), "connected");
                self.wake_lanes().await;
                resume::take_up(&self.ingest, std::mem::take(&mut self.waiting)).await;
            }
            Effect::WakeAt(_) => {}
        }
        effect
    }

    async fn connect(&mut self, generation: u64) {
        self.connection = None;
        let (name, cursor_name) = (self.name(), self.cursor_name());
        let cursor =
            self.ingest.db.read(move |reader| reader.cursor(&cursor_name)).await.unwrap_or_else(|error| {
                // Starting without it is safe: the platform repeats what it still has, and the inbox knows it.
                tracing::warn!(link = name, %error, "the cursor cannot be read");
                None
            });
        let (intake, batches) = Intake::new(BATCHES);
        let (pulse, health) = watch::channel(Health::Connecting);
        let adapter = self.adapter.clone();
        let task = tokio::spawn(async move {
            let mut tell = move |health| {
                pulse.send_replace(health);
            };
            adapter.receive(cursor, &intake, &mut tell).await
        });
        self.connection = Some(Connection { generation, task, batches, health });
    }

    async fn heard(&mut self, heard: Heard) -> Option<Event> {
        match heard {
            Heard::Batch(batch) => {
                let pressed: Vec<_> = batch.events.iter().map(|event| event.dedup.clone()).collect();
                let events = batch.events.into_iter().map(|event| self.named(event)).collect();
                let taken =
                    self.ingest.take(self.cursor_name(), events, batch.unreadable, batch.cursor).await;
                let answer = match &taken {
                    Ok(()) => {
                        self.acknowledge(pressed);
                        Taken::Committed
                    }
                    Err(error) => {
                        tracing::warn!(link = self.name(), %error, "not accepted; the platform keeps it for us");
                        Taken::NotTaken
                    }
                };
                // An adapter that has gone meanwhile asks again from the stored cursor.
                let _ = batch.done.send(answer);
                None
            }
            Heard::Health(generation, Health::Polling) => Some(Event::Alive { generation }),
            Heard::Health(generation, Health::Degraded { reason }) => {
                tracing::warn!(link = self.name(), reason, "connection troubled");
                Some(Event::Troubled { generation, reason: reason.to_owned() })
            }
            Heard::Health(_, Health::Connecting) => None,
            Heard::Broke { generation, fault, code, reason } => {
                self.connection = None;
                tracing::warn!(link = self.name(), code, reason, "connection lost");
                Some(Event::Broke { generation, fault, code, reason })
            }
        }
    }

    /// What waited for this platform need not wait any longer.
    async fn wake_lanes(&self) {
        let (name, prefix) = (self.name(), format!("{}:", self.name()));
        let lanes = self.ingest.db.write(move |tx| {
            tx.poke_platform(name)?;
            tx.heads()
        });
        match lanes.await {
            Ok(heads) => {
                for head in heads.into_iter().filter(|head| head.lane.starts_with(&prefix)) {
                    self.ingest.deliver.due(head.lane).await;
                }
            }
            Err(error) => tracing::warn!(%error, "the outbox cannot be read"),
        }
    }

    /// Cursors and identities belong to the account: another bot in the same home starts from nothing.
    fn cursor_name(&self) -> String {
        format!("{}/{}", self.name(), self.adapter.account())
    }

    fn named(&self, mut event: Inbound) -> Inbound {
        event.dedup = format!("{}:{}", self.adapter.account(), event.dedup);
        event
    }

    /// Tells the clients of those who pressed a button that we have it. It is only a courtesy.
    fn acknowledge(&self, events: Vec<String>) {
        for event in events {
            let adapter = self.adapter.clone();
            tokio::spawn(async move {
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

enum Heard {
    Batch(Batch),
    Health(u64, Health),
    Broke { generation: u64, fault: Fault, code: String, reason: String },
}

async fn hear(connection: &mut Option<Connection>) -> Heard {
    let Some(connection) = connection else {
        return std::future::pending().await;
    };
    let generation = connection.generation;
    tokio::select! {
        biased;
        Some(batch) = connection.batches.recv() => Heard::Batch(batch),
        Ok(()) = connection.health.changed() => {
            Heard::Health(generation, connection.health.borrow_and_update().clone())
        }
        ended = &mut connection.task => match ended {
            Ok(error) => {
                let (fault, code, reason) = (error.fault(), error.code().to_owned(), error.to_string());
                Heard::Broke { generation, fault, code, reason }
            }
            Err(_panicked) => {
                let (fault, reason) = (Fault::Later { after: None }, "the adapter panicked".to_owned());
                Heard::Broke { generation, fault, code: "adapter_panicked".into(), reason }
            }
        },
    }
}

/// A link counts as deaf when nothing has come in for this long.
pub(crate) const DEAF_AFTER: Duration = Duration::from_secs(120);
