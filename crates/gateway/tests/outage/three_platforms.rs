//! Fixture: one gateway on Telegram, Discord and Slack with a manual clock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use petasos_agent::{ModelConfig, Provider, Secret};
use petasos_core::Platform;
use petasos_core::access::Access;
use petasos_core::admission::BusyMode;
use petasos_core::lifecycle::ShutdownReason;
use petasos_core::link::{Availability, Link, LinkPolicy};
use petasos_fakes::discord::Discord;
use petasos_fakes::model::Model;
use petasos_fakes::slack::{self as slack_fake, Slack};
use petasos_fakes::telegram::Telegram;
use petasos_gateway::retention::disk::DiskLimits;
use petasos_gateway::{Config, ExitInfo, Handle, HomeChannel, Lifetime, Settings};
use petasos_platforms::{Adapter, discord as d, slack as s, telegram as t};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::manual_clock::{ManualClock, settle};

/// The order of all per-platform results.
pub const NAMES: [&str; 3] = ["telegram", "discord", "slack"];
/// Chats for messages; the home channels are in `HOMES`.
pub const CHAT: i64 = 7;
pub const ROOM: u64 = 50;
pub const DIRECT: &str = "D1";
const HOMES: (i64, u64, &str) = (99, 51, "D9");

/// Serialises the tests, which share the process's clock and threads.
static TURN: Mutex<()> = Mutex::new(());

pub struct ThreePlatforms {
    pub telegram: Telegram,
    pub discord: Discord,
    pub slack: Slack,
    pub model: Model,
    pub time: ManualClock,
    handle: Option<Handle>,
    ended: Option<JoinHandle<ExitInfo>>,
    home: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl ThreePlatforms {
    /// A fixture without a running gateway.
    pub fn idle() -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let time = ManualClock::still();
        let telegram = Telegram::start_in(&time.runtime).expect("fake telegram");
        let discord = Discord::start_in(&time.runtime).expect("fake discord");
        discord.add_direct(ROOM);
        discord.add_direct(HOMES.1);
        let slack = Slack::start_in(&time.runtime).expect("fake slack");
        slack.add_channel(slack_fake::TEAM, HOMES.2);
        let model = Model::start_in(&time.runtime).expect("fake model");
        let home = TempDir::new().expect("a home");
        Self { telegram, discord, slack, model, time, handle: None, ended: None, home, _turn: turn }
    }

    pub fn start(&mut self, reconnect: LinkPolicy) {
        let mut model = ModelConfig::new(Provider::Custom, "fake");
        model.base_url = Some(format!("{}/v1", self.model.url()));
        model.api_key = Some(Secret::new("sk-test"));
        let home = self.home.path();
        let mut settings = Settings { busy: BusyMode::Queue, busy_ack: false, ..Settings::new(home) };
        // The disk of the test machine may be nearly full.
        settings.retention.disk = DiskLimits { percent: 0, bytes: 0, days: 0 };
        let config = Config {
            adapters: self.adapters(),
            access: Access { allow_all: true, ..Access::default() },
            settings,
            lifetime: Lifetime {
                drain_timeout: Duration::ZERO,
                home_channels: homes(),
                reconnect,
                ..Lifetime::default()
            },
            ..Config::new(home, model)
        };
        let (handle, ended) = self.time.runtime.block_on(async {
            let (handle, running) = petasos_gateway::start(config).await.expect("the gateway starts");
            (handle, petasos_runtime::spawn(running.wait()))
        });
        self.handle = Some(handle);
        self.ended = Some(ended);
        settle();
    }

    fn adapters(&self) -> Vec<Adapter> {
        let mut telegram = t::Config::new(petasos_platforms::Secret::new("123:abc"));
        telegram.base_url = format!("{}/bot", self.telegram.url());
        let mut discord = d::Config::new(petasos_platforms::Secret::new("OTAw.x.secret"));
        discord.api_base = self.discord.api_base();
        let mut slack = s::Config::new("xapp-1-A1-2-secret", slack_fake::TOKEN);
        slack.api_base = self.slack.api_base();
        // Longer than any clock step, so that a pong one step late is in time.
        (slack.ping_interval, slack.silence) = (Duration::from_secs(60), Duration::from_secs(150));
        vec![
            Adapter::Telegram(t::Telegram::new(telegram).expect("valid")),
            Adapter::Discord(d::Discord::new(discord).expect("valid")),
            Adapter::Slack(s::Slack::new(slack).expect("valid")),
        ]
    }

    pub fn links(&self) -> Vec<(&'static str, Link)> {
        let handle = self.handle.as_ref().expect("started");
        let status = self.time.runtime.block_on(handle.status()).expect("a status");
        status.links.into_iter().map(|it| (it.name, it.link)).collect()
    }

    /// `Some` when all links are connected.
    pub fn all_connected(&self) -> Option<()> {
        self.links().iter().all(|(_, link)| link.availability() == Availability::Up).then_some(())
    }

    pub fn down(&self) {
        self.telegram.down();
        self.discord.down();
        self.slack.down();
    }

    pub fn up(&self) {
        self.telegram.up().expect("a port");
        self.discord.up().expect("a port");
        self.slack.up().expect("a port");
    }

    /// Sends the text on every platform, with the platform's name.
    pub fn send_to_all(&self, text: &str) {
        self.telegram.push_text(CHAT, CHAT, format!("telegram {text}"));
        self.discord.push_text(ROOM, 5, format!("discord {text}"));
        self.slack.push_text(DIRECT, "U5", &format!("slack {text}"));
    }

    pub fn answers(&self) -> [Vec<String>; 3] {
        [self.telegram.texts(CHAT), self.discord.texts(ROOM), self.slack.texts(DIRECT)]
    }

    /// Which of these texts have no answer yet, by platform.
    pub fn unanswered(&self, texts: &[String]) -> Vec<String> {
        let answers = self.answers();
        let all = NAMES
            .iter()
            .zip(&answers)
            .flat_map(|(name, chat)| texts.iter().map(move |text| (format!("{name} {text}"), chat)));
        let missing = all.filter(|(text, chat)| !chat.iter().any(|message| message.contains(text)));
        missing.map(|(text, _)| text).collect()
    }

    pub fn home_notices(&self) -> [Vec<String>; 3] {
        [self.telegram.texts(HOMES.0), self.discord.texts(HOMES.1), self.slack.texts(HOMES.2)]
    }
}

impl Drop for ThreePlatforms {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let (Some(handle), Some(ended)) = (self.handle.take(), self.ended.take()) else { return };
        handle.shut_down(ShutdownReason::Stop, None);
        drop(handle);
        let second = Duration::from_secs(1);
        self.time.until("ended", 60 * second, second, || ended.is_finished().then_some(()));
    }
}

fn homes() -> Vec<HomeChannel> {
    let home = |platform: &str, chat_id: String| HomeChannel {
        platform: Platform::parse(platform).expect("known"),
        chat_id,
        thread_id: None,
        name: "Home".into(),
    };
    vec![
        home("telegram", HOMES.0.to_string()),
        home("discord", HOMES.1.to_string()),
        home("slack", HOMES.2.to_owned()),
    ]
}
