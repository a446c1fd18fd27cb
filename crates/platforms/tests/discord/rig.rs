//! A fake Discord and an adapter that talks to it, without long waits.
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::time::Duration;

use petasos_core::{Inbound, Route};
use petasos_fakes::Discord;
use petasos_fakes::discord::World;
use petasos_platforms::discord::{self, Config};
use petasos_platforms::{Adapter, Batch, Error, Health, Intake, Secret, Taken};
use tokio::sync::mpsc;

use crate::listening;
pub(crate) use crate::listening::{SOON, degraded, texts};

/// Begins with 900, the fake bot's id, in base 64.
pub(crate) const TOKEN: &str = "OTAw.x.secret";
pub(crate) const GUILD: u64 = 1;
/// A channel of the guild, "general".
pub(crate) const ROOM: u64 = 70;
/// A private channel.
pub(crate) const DIRECT: u64 = 50;
pub(crate) const USER: u64 = 5;

pub(crate) const HEARTBEAT: u64 = 1;
pub(crate) const IDENTIFY: u64 = 2;
pub(crate) const RESUME: u64 = 6;

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) fake: Arc<Discord>,
    pub(crate) adapter: Adapter,
}

pub(crate) fn rig() -> Rig {
    rig_with(|_| {})
}

pub(crate) fn rig_with(change: impl FnOnce(&mut Config)) -> Rig {
    let fake = Discord::start().expect("a fake");
    fake.add_guild(GUILD);
    fake.add_channel(GUILD, ROOM, "general");
    fake.add_direct(DIRECT);
    rig_on(Arc::new(fake), change)
}

/// Another adapter for the same service, as after a restart.
pub(crate) fn rig_on(fake: Arc<Discord>, change: impl FnOnce(&mut Config)) -> Rig {
    let mut config = Config::new(Secret::new(TOKEN));
    config.api_base = fake.api_base();
    config.reconnect_base = Duration::from_millis(1);
    config.identify_gap = Duration::ZERO;
    config.request_timeout = SOON;
    config.auto_thread = false;
    change(&mut config);
    let adapter = Adapter::Discord(discord::Discord::new(config).expect("valid"));
    Rig { fake, adapter }
}

impl Rig {
    /// Listens while `gateway` runs; what was told of the link's health is returned with its result.
    pub(crate) async fn listen<T>(
        &self,
        cursor: Option<&str>,
        gateway: impl AsyncFnOnce(&mut Gateway) -> T,
    ) -> (T, Vec<Health>) {
        let gateway =
            async |batches| gateway(&mut Gateway { batches, cursor: cursor.map(str::to_owned) }).await;
        listening::listen(&self.adapter, cursor, gateway).await
    }

    /// Listens until the link gives up; everything is taken.
    pub(crate) async fn listen_to_the_end(&self, cursor: Option<&str>) -> (Error, Vec<Health>) {
        let (intake, batches) = Intake::new(4);
        let mut told = Vec::new();
        let mut health = |state| told.push(state);
        let mut gateway = Gateway { batches, cursor: None };
        let error = async {
            tokio::select! {
                error = self.adapter.receive(cursor.map(str::to_owned), &intake, &mut health) => error,
                never = gateway.take_all() => match never {},
            }
        };
        let error = tokio::time::timeout(SOON, error).await.expect("an end");
        (error, told)
    }

    /// Waits elsewhere: the link lives on the test's own task.
    pub(crate) async fn wait_until(
        &self,
        what: &str,
        look: impl FnMut(&World) -> Option<()> + Send + 'static,
    ) {
        let fake = self.fake.clone();
        listening::happens(what, move || fake.wait_until(SOON, look)).await;
    }

    /// Waits until clients have sent `count` frames with this opcode.
    pub(crate) async fn wait_heard(&self, op: u64, count: usize) {
        let what = format!("{count} frames with opcode {op}");
        self.wait_until(&what, move |world| (world.heard(op).count() >= count).then_some(())).await;
    }

    pub(crate) fn count(&self, op: u64) -> usize {
        self.fake.heard(op).len()
    }
}

/// The other end of the intake.
#[derive(Debug)]
pub(crate) struct Gateway {
    pub(crate) batches: mpsc::Receiver<Batch>,
    /// The last committed one.
    pub(crate) cursor: Option<String>,
}

impl Gateway {
    pub(crate) async fn next(&mut self) -> Batch {
        listening::next(&mut self.batches).await
    }

    pub(crate) fn keep(&mut self, batch: Batch) -> Vec<Inbound> {
        self.cursor = batch.cursor.or(self.cursor.take());
        let _ = batch.done.send(Taken::Committed);
        batch.events
    }

    /// Takes batches until `count` events are in.
    pub(crate) async fn take(&mut self, count: usize) -> Vec<Inbound> {
        let mut events = Vec::new();
        while events.len() < count {
            let batch = self.next().await;
            events.extend(self.keep(batch));
        }
        events
    }

    /// Takes batches until this session and its guild are kept: then nothing of the greeting is under way.
    pub(crate) async fn settle(&mut self, session: &str) {
        while !self.cursor.as_ref().is_some_and(|cursor| is_greeted(cursor, session)) {
            let batch = self.next().await;
            self.keep(batch);
        }
    }

    pub(crate) async fn take_all(&mut self) -> std::convert::Infallible {
        while let Some(batch) = self.batches.recv().await {
            self.keep(batch);
        }
        std::future::pending().await
    }
}

/// A greeting is READY, number 1, and the guild, number 2.
fn is_greeted(cursor: &str, session: &str) -> bool {
    let cursor: serde_json::Value = serde_json::from_str(cursor).expect("JSON");
    let known = &cursor["session"];
    known["id"] == session && known["sequence"].as_u64() >= Some(2)
}

pub(crate) fn route(channel: u64) -> Route {
    listening::route("discord", channel, None)
}
