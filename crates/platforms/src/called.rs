//! What links share that are called instead of calling: what their requests say about the link, and whether our own
//! listener still answers. Nobody knows when the next call comes, so silence says nothing; we ask ourselves.

use std::time::Duration;

use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde_json::json;
use tokio::sync::mpsc;
use tracing::warn;

use crate::listener::{self, Listener, PROOF};

/// Where we ask, and whoever watches us.
pub(crate) const HEALTH: &str = "/health";
/// Questions without an answer, in a row, that end a link; the next one binds anew.
const MISSES: u32 = 3;
/// News that may wait. They only say how the link is, so what does not fit is left out.
const DEPTH: usize = 16;

/// What a request says about the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    Heard,
    NotTaken,
    Gone,
}

/// The way from requests to whoever watches the link.
#[derive(Debug, Clone)]
pub(crate) struct Bell(mpsc::Sender<News>);

impl Bell {
    pub(crate) fn new() -> (Self, mpsc::Receiver<News>) {
        let (told, news) = mpsc::channel(DEPTH);
        (Self(told), news)
    }

    pub(crate) fn ring(&self, news: News) {
        // A full channel has news enough.
        let _ = self.0.try_send(news);
    }
}

/// What whoever asks at `HEALTH` is told.
pub(crate) fn healthy(platform: &str) -> Response {
    listener::json(StatusCode::OK, &json!({ "status": "ok", "platform": platform }))
}

pub(crate) fn is_question(method: &Method, path: &str) -> bool {
    *method == Method::GET && path == HEALTH
}

/// Whether our own listener answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hearing {
    Good,
    Poor,
    /// It has not answered for so long that it never will.
    Gone,
}

/// How many questions in a row had no answer.
#[derive(Debug)]
pub(crate) struct Echo {
    platform: &'static str,
    misses: u32,
    /// How often we ask, and how long an answer may take.
    pub(crate) every: Duration,
    within: Duration,
}

impl Echo {
    pub(crate) fn new(platform: &'static str, every: Duration) -> Self {
        Self { platform, misses: 0, every, within: PROOF }
    }

    #[cfg(test)]
    pub(crate) fn within(self, within: Duration) -> Self {
        Self { within, ..self }
    }

    /// Somebody else was answered.
    pub(crate) fn heard(&mut self) {
        self.misses = 0;
    }

    pub(crate) async fn ask(&mut self, listener: &Listener) -> Hearing {
        // Whoever takes every seat keeps us busy; closing the door would only help them.
        if listener.answers(HEALTH, self.within).await || listener.is_full() {
            self.misses = 0;
            return Hearing::Good;
        }
        self.misses += 1;
        warn!(platform = self.platform, misses = self.misses, "our own listener does not answer");
        if self.misses >= MISSES { Hearing::Gone } else { Hearing::Poor }
    }
}
