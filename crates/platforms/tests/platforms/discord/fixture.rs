//! A fake Discord and its adapter, with short waits.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::{Inbound, Route};
use petasos_fakes::Discord;
use petasos_fakes::discord::State;
use petasos_platforms::discord::{self, Config};
use petasos_platforms::{Adapter, CommitResult, Error, InboundBatch, InboundSink, LinkHealth, Secret};
use tokio::sync::mpsc;

use crate::harness;
pub(crate) use crate::harness::{TEST_TIMEOUT, degraded, texts};

/// Begins with 900, the fake bot's id, in base 64.
pub(crate) const TOKEN: &str = "OTAw.x.secret";
pub(crate) const GUILD: u64 = 1;
/// A channel of the guild, "general".
pub(crate) const CHANNEL: u64 = 70;
pub(crate) const DM: u64 = 50;
pub(crate) const USER: u64 = 5;

pub(crate) const HEARTBEAT: u64 = 1;
pub(crate) const IDENTIFY: u64 = 2;
pub(crate) const RESUME: u64 = 6;

#[derive(Debug)]
pub(crate) struct DiscordFixture {
    pub(crate) fake: Arc<Discord>,
    pub(crate) adapter: Adapter,
}

pub(crate) fn fixture() -> DiscordFixture {
    fixture_with(|_| {})
}

pub(crate) fn fixture_with(change: impl FnOnce(&mut Config)) -> DiscordFixture {
    let fake = Discord::start().expect("a fake");
    fake.add_guild(GUILD);
    fake.add_channel(GUILD, CHANNEL, "general");
    fake.add_direct(DM);
    fixture_on(Arc::new(fake), change)
}

/// Another adapter for the same service, as after a restart.
pub(crate) fn fixture_on(fake: Arc<Discord>, change: impl FnOnce(&mut Config)) -> DiscordFixture {
    let mut config = Config::new(Secret::new(TOKEN));
    config.api_base = fake.api_base();
    config.reconnect_base = Duration::from_millis(1);
    config.identify_gap = Duration::ZERO;
    config.request_timeout = TEST_TIMEOUT;
    config.auto_thread = false;
    change(&mut config);
    let adapter = Adapter::Discord(discord::Discord::new(config).expect("valid"));
    DiscordFixture { fake, adapter }
}

impl DiscordFixture {
    /// Runs the link until `gateway` ends; returns its result and the health log.
    pub(crate) async fn listen<T>(
        &self,
        cursor: Option<&str>,
        gateway: impl AsyncFnOnce(&mut GatewayHarness) -> T,
    ) -> (T, Vec<LinkHealth>) {
        let gateway =
            async |batches| gateway(&mut GatewayHarness { batches, cursor: cursor.map(str::to_owned) }).await;
        harness::listen(&self.adapter, cursor, gateway).await
    }

    /// Commits everything until the link gives up.
    pub(crate) async fn run_until_link_ends(&self, cursor: Option<&str>) -> (Error, Vec<LinkHealth>) {
        let (sink, batches) = InboundSink::new(4);
        let mut health_log = Vec::new();
        let mut health = |state| health_log.push(state);
        let mut gateway = GatewayHarness { batches, cursor: None };
        let error = async {
            tokio::select! {
                error = self.adapter.receive(cursor.map(str::to_owned), &sink, &mut health) => error,
                never = gateway.commit_all() => match never {},
            }
        };
        let error = tokio::time::timeout(TEST_TIMEOUT, error).await.expect("an end");
        (error, health_log)
    }

    /// Blocks on another thread: the link runs on the test's task.
    pub(crate) async fn wait_until(
        &self,
        what: &str,
        look: impl FnMut(&State) -> Option<()> + Send + 'static,
    ) {
        let fake = self.fake.clone();
        harness::wait_for(what, move || fake.wait_until(TEST_TIMEOUT, look)).await;
    }

    /// Waits until clients have sent `count` frames with this opcode.
    pub(crate) async fn wait_for_frames(&self, op: u64, count: usize) {
        let what = format!("{count} frames with opcode {op}");
        self.wait_until(&what, move |state| (state.frames(op).count() >= count).then_some(())).await;
    }

    pub(crate) fn count(&self, op: u64) -> usize {
        self.fake.frames(op).len()
    }
}

#[derive(Debug)]
pub(crate) struct GatewayHarness {
    pub(crate) batches: mpsc::Receiver<InboundBatch>,
    pub(crate) cursor: Option<String>,
}

impl GatewayHarness {
    pub(crate) async fn next_batch(&mut self) -> InboundBatch {
        harness::next_batch(&mut self.batches).await
    }

    pub(crate) fn commit(&mut self, batch: InboundBatch) -> Vec<Inbound> {
        self.cursor = batch.cursor.or(self.cursor.take());
        let _ = batch.done.send(CommitResult::Committed);
        batch.events
    }

    /// Commits batches until `count` events are in.
    pub(crate) async fn commit_events(&mut self, count: usize) -> Vec<Inbound> {
        let mut events = Vec::new();
        while events.len() < count {
            let batch = self.next_batch().await;
            events.extend(self.commit(batch));
        }
        events
    }

    /// Commits batches until this session's READY and guild are on disk.
    pub(crate) async fn wait_for_session(&mut self, session: &str) {
        while !self.cursor.as_ref().is_some_and(|cursor| is_session_committed(cursor, session)) {
            let batch = self.next_batch().await;
            self.commit(batch);
        }
    }

    pub(crate) async fn commit_all(&mut self) -> std::convert::Infallible {
        while let Some(batch) = self.batches.recv().await {
            self.commit(batch);
        }
        std::future::pending().await
    }
}

/// READY is event 1, the guild event 2.
fn is_session_committed(cursor: &str, session: &str) -> bool {
    let cursor: serde_json::Value = serde_json::from_str(cursor).expect("JSON");
    let known = &cursor["session"];
    known["id"] == session && known["sequence"].as_u64() >= Some(2)
}

pub(crate) fn route(channel: u64) -> Route {
    harness::route("discord", channel, None)
}
