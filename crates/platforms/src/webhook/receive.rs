//! The link: a listener that proves itself. Nobody knows when the next delivery comes, so silence says nothing; we ask
//! ourselves whether we answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

use super::answer::{HEALTH, answer};
use super::{Desk, Error, News, Webhook};
use crate::intake::{Health, Intake};
use crate::listener::{Listener, NotBound, is_served};

/// How often we ask. A link is deaf after two minutes without a sign of life.
const BEAT: Duration = Duration::from_secs(30);
/// Questions without an answer, in a row, that end the link; the next one binds anew.
const MISSES: u32 = 3;
/// News that may wait. They only say how the link is, so what does not fit is left out.
const NEWS: usize = 16;

impl Webhook {
    pub fn longest_silence(&self) -> Option<Duration> {
        Some(4 * BEAT)
    }

    /// Whether deliveries can be, or are, listened for here.
    pub async fn check(&self) -> Result<String, Error> {
        let place = format!("{}:{}", self.place.host, self.place.port);
        match Listener::bind(&self.place).await {
            Ok(_free) => Ok(format!("{place} is free")),
            Err(NotBound::InUse(_)) if is_served(&self.place, HEALTH).await => Ok(format!("{place} answers")),
            Err(error) => Err(error.into()),
        }
    }

    pub async fn receive(
        &self,
        _cursor: Option<String>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        health(Health::Connecting);
        let listener = match Listener::bind(&self.place).await {
            Ok(listener) => listener,
            Err(error) => return error.into(),
        };
        info!(platform = "webhook", host = self.place.host, port = self.place.port, "listening");
        let (told, news) = mpsc::channel(NEWS);
        let desk = Arc::new(Desk::new(self, intake.clone(), told));
        tokio::select! {
            never = listener.serve(move |request| answer(desk.clone(), request)) => match never {},
            error = watch(&listener, news, health) => error,
        }
    }
}

async fn watch(
    listener: &Listener,
    mut news: mpsc::Receiver<News>,
    health: &mut (dyn FnMut(Health) + Send),
) -> Error {
    let mut misses = 0;
    let mut next = Instant::now();
    loop {
        let heard = tokio::select! {
            news = news.recv() => news,
            () = sleep_until(next) => None,
        };
        match heard {
            Some(News::Heard) => {
                misses = 0;
                health(Health::Polling);
            }
            Some(News::NotTaken) => health(Health::Degraded { reason: "webhook_not_taken" }),
            Some(News::Gone) => return Error::Closed,
            None => {
                next = Instant::now() + BEAT;
                // Whoever takes every seat keeps us busy; closing the door would only help them.
                if listener.answers(HEALTH).await || listener.is_full() {
                    misses = 0;
                    health(Health::Polling);
                } else {
                    misses += 1;
                    warn!(platform = "webhook", misses, "our own listener does not answer");
                    health(Health::Degraded { reason: "webhook_not_answering" });
                }
            }
        }
        if misses >= MISSES {
            return Error::Deaf;
        }
    }
}
