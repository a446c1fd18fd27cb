//! One message and its answer: posted exactly once across reconnections, then followed to its end.

use std::time::Duration;

use petasos_core::transcript::Role;
use petasos_core::{Millis, notices};
use petasos_runtime::clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::feed::{Feed, FeedEvent};
use super::view::View;
use crate::client::{Client, Error};
use crate::failure::Failure;
use crate::observe::LifecycleStatus;
use crate::print::{errln, now};

/// A notice may be the whole answer or precede one: the answer is complete if nothing follows within this.
const QUIET_AFTER_NOTICE: Duration = Duration::from_millis(1000);
/// The same for a notice without a turn (the queue is full).
const QUIET_BEFORE_TURN: Duration = Duration::from_secs(3);
const QUIET_AFTER_COMMAND: Duration = Duration::from_millis(250);
/// A session that is being loaded delivers its transcript within this.
const LOAD_TIMEOUT: Duration = Duration::from_millis(150);
const RETRY_DELAY: Duration = Duration::from_millis(300);
const MAX_ABSENCE: Duration = Duration::from_secs(60);
const STOPPED_SUFFIXES: [&str; 2] = [notices::STOPPED_SUFFIX, notices::STOPPED_BEFORE_ANSWER];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ExchangeOutcome {
    Answered,
    /// By another client or by another message.
    Stopped,
    Interrupted,
}

#[derive(Debug)]
pub(super) struct Exchange {
    client: Client,
    chat: String,
    feed: Feed,
    session: Option<String>,
    live: bool,
    /// Time of the last message: earlier rows are not its answer.
    asked_at: Millis,
}

#[derive(Debug, Default)]
struct ExchangeProgress {
    /// Id of the message. Rows of another turn before its own row are not its answer.
    id: String,
    started: bool,
    answered: bool,
    noticed: bool,
    interrupted: bool,
    stopped: bool,
    lost: Option<Instant>,
}

impl Exchange {
    pub(super) fn new(client: Client, chat: String, feed: Feed) -> Self {
        Self { client, chat, feed, session: None, live: false, asked_at: Millis(0) }
    }

    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Loads earlier messages. The first event that is not a row ends them, except that a session which is
    /// being loaded first reports idle.
    pub(super) async fn load_history(&mut self, view: &mut View) {
        let mut earlier = Vec::new();
        loop {
            match tokio::time::timeout(LOAD_TIMEOUT, self.feed.next()).await {
                Ok(Some(FeedEvent::Row(row))) => earlier.push(row),
                Ok(Some(FeedEvent::Session(id))) => self.session = Some(id),
                Ok(Some(FeedEvent::Idle)) if self.session.is_none() => {}
                Ok(Some(other)) => {
                    view.show_earlier(&earlier);
                    return self.handle(other, view, &mut ExchangeProgress::default());
                }
                Ok(None) | Err(_) => return view.show_earlier(&earlier),
            }
        }
    }

    /// `None` once the feed has ended.
    pub(super) async fn next_event(&mut self) -> Option<FeedEvent> {
        self.feed.next().await
    }

    fn drain(&mut self, view: &mut View) {
        while let Some(event) = self.feed.try_next() {
            self.handle(event, view, &mut ExchangeProgress::default());
        }
        view.finish_live();
    }

    pub(super) async fn send_and_wait(
        &mut self,
        text: &str,
        view: &mut View,
    ) -> Result<ExchangeOutcome, Failure> {
        self.drain(view);
        self.asked_at = now();
        let id = self.post(text).await?;
        view.begin();
        view.add_pending(&id, text);
        let command = text.starts_with('/');
        let mut progress = ExchangeProgress { id, started: command, ..ExchangeProgress::default() };
        loop {
            let quiet = progress.noticed && !self.live;
            let quiet_period = match (command, progress.started) {
                (true, _) => QUIET_AFTER_COMMAND,
                (false, true) => QUIET_AFTER_NOTICE,
                (false, false) => QUIET_BEFORE_TURN,
            };
            tokio::select! {
                event = self.feed.next() => match event {
                    Some(event) => self.handle(event, view, &mut progress),
                    None => return Err(Error::Unreachable.into()),
                },
                () = clock::sleep(quiet_period), if quiet => progress.answered = true,
                () = absence_timeout(progress.lost), if progress.lost.is_some() => {
                    view.finish_live();
                    return Err(gateway_gone().next("petasos run starts it again; the message is stored and answered then"));
                }
                interrupt = tokio::signal::ctrl_c() => {
                    if interrupt.is_err() || progress.interrupted {
                        view.finish_live();
                        return Ok(ExchangeOutcome::Interrupted);
                    }
                    progress.interrupted = true;
                    if let Err(failure) = self.stop().await {
                        errln!("The answer could not be stopped: {failure}");
                    }
                }
            }
            if !self.live && progress.answered {
                view.finish_live();
                return Ok(match (progress.interrupted, progress.stopped) {
                    (true, _) => ExchangeOutcome::Interrupted,
                    (false, true) => ExchangeOutcome::Stopped,
                    (false, false) => ExchangeOutcome::Answered,
                });
            }
        }
    }

    fn handle(&mut self, event: FeedEvent, view: &mut View, progress: &mut ExchangeProgress) {
        match &event {
            FeedEvent::Row(row) if row.message.at < self.asked_at => return,
            FeedEvent::Row(row) => match row.message.role {
                Role::User if row.message.platform_message_id.as_ref() == Some(&progress.id) => {
                    progress.started = true;
                    progress.noticed = false;
                    view.begin();
                }
                Role::Assistant if row.message.tool_calls.is_empty() && progress.started => {
                    progress.answered = true;
                    progress.stopped =
                        STOPPED_SUFFIXES.iter().any(|suffix| row.message.content.ends_with(suffix));
                }
                Role::Notice => progress.noticed = true,
                Role::Assistant | Role::User | Role::Tool | Role::Summary => {}
            },
            FeedEvent::Live { .. } => self.live = true,
            FeedEvent::Idle => {
                // An interrupted turn may leave no answer.
                progress.answered |=
                    self.live && progress.started && (progress.interrupted || progress.noticed);
                self.live = false;
            }
            FeedEvent::Session(id) => self.session = Some(id.clone()),
            FeedEvent::Disconnected => {
                progress.lost = Some(clock::monotonic());
                self.live = false;
                errln!(
                    "The connection to the gateway is lost; waiting up to {} s for it to return",
                    MAX_ABSENCE.as_secs()
                );
            }
            FeedEvent::Reconnected => {
                progress.lost = None;
                errln!("Connected again");
            }
        }
        view.show(event);
    }

    /// Posts a message and returns its id. Retries reuse the id, so a message whose acknowledgement was lost
    /// is stored once.
    pub(super) async fn post(&mut self, text: &str) -> Result<String, Failure> {
        let id: String = petasos_gateway::clock::secret().chars().take(32).collect();
        let path = format!("/api/chats/terminal/{}/messages", self.chat);
        let body = json!({ "text": text, "id": id });
        let since = clock::monotonic();
        loop {
            match self.client.post::<Value>(&path, &body).await {
                Ok(_) => return Ok(id),
                Err(Error::Unreachable) if since.elapsed() < MAX_ABSENCE => tokio::select! {
                    () = clock::sleep(RETRY_DELAY) => {}
                    _ = tokio::signal::ctrl_c() => return Err(Error::Unreachable.into()),
                },
                Err(error) => return Err(self.refused(error).await),
            }
        }
    }

    /// Adds advice to a refusal during a drain.
    async fn refused(&self, error: Error) -> Failure {
        let closed = error.detail("code").and_then(Value::as_str) == Some("gateway_draining");
        let failure = Failure::from(error);
        if !closed {
            return failure;
        }
        let lifecycle: Result<LifecycleStatus, _> = self.client.get("/api/gateway/drain").await;
        if lifecycle.is_ok_and(|it| !it.is_shutting_down()) {
            return failure
                .next("petasos drain status shows who requested the drain; petasos resume ends the drain");
        }
        failure.next("petasos status shows its state; petasos run starts a stopped gateway")
    }

    pub(super) async fn stop(&self) -> Result<(), Failure> {
        let path = format!("/api/chats/terminal/{}/stop", self.chat);
        self.client.post::<Value>(&path, &json!({})).await?;
        Ok(())
    }
}

async fn absence_timeout(since: Option<Instant>) {
    let waited = since.map(|since| since.elapsed()).unwrap_or_default();
    clock::sleep(MAX_ABSENCE.saturating_sub(waited)).await;
}

fn gateway_gone() -> Failure {
    Failure::new(format!("the gateway has not responded for {} s", MAX_ABSENCE.as_secs()))
}
