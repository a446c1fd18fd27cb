//! Self-check of webhook listeners. Silence says nothing about a link that only receives calls, so the
//! listener requests its own health path.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde_json::json;
use tokio::sync::mpsc;
use tracing::warn;

use crate::listener::{self, Listener, SELF_CHECK_TIMEOUT};

pub(crate) const HEALTH_PATH: &str = "/health";
/// Missed self-checks in a row that end a link; the next link binds anew.
const MAX_MISSES: u32 = 3;
/// Further signals are dropped.
const SIGNAL_QUEUE: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkSignal {
    RequestHandled,
    NotStored,
    GatewayClosed,
}

/// Reports the results of requests to the link's health watcher.
#[derive(Debug, Clone)]
pub(crate) struct SignalSender(mpsc::Sender<LinkSignal>);

impl SignalSender {
    pub(crate) fn new() -> (Self, mpsc::Receiver<LinkSignal>) {
        let (sender, receiver) = mpsc::channel(SIGNAL_QUEUE);
        (Self(sender), receiver)
    }

    pub(crate) fn send(&self, signal: LinkSignal) {
        // Dropped if the queue is full.
        let _ = self.0.try_send(signal);
    }
}

pub(crate) fn health_response(platform: &str) -> Response {
    listener::json_response(StatusCode::OK, &json!({ "status": "ok", "platform": platform }))
}

pub(crate) fn is_health_check(method: &Method, path: &str) -> bool {
    *method == Method::GET && path == HEALTH_PATH
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SelfCheckResult {
    Responding,
    Missed,
    /// Too many self-checks in a row got no response.
    Failed,
}

#[derive(Debug)]
pub(crate) struct SelfCheck {
    platform: &'static str,
    misses: u32,
    pub(crate) interval: Duration,
    within: Duration,
}

impl SelfCheck {
    pub(crate) fn new(platform: &'static str, interval: Duration) -> Self {
        Self { platform, misses: 0, interval, within: SELF_CHECK_TIMEOUT }
    }

    #[cfg(test)]
    pub(crate) fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// A request was handled.
    pub(crate) fn reset(&mut self) {
        self.misses = 0;
    }

    pub(crate) async fn run(&mut self, listener: &Listener) -> SelfCheckResult {
        // A full listener is busy, not broken; restarting it would not help.
        if listener.responds(HEALTH_PATH, self.within).await || listener.at_capacity() {
            self.misses = 0;
            return SelfCheckResult::Responding;
        }
        self.misses += 1;
        warn!(platform = self.platform, misses = self.misses, "listener missed a self-check");
        if self.misses >= MAX_MISSES { SelfCheckResult::Failed } else { SelfCheckResult::Missed }
    }
}
