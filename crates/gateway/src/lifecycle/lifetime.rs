//! How a gateway starts, drains and ends, as its owner wants it. Plain values; whoever builds them has checked them.

use std::time::Duration;

use petasos_core::Platform;
use petasos_core::lifecycle::{boots, storm};
use petasos_core::link::Terms;
use petasos_core::session::CrashRecovery;
use petasos_core::target::Place;

use crate::home::bot_lock::Sole;

use crate::links::idle::Doze;

#[derive(Debug, Clone, PartialEq)]
pub struct Lifetime {
    /// How long a stop waits for running turns; zero interrupts them at once.
    pub drain_timeout: Duration,
    /// What becomes of conversations that a crash interrupted.
    pub crash_recovery: CrashRecovery,
    /// A drain marker older than this counts as forgotten; zero: none ever does.
    pub drain_max_age: Duration,
    /// Starts in a row after which suspects are resumed one by one.
    pub loop_guard: boots::Guard,
    /// Starts in a row after which suspects wait.
    pub storm: storm::Guard,
    /// How long suspects of this start wait because of a respawn storm. `None`: there is none.
    pub storm_pause: Option<Duration>,
    /// The interval that the service unit asks for; the one in force comes from the environment (`sd`).
    pub watchdog: Option<Duration>,
    /// Conversations that may have a turn at once. `None`: any number.
    pub session_cap: Option<usize>,
    /// Where each platform's owner wants to hear what nobody asked for, as configured. See `homes` for where it is now.
    pub home_channels: Vec<HomeChannel>,
    /// The thread of a home in which scheduled work speaks, if it is another one.
    pub scheduled_threads: Vec<(Platform, String)>,
    /// Platforms whose chats are not told about restarts.
    pub quiet_platforms: Vec<Platform>,
    /// Down for this long, and the owner hears of a platform.
    pub outage_notice: Duration,
    /// How links are tried; their names and their pulse are their own.
    pub reconnect: Terms,
    /// What only one gateway of this machine may use at a time; its link holds it.
    pub sole: Vec<Sole>,
    /// How long a connection may take to end before it is left behind.
    pub disconnect_within: Duration,
    /// Somebody starts us again when we end with 75.
    pub supervised: bool,
    /// What to do when nobody needs us.
    pub doze: Doze,
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
            loop_guard: boots::Guard::default(),
            storm: storm::Guard::default(),
            storm_pause: None,
            watchdog: None,
            session_cap: None,
            home_channels: Vec::new(),
            scheduled_threads: Vec::new(),
            quiet_platforms: Vec::new(),
            outage_notice: Duration::from_secs(180),
            reconnect: Terms::default(),
            sole: Vec::new(),
            disconnect_within: Duration::from_secs(5),
            supervised: false,
            doze: Doze::default(),
        }
    }
}

impl HomeChannel {
    pub(crate) fn place(&self) -> Place {
        Place { platform: self.platform, chat_id: self.chat_id.clone(), thread_id: self.thread_id.clone() }
    }
}
