//! A fake Slack and an adapter that talks to it, without long waits.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::{Inbound, Route};
use petasos_fakes::Slack;
use petasos_fakes::slack::{State, TOKEN, World};
use petasos_platforms::slack::{self, Config};
use petasos_platforms::{Adapter, Batch, Error, Health, Taken};
use tokio::sync::mpsc;

use crate::listening;
pub(crate) use crate::listening::{SOON, degraded, next, take, texts};

pub(crate) const APP_TOKEN: &str = "xapp-1-A1-2-secret";

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) fake: Arc<Slack>,
    pub(crate) adapter: Adapter,
}

pub(crate) fn rig() -> Rig {
    rig_with(|_| {})
}

pub(crate) fn rig_with(change: impl FnOnce(&mut Config)) -> Rig {
    let fake = Arc::new(Slack::start().expect("a fake"));
    let adapter = adapter(&fake, change);
    Rig { fake, adapter }
}

pub(crate) fn adapter(fake: &Slack, change: impl FnOnce(&mut Config)) -> Adapter {
    let mut config = Config::new(APP_TOKEN, TOKEN);
    config.api_base = fake.api_base();
    config.reconnect_base = Duration::from_millis(1);
    config.request_timeout = SOON;
    change(&mut config);
    Adapter::Slack(slack::Slack::new(config).expect("valid"))
}

/// The fake's clock stands in another year.
pub(crate) fn any_age(config: &mut Config) {
    config.catch_up.window = Duration::MAX;
}

impl Rig {
    /// See `listening`.
    pub(crate) async fn listen<T>(
        &self,
        cursor: Option<&str>,
        gateway: impl AsyncFnOnce(&mut mpsc::Receiver<Batch>) -> T,
    ) -> (T, Vec<Health>) {
        listening::listen(&self.adapter, cursor, async |mut batches| gateway(&mut batches).await).await
    }

    pub(crate) async fn listen_to_the_end(&self) -> (Error, Vec<Health>) {
        listening::listen_to_the_end(&self.adapter).await
    }

    pub(crate) async fn wait_until(
        &self,
        what: &str,
        look: impl FnMut(&World) -> Option<()> + Send + 'static,
    ) {
        let fake = self.fake.clone();
        listening::happens(what, move || fake.wait_until(SOON, look)).await;
    }

    pub(crate) async fn acked(&self, count: usize) {
        let what = format!("{count} acknowledged");
        self.wait_until(&what, move |world| (world.acks().len() >= count).then_some(())).await;
    }

    pub(crate) async fn opened(&self, count: u64) {
        let what = format!("{count} sockets opened");
        self.wait_until(&what, move |world| (world.opened() >= count).then_some(())).await;
    }
}

/// Waits until every envelope has been read: what was sent before a ping is read before its pong.
pub(crate) async fn all_read(rig: &Rig) {
    let sent = |world: &World| {
        let out = world.deliveries().iter().all(|it| it.state != State::Waiting);
        out.then_some(())
    };
    rig.wait_until("everything is with us", sent).await;
    let pongs = rig.fake.look(|world| world.heartbeats().0);
    rig.fake.ping();
    rig.wait_until("a pong", move |world| (world.heartbeats().0 > pongs).then_some(())).await;
}

/// Takes batches until something else has happened.
pub(crate) async fn take_until(
    batches: &mut mpsc::Receiver<Batch>,
    happened: impl Future<Output = ()>,
) -> Vec<Inbound> {
    let mut events = Vec::new();
    let taking = async {
        while let Some(batch) = batches.recv().await {
            events.extend(batch.events);
            let _ = batch.done.send(Taken::Committed);
        }
    };
    tokio::select! {
        () = taking => panic!("the link ended"),
        () = happened => {}
    }
    events
}

pub(crate) fn route(channel: &str, thread: Option<&str>) -> Route {
    listening::route("slack", channel, thread)
}
