//! A fake Telegram and its adapter, with short waits.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::Route;
use petasos_fakes::Telegram;
use petasos_fakes::telegram::State;
use petasos_platforms::telegram::{self, Config};
use petasos_platforms::{Adapter, Error, InboundBatch, LinkHealth, Secret};
use tokio::sync::mpsc;

use crate::harness;
pub(crate) use crate::harness::{TEST_TIMEOUT, commit_events, degraded, next_batch, texts};

pub(crate) const TOKEN: &str = "123456:secret";

#[derive(Debug)]
pub(crate) struct TelegramFixture {
    pub(crate) fake: Arc<Telegram>,
    pub(crate) adapter: Adapter,
}

pub(crate) fn fixture() -> TelegramFixture {
    fixture_with(|_| {})
}

pub(crate) fn fixture_with(change: impl FnOnce(&mut Config)) -> TelegramFixture {
    let fake = Arc::new(Telegram::start().expect("a fake"));
    let mut config = Config::new(Secret::new(TOKEN));
    config.base_url = format!("{}/bot", fake.url());
    config.poll_backoff_base = Duration::from_millis(1);
    config.request_timeout = TEST_TIMEOUT;
    change(&mut config);
    let adapter = Adapter::Telegram(telegram::Telegram::new(config).expect("valid"));
    TelegramFixture { fake, adapter }
}

impl TelegramFixture {
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

    pub(crate) fn polls(&self) -> usize {
        self.fake.calls_of("getUpdates").len()
    }
}

pub(crate) fn route(chat: i64) -> Route {
    harness::route("telegram", chat, None)
}
