//! The drain marker, `.drain_request.json`.
//!
//! Clients (a dashboard, the command line) write and remove it; the gateway only reads it. `core::lifecycle::marker` decides
//! whether it is valid.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::lifecycle::marker::{self, ACTION, Marker, MarkerStatus};
use petasos_core::lifecycle::stamp;

use crate::home::files::write::Durable;
use crate::home::files::{read, write};
use crate::home::process;

pub const PRINCIPAL: &str = "drain-control";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainRequest {
    pub principal: String,
    pub suppress_notification: bool,
    pub reason: Option<String>,
}

impl Default for DrainRequest {
    fn default() -> Self {
        Self { principal: PRINCIPAL.into(), suppress_notification: false, reason: None }
    }
}

pub fn path(home: &Path) -> PathBuf {
    home.join(".drain_request.json")
}

pub fn write(home: &Path, ask: &DrainRequest, now: Millis) -> io::Result<Marker> {
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

/// `false`: there was no marker.
pub fn clear(home: &Path) -> io::Result<bool> {
    write::remove(&path(home), Durable::Synced)
}

pub fn read(home: &Path) -> Option<Marker> {
    read::bytes_if_readable(&path(home)).map(|bytes| Marker::parse(&bytes))
}

/// Identifies the boot of the machine and the container; unchanged by a restart of the gateway. `None`: unknown.
pub fn epoch() -> Option<String> {
    static EPOCH: OnceLock<Option<String>> = OnceLock::new();
    EPOCH
        .get_or_init(|| {
            let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok();
            epoch_of(boot.as_deref().map(str::trim), process::start_time_of(1))
        })
        .clone()
}

/// An unknown half stays empty.
fn epoch_of(boot: Option<&str>, start: Option<u64>) -> Option<String> {
    if boot.is_none() && start.is_none() {
        return None;
    }
    let start = start.map(|ticks| ticks.to_string());
    Some(format!("{}:{}", boot.unwrap_or_default(), start.unwrap_or_default()))
}

/// Reads the marker repeatedly; warns about an invalid marker only once.
#[derive(Debug)]
pub struct DrainMarkerReader {
    home: PathBuf,
    max_age: Duration,
    epoch: Option<String>,
    /// The last state, to warn only about changes.
    reported: Option<MarkerState>,
    /// The valid marker, as of the last successful read.
    last: Option<Marker>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum MarkerState {
    Nothing,
    Active(Marker),
    OtherBoot(Marker),
    Expired(Marker),
    Unreadable(io::ErrorKind),
}

impl DrainMarkerReader {
    /// `max_age` zero: markers never expire.
    pub fn new(home: impl Into<PathBuf>, max_age: Duration) -> Self {
        Self::with_epoch(home, max_age, epoch())
    }

    pub fn with_epoch(home: impl Into<PathBuf>, max_age: Duration, epoch: Option<String>) -> Self {
        Self { home: home.into(), max_age, epoch, reported: None, last: None }
    }

    /// The valid marker, if there is one. Read errors do not change the result.
    pub fn check(&mut self, now: Millis) -> Option<Marker> {
        let state = self.read_state(now);
        let is_new = self.is_new_state(&state);
        let before = self.last.take();
        match state {
            MarkerState::Active(marker) => self.last = Some(marker),
            MarkerState::OtherBoot(marker) if is_new => {
                tracing::warn!(principal = ?marker.principal, "ignoring drain marker of another boot");
            }
            MarkerState::Expired(marker) if is_new => {
                let Marker { principal, requested_at, .. } = marker;
                tracing::warn!(?principal, ?requested_at, "ignoring expired drain marker");
            }
            MarkerState::Unreadable(error) => {
                if is_new {
                    tracing::warn!(%error, drains = before.is_some(), "cannot read drain marker");
                }
                self.last = before;
            }
            MarkerState::Nothing | MarkerState::OtherBoot(_) | MarkerState::Expired(_) => {}
        }
        self.last.clone()
    }

    fn read_state(&self, now: Millis) -> MarkerState {
        let marker = match read::bytes(&path(&self.home)) {
            Ok(Some(bytes)) => Marker::parse(&bytes),
            Ok(None) => return MarkerState::Nothing,
            // An unreadable marker that exists is valid.
            Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Marker::default(),
            Err(error) => return MarkerState::Unreadable(error.kind()),
        };
        match marker::status(&marker, self.epoch.as_deref(), self.max_age, now) {
            MarkerStatus::Active => MarkerState::Active(marker),
            MarkerStatus::OtherBoot => MarkerState::OtherBoot(marker),
            MarkerStatus::Expired { .. } => MarkerState::Expired(marker),
        }
    }

    fn is_new_state(&mut self, state: &MarkerState) -> bool {
        if self.reported.as_ref() == Some(state) {
            return false;
        }
        self.reported = Some(state.clone());
        true
    }
}

#[cfg(test)]
#[path = "drain_tests.rs"]
mod tests;
