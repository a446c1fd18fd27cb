//! A gateway inside this process: real store, real sockets, fake Telegram and model on loopback.
#![allow(dead_code, clippy::expect_used, reason = "each test file uses the part it needs")]

use std::time::Duration;

use petasos_agent::{ModelConfig, Provider, Secret};
use petasos_core::access::Access;
use petasos_core::admission::BusyMode;
use petasos_core::message::ChatType;
use petasos_core::session::{KeyOptions, Policies, Window};
use petasos_core::turn::Limits;
use petasos_core::{Inbound, Platform, Source};
use petasos_fakes::model::Model;
use petasos_fakes::telegram::Telegram;
use petasos_gateway::{Config, Handle, Running, Settings, Streaming};
use petasos_platforms::{Adapter, telegram};
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub const SOON: Duration = Duration::from_secs(20);

pub struct World {
    pub telegram: Telegram,
    pub model: Model,
    pub home: TempDir,
    pub runtime: Runtime,
    pub running: Option<(Handle, Running)>,
}

impl World {
    pub fn new(change: impl FnOnce(&mut Settings)) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let world = Self {
            telegram: Telegram::start().expect("fake telegram"),
            model: Model::start().expect("fake model"),
            home: TempDir::new().expect("a home"),
            runtime,
            running: None,
        };
        world.started(change)
    }

    fn started(mut self, change: impl FnOnce(&mut Settings)) -> Self {
        let mut settings = Settings {
            resets: Policies::default(),
            resume_window: Window::default(),
            busy: BusyMode::default(),
            busy_ack: true,
            streaming: Streaming::default(),
            limits: Limits::default(),
            workspace: self.home.path().join("workspace"),
            persona: None,
            tiers: std::collections::BTreeMap::new(),
            parallel_calls: 64,
        };
        change(&mut settings);
        let mut model = ModelConfig::new(Provider::Custom, "fake");
        model.base_url = Some(format!("{}/v1", self.model.url()));
        model.api_key = Some(Secret::new("sk-test"));
        model.retry_base = Duration::from_millis(10);
        let mut config = telegram::Config::new(petasos_platforms::Secret::new("123:abc"));
        config.base_url = format!("{}/bot", self.telegram.url());
        config.poll_backoff_base = Duration::from_millis(50);
        let adapter = Adapter::Telegram(telegram::Telegram::new(config).expect("an adapter"));
        let config = Config {
            home: self.home.path().to_owned(),
            model,
            adapters: vec![adapter],
            access: Access { allow_all: true, ..Access::default() },
            keys: KeyOptions::default(),
            settings,
            mirror: false,
        };
        self.running =
            Some(self.runtime.block_on(petasos_gateway::start(config)).expect("the gateway starts"));
        self
    }

    pub fn handle(&self) -> &Handle {
        &self.running.as_ref().expect("running").0
    }

    /// Says something on the web page.
    pub fn say(&self, chat: &str, text: &str) -> petasos_core::SessionKey {
        let inbound = web(chat, text);
        self.runtime.block_on(self.handle().submit(inbound)).expect("accepted").key
    }

    /// Waits until the chat shows these messages and no others.
    #[track_caller]
    pub fn shows(&self, chat: i64, want: &[&str]) {
        if !self.telegram.wait_texts(chat, want, SOON) {
            assert_eq!(self.telegram.texts(chat), want, "chat {chat}");
        }
    }

    /// Waits until the last message of the chat contains this.
    #[track_caller]
    pub fn ends_with(&self, chat: i64, want: &str) {
        let found = self.telegram.wait_until(SOON, |world| {
            world.last(chat).is_some_and(|message| message.text.contains(want)).then_some(())
        });
        assert!(found.is_some(), "chat {chat} shows {:?}, wanted {want:?}", self.telegram.texts(chat));
    }

    pub fn stop(&mut self) {
        if let Some((handle, running)) = self.running.take() {
            handle.shutdown();
            drop(handle);
            self.runtime.block_on(running.wait());
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
    }
}

pub fn web(chat: &str, text: &str) -> Inbound {
    let platform = Platform::parse("web").expect("known");
    let mut source = Source::new(platform, ChatType::Dm, chat);
    source.user_id = Some("owner".into());
    Inbound {
        source,
        dedup: format!("{chat}:{text}"),
        text: text.into(),
        attachments: vec![],
        quoted: None,
        sent_at: None,
        internal: false,
    }
}
