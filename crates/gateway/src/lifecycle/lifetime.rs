//! Settings for start, drain and shutdown. Validated when they are built.

use std::time::Duration;

use petasos_core::lifecycle::{respawn, restart_breaker};
use petasos_core::link::LinkPolicy;
use petasos_core::session::CrashRecovery;
use petasos_core::target::ChatAddress;
use petasos_core::{Platform, Redactor};

use crate::home::bot_lock::BotLock;

use crate::links::idle::IdleSettings;

#[derive(Debug, Clone, PartialEq)]
pub struct Lifetime {
    /// How long a shutdown waits for running turns; zero interrupts them at once.
    pub drain_timeout: Duration,
    /// Treatment of conversations that a crash interrupted.
    pub crash_recovery: CrashRecovery,
    /// A drain marker expires after this; zero: never.
    pub drain_max_age: Duration,
    /// Starts in a row after which suspects are resumed one by one.
    pub loop_guard: restart_breaker::RestartBreaker,
    /// Starts in a row after which suspects wait.
    pub storm: respawn::RespawnLimit,
    /// How long suspects of this start wait because of a respawn storm.
    pub storm_pause: Option<Duration>,
    /// The interval for the service unit; the one in force comes from the environment (`sd`).
    pub watchdog: Option<Duration>,
    pub session_cap: Option<usize>,
    pub home_channels: Vec<HomeChannel>,
    /// Threads of home channels for the results of scheduled jobs.
    pub scheduled_threads: Vec<(Platform, String)>,
    /// Platforms without notices about restarts.
    pub quiet_platforms: Vec<Platform>,
    /// The owner is notified of an outage after this long.
    pub outage_notice: Duration,
    /// Reconnect policy; name and heartbeat interval are set per link.
    pub reconnect: LinkPolicy,
    /// Locks that the links hold: one process per bot token.
    pub bot_locks: Vec<BotLock>,
    /// A connection that takes longer to close is abandoned.
    pub disconnect_within: Duration,
    /// A supervisor restarts the process after exit code 75.
    pub supervised: bool,
    pub idle: IdleSettings,
    /// Hides secrets in the reasons of failed connections.
    pub redactor: Redactor,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HomeChannel {
    pub platform: Platform,
    pub chat_id: String,
    pub thread_id: Option<String>,
    pub name: String,
}

impl Default for Lifetime {
    fn default() -> Self {
        Self {
            drain_timeout: Duration::from_secs(60),
            crash_recovery: CrashRecovery::default(),
            drain_max_age: Duration::from_secs(3600),
            loop_guard: restart_breaker::RestartBreaker::default(),
            storm: respawn::RespawnLimit::default(),
            storm_pause: None,
            watchdog: None,
            session_cap: None,
            home_channels: Vec::new(),
            scheduled_threads: Vec::new(),
            quiet_platforms: Vec::new(),
            outage_notice: Duration::from_secs(180),
            reconnect: LinkPolicy::default(),
            bot_locks: Vec::new(),
            disconnect_within: Duration::from_secs(5),
            supervised: false,
            idle: IdleSettings::default(),
            redactor: Redactor::default(),
        }
    }
}

impl HomeChannel {
    pub(crate) fn address(&self) -> ChatAddress {
        ChatAddress {
            platform: self.platform,
            chat_id: self.chat_id.clone(),
            thread_id: self.thread_id.clone(),
        }
    }
}
