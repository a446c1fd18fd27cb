//! A fake Telegram and an adapter that talks to it, without long waits.
#![allow(dead_code, unused_imports, reason = "each test binary uses its part")]
#![allow(clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../listening/mod.rs"]
mod listening;

use std::sync::Arc;
use std::time::Duration;

use petasos_core::Route;
use petasos_fakes::Telegram;
use petasos_fakes::telegram::World;
use petasos_platforms::telegram::{self, Config};
use petasos_platforms::{Adapter, Batch, Error, Health, Secret};
use tokio::sync::mpsc;

pub(crate) use listening::{SOON, degraded, next, take, texts};

pub(crate) const TOKEN: &str = "123456:secret";

#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) fake: Arc<Telegram>,
    pub(crate) adapter: Adapter,
}

pub(crate) fn rig() -> Rig {
    rig_with(|_| {})
}

pub(crate) fn rig_with(change: impl FnOnce(&mut Config)) -> Rig {
    let fake = Arc::new(Telegram::start().expect("a fake"));
    let mut config = Config::new(Secret::new(TOKEN));
    config.base_url = format!("{}/bot", fake.url());
    config.poll_backoff_base = Duration::from_millis(1);
    config.request_timeout = SOON;
    change(&mut config);
    let adapter = Adapter::Telegram(telegram::Telegram::new(config).expect("valid"));
    Rig { fake, adapter }
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

    pub(crate) fn polls(&self) -> usize {
        self.fake.calls_of("getUpdates").len()
    }
}

pub(crate) fn route(chat: i64) -> Route {
    listening::route("telegram", chat, None)
}
