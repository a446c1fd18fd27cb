//! A fake Slack and its adapter, with short waits.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::{Inbound, Route};
use petasos_fakes::Slack;
use petasos_fakes::slack::{DeliveryState, State, TOKEN};
use petasos_platforms::slack::{self, Config};
use petasos_platforms::{Adapter, CommitResult, Error, InboundBatch, LinkHealth};
use tokio::sync::mpsc;

use crate::harness;
pub(crate) use crate::harness::{TEST_TIMEOUT, commit_events, degraded, next_batch, texts};

pub(crate) const APP_TOKEN: &str = "xapp-1-A1-2-secret";

#[derive(Debug)]
pub(crate) struct SlackFixture {
    pub(crate) fake: Arc<Slack>,
    pub(crate) adapter: Adapter,
}

pub(crate) fn fixture() -> SlackFixture {
    fixture_with(|_| {})
}

pub(crate) fn fixture_with(change: impl FnOnce(&mut Config)) -> SlackFixture {
    let fake = Arc::new(Slack::start().expect("a fake"));
    let adapter = adapter(&fake, change);
    SlackFixture { fake, adapter }
}

pub(crate) fn adapter(fake: &Slack, change: impl FnOnce(&mut Config)) -> Adapter {
    let mut config = Config::new(APP_TOKEN, TOKEN);
    config.api_base = fake.api_base();
    config.reconnect_base = Duration::from_millis(1);
    config.request_timeout = TEST_TIMEOUT;
    change(&mut config);
    Adapter::Slack(slack::Slack::new(config).expect("valid"))
}

/// The fake's timestamps are years old.
pub(crate) fn unlimited_window(config: &mut Config) {
    config.backfill.window = Duration::MAX;
}

/// The same Slack and a new process.
pub(crate) fn restarted(fixture: &SlackFixture, change: impl FnOnce(&mut Config)) -> SlackFixture {
    SlackFixture { adapter: adapter(&fixture.fake, change), fake: fixture.fake.clone() }
}

impl SlackFixture {
    pub(crate) async fn listen<T>(
        &self,
        cursor: Option<&str>,
        gateway: impl AsyncFnOnce(&mut mpsc::Receiver<InboundBatch>) -> T,
    ) -> (T, Vec<LinkHealth>) {
        harness::listen(&self.adapter, cursor, async |mut batches| gateway(&mut batches).await).await
    }

    pub(crate) async fn run_until_link_ends(&self) -> (Error, Vec<LinkHealth>) {
        harness::run_until_link_ends(&self.adapter).await
    }

    pub(crate) async fn wait_until(
        &self,
        what: &str,
        look: impl FnMut(&State) -> Option<()> + Send + 'static,
    ) {
        let fake = self.fake.clone();
        harness::wait_for(what, move || fake.wait_until(TEST_TIMEOUT, look)).await;
    }

    pub(crate) async fn wait_for_acks(&self, count: usize) {
        let what = format!("{count} acknowledged");
        self.wait_until(&what, move |state| (state.acks().len() >= count).then_some(())).await;
    }

    pub(crate) async fn wait_for_sockets(&self, count: u64) {
        let what = format!("{count} sockets opened");
        self.wait_until(&what, move |state| (state.opened() >= count).then_some(())).await;
    }
}

/// Waits until the adapter has read every envelope: frames before a ping are read before its pong.
pub(crate) async fn wait_until_all_read(fixture: &SlackFixture) {
    let sent = |state: &State| {
        let all = state.deliveries().iter().all(|it| it.state != DeliveryState::Waiting);
        all.then_some(())
    };
    fixture.wait_until("everything is sent", sent).await;
    let pongs = fixture.fake.read(|state| state.heartbeats().0);
    fixture.fake.ping();
    fixture.wait_until("a pong", move |state| (state.heartbeats().0 > pongs).then_some(())).await;
}

/// Commits batches until `condition` is ready.
pub(crate) async fn commit_until(
    batches: &mut mpsc::Receiver<InboundBatch>,
    condition: impl Future<Output = ()>,
) -> Vec<Inbound> {
    let mut events = Vec::new();
    let commits = async {
        while let Some(batch) = batches.recv().await {
            events.extend(batch.events);
            let _ = batch.done.send(CommitResult::Committed);
        }
    };
    tokio::select! {
        () = commits => panic!("the link ended"),
        () = condition => {}
    }
    events
}

pub(crate) fn route(channel: &str, thread: Option<&str>) -> Route {
    harness::route("slack", channel, thread)
}
