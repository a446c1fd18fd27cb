//! `.drain_request.json`: asking a gateway for quiet, and noticing that somebody does.
//!
//! Written by whoever asks (a dashboard, the command line), removed by them too; the gateway only looks. Whether a
//! marker counts is decided in `core::lifecycle::marker`. A `Lookout` belongs to the task that looks.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::lifecycle::marker::{self, ACTION, Marker, Standing};
use petasos_core::lifecycle::stamp;

use crate::home::files::write::Durable;
use crate::home::files::{read, write};
use crate::home::process;

/// Who asks when nobody says who it is.
pub const PRINCIPAL: &str = "drain-control";

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    pub principal: String,
    pub suppress_notification: bool,
    pub reason: Option<String>,
}

impl Default for Ask {
    fn default() -> Self {
        Self { principal: PRINCIPAL.into(), suppress_notification: false, reason: None }
    }
}

pub fn path(home: &Path) -> PathBuf {
    home.join(".drain_request.json")
}

/// Asks, or renews what was asked.
pub fn write(home: &Path, ask: &Ask, now: Millis) -> io::Result<Marker> {
    let marker = Marker {
        action: Some(ACTION.into()),
        requested_at: Some(stamp::format(now)),
        principal: Some(ask.principal.clone()),
        epoch: epoch(),
        suppress_notification: ask.suppress_notification,
        reason: ask.reason.clone(),
    };
    write::replace(&path(home), &serde_json::to_vec_pretty(&marker)?, Durable::Synced)?;
    Ok(marker)
}

/// False: nobody had asked.
pub fn clear(home: &Path) -> io::Result<bool> {
    write::remove(&path(home), Durable::Synced)
}

/// The marker as it stands, whether or not it counts.
pub fn read(home: &Path) -> Option<Marker> {
    read::bytes_if_readable(&path(home)).map(|bytes| Marker::parse(&bytes))
}

/// This boot of the machine and the container: the same for a gateway that is started again, another after either
/// is. `None`: this machine does not tell.
pub fn epoch() -> Option<String> {
    static EPOCH: OnceLock<Option<String>> = OnceLock::new();
    EPOCH
        .get_or_init(|| {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
            epoch_of(boot.as_deref().map(str::trim), process::start_time_of(1))
        })
        .clone()
}

/// A half that is not known stays empty.
fn epoch_of(boot: Option<&str>, start: Option<u64>) -> Option<String> {
    if boot.is_none() && start.is_none() {
        return None;
    }
    let start = start.map(|ticks| ticks.to_string());
    Some(format!("{}:{}", boot.unwrap_or_default(), start.unwrap_or_default()))
}

/// Looks for the marker again and again, and complains about one that does not count only once.
#[derive(Debug)]
pub struct Lookout {
    home: PathBuf,
    max_age: Duration,
    epoch: Option<String>,
    /// What was complained about last. Forgotten as soon as something else is seen.
    told: Option<Sight>,
    /// The marker that counted when the file could last be read.
    last: Option<Marker>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Sight {
    Nothing,
    Active(Marker),
    OtherBoot(Marker),
    Expired(Marker),
    Unreadable(io::ErrorKind),
}

impl Lookout {
    /// `max_age` zero: a marker counts for ever.
    pub fn new(home: impl Into<PathBuf>, max_age: Duration) -> Self {
        Self::with_epoch(home, max_age, epoch())
    }

    pub fn with_epoch(home: impl Into<PathBuf>, max_age: Duration, epoch: Option<String>) -> Self {
        Self { home: home.into(), max_age, epoch, told: None, last: None }
    }

    /// The marker, if there is one that counts. One that cannot be read for the moment counts as before.
    pub fn look(&mut self, now: Millis) -> Option<Marker> {
        let sight = self.see(now);
        let news = self.is_news(&sight);
        let before = self.last.take();
        match sight {
            Sight::Active(marker) => self.last = Some(marker),
            Sight::OtherBoot(marker) if news => {
                tracing::warn!(principal = ?marker.principal, "drain marker of another boot is ignored");
            }
            Sight::Expired(marker) if news => {
                let Marker { principal, requested_at, .. } = marker;
                tracing::warn!(?principal, ?requested_at, "drain marker that nobody renews is ignored");
            }
            Sight::Unreadable(error) => {
                if news {
                    tracing::warn!(%error, drains = before.is_some(), "drain marker cannot be read");
                }
                self.last = before;
            }
            Sight::Nothing | Sight::OtherBoot(_) | Sight::Expired(_) => {}
        }
        self.last.clone()
    }

    fn see(&self, now: Millis) -> Sight {
        let marker = match read::bytes(&path(&self.home)) {
            Ok(Some(bytes)) => Marker::parse(&bytes),
            Ok(None) => return Sight::Nothing,
            // It is there, and makes no sense: that is all it takes.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Marker::default(),
            Err(error) => return Sight::Unreadable(error.kind()),
        };
        match marker::standing(&marker, self.epoch.as_deref(), self.max_age, now) {
            Standing::Active => Sight::Active(marker),
            Standing::OtherBoot => Sight::OtherBoot(marker),
            Standing::Expired { .. } => Sight::Expired(marker),
        }
    }

    fn is_news(&mut self, sight: &Sight) -> bool {
        if self.told.as_ref() == Some(sight) {
            return false;
        }
        self.told = Some(sight.clone());
        true
    }
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
