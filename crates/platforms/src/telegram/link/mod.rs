//! Long polling. The offset advances only after the gateway has committed.
//!
//! There is one poll at a time. A backlog is never discarded. A crash leaves the offset at the last commit;
//! Telegram delivers later updates again, and the inbox deduplicates.

mod stalled_poll;
mod webhook;

use std::convert::Infallible;
use std::future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use petasos_core::link::reconnect::{NO_JITTER, ReconnectPolicy, Reconnector, ResumeHint};
use petasos_core::{Inbound, Platform};
use petasos_runtime::clock;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tracing::{debug, info, warn};

pub use webhook::WebhookConfig;
pub(in crate::telegram) use webhook::WebhookEndpoint;

use crate::inbound::{CommitError, InboundSink, LinkHealth, Unreadable};
use crate::telegram::filter::MessageFilter;
use crate::telegram::wire::BotUser;
use crate::telegram::{Error, Telegram, parse};

/// Servers that answer an idle poll sooner do not hold it; `IDLE_POLL_PAUSE` prevents a request storm.
const MIN_IDLE_POLL: Duration = Duration::from_millis(50);
const IDLE_POLL_PAUSE: Duration = Duration::from_millis(100);
const MAX_UPDATES: usize = 100;
pub(in crate::telegram) const ALLOWED_UPDATES: [&str; 3] = ["message", "channel_post", "callback_query"];

impl Telegram {
    pub async fn receive(
        &self,
        cursor: Option<String>,
        sink: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        if let Some(endpoint) = &self.endpoint {
            return tokio::select! {
                error = self.receive_by_webhook(endpoint, sink, health) => error,
                never = run_then_pend(self.publish_menu()) => match never {},
            };
        }
        let offset = cursor.and_then(|cursor| cursor.parse().ok());
        tokio::select! {
            error = self.poll_loop(offset, sink, health) => error,
            never = run_then_pend(self.startup_requests()) => match never {},
        }
    }

    async fn poll_loop(
        &self,
        mut offset: Option<i64>,
        sink: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) -> Error {
        health(LinkHealth::Connecting);
        let policy = ReconnectPolicy::long_poll(self.config.poll_backoff_base);
        let mut backoff = Reconnector::new(policy);
        // Failed commits do not end the link.
        let mut commit_backoff = Reconnector::new(policy.without_limit());
        let mut me: Option<BotUser> = None;
        // The first poll after a failure returns at once to prove that the link works. Polls of a backlog do,
        // too: an empty one proves that it is drained.
        let mut hold = Duration::ZERO;
        let delivered_updates = AtomicBool::new(false);
        let mut stalled = pin!(self.stalled(&delivered_updates));
        loop {
            let started = clock::monotonic();
            let round = tokio::select! {
                round = self.poll_once(&mut me, offset, hold) => round,
                waiting = &mut stalled => {
                    warn!(platform = "telegram", waiting, "poll stalled while updates are pending; polling again");
                    health(LinkHealth::Degraded { reason: "telegram_updates_withheld" });
                    stalled.set(self.stalled(&delivered_updates));
                    hold = Duration::ZERO;
                    continue;
                }
            };
            let (me, polled) = match round {
                Ok(round) => round,
                // Not connected yet: the supervisor decides when to retry.
                Err(error) => return error,
            };
            match polled {
                Ok(updates) => {
                    backoff.reset();
                    let any = !updates.is_empty();
                    let more = updates.len() >= MAX_UPDATES || (any && hold.is_zero());
                    health(if more { LinkHealth::Backfilling } else { LinkHealth::Connected });
                    if any {
                        delivered_updates.store(true, Ordering::Relaxed);
                    }
                    let too_fast = (any || !hold.is_zero()) && started.elapsed() < MIN_IDLE_POLL;
                    hold = if more { Duration::ZERO } else { self.config.poll_timeout };
                    match self.commit_updates(updates, offset, me, sink).await {
                        Ok(next) => {
                            commit_backoff.reset();
                            if too_fast && next == offset {
                                clock::sleep(IDLE_POLL_PAUSE).await;
                            }
                            offset = next;
                            continue;
                        }
                        Err(CommitError::Refused | CommitError::Invalid) => {
                            let Some(wait) = commit_backoff.next_wait(ResumeHint::Resume, NO_JITTER) else {
                                return Error::Closed;
                            };
                            defer(wait, "telegram_not_taken", health).await;
                        }
                        Err(CommitError::Closed) => return Error::Closed,
                    }
                }
                Err(error) => match backoff.next_wait(error.hint(), NO_JITTER) {
                    Some(Duration::ZERO) if error.is_webhook_active() => {
                        warn!(platform = "telegram", "removing the webhook of this bot to poll");
                        self.delete_webhook().await;
                    }
                    Some(wait) => defer(wait, error.code(), health).await,
                    None => return error.into_link_error(),
                },
            }
            hold = Duration::ZERO;
        }
    }

    /// One poll. The first also requests `getMe`.
    async fn poll_once<'a>(
        &self,
        known: &'a mut Option<BotUser>,
        offset: Option<i64>,
        hold: Duration,
    ) -> Result<(&'a BotUser, Result<Vec<Box<RawValue>>, Error>), Error> {
        match known {
            Some(me) => Ok((me, self.get_updates(offset, hold).await)),
            None => {
                let (me, polled) = tokio::join!(self.get_me(), self.get_updates(offset, hold));
                let me = known.insert(me?);
                info!(platform = "telegram", bot = me.username, "connected");
                Ok((me, polled))
            }
        }
    }

    /// Returns the next offset after the commit.
    async fn commit_updates(
        &self,
        updates: Vec<Box<RawValue>>,
        offset: Option<i64>,
        me: &BotUser,
        sink: &InboundSink,
    ) -> Result<Option<i64>, CommitError> {
        // Telegram may restart its numbering, so the last batch counts, not the highest number ever.
        let Some(last) = updates.iter().filter_map(|raw| parse::update_id(raw)).max() else {
            return Ok(offset);
        };
        let (events, unreadable) = parse_updates(&updates, self.platform, me, &self.filter);
        let next = last.saturating_add(1);
        sink.commit(events, unreadable, Some(next.to_string())).await?;
        Ok(Some(next))
    }

    pub async fn check(&self) -> Result<String, Error> {
        Ok(format!("@{}", self.get_me().await?.username))
    }

    pub(in crate::telegram) async fn get_me(&self) -> Result<BotUser, Error> {
        self.api.call("getMe", &json!({}), self.config.request_timeout).await
    }

    /// Best effort: if the webhook stays, the next poll fails and names it.
    async fn delete_webhook(&self) {
        let parameters = json!({ "drop_pending_updates": false });
        let deleted: Result<Value, Error> =
            self.api.call("deleteWebhook", &parameters, self.config.request_timeout).await;
        if let Err(error) = deleted {
            debug!(platform = "telegram", %error, "cannot remove the webhook");
        }
    }

    async fn get_updates(&self, offset: Option<i64>, hold: Duration) -> Result<Vec<Box<RawValue>>, Error> {
        let mut parameters =
            json!({ "timeout": hold.as_secs(), "limit": MAX_UPDATES, "allowed_updates": ALLOWED_UPDATES });
        if let Some(offset) = offset {
            parameters["offset"] = offset.into();
        }
        self.poll_api.call("getUpdates", &parameters, hold + self.config.poll_grace).await
    }

    /// Requests at the start of a link that no message waits for.
    async fn startup_requests(&self) {
        tokio::join!(self.delete_webhook(), self.publish_menu());
    }

    /// Best effort: commands work without a menu.
    async fn publish_menu(&self) {
        if self.config.menu.is_empty() {
            return;
        }
        let parameters = json!({ "commands": self.config.menu });
        let published: Result<Value, Error> =
            self.api.call("setMyCommands", &parameters, self.config.request_timeout).await;
        if let Err(error) = published {
            debug!(platform = "telegram", %error, "cannot publish the command menu");
        }
    }
}

async fn defer(wait: Duration, reason: &'static str, health: &mut (dyn FnMut(LinkHealth) + Send)) {
    warn!(platform = "telegram", reason, ?wait, "poll deferred");
    health(LinkHealth::Degraded { reason });
    clock::sleep(wait).await;
}

/// Keeps the future pending, so `select!` ends it with the link.
async fn run_then_pend(work: impl Future<Output = ()>) -> Infallible {
    work.await;
    future::pending().await
}

pub(in crate::telegram) fn parse_updates(
    updates: &[Box<RawValue>],
    platform: Platform,
    me: &BotUser,
    filter: &MessageFilter,
) -> (Vec<Inbound>, Vec<Unreadable>) {
    let mut events = Vec::new();
    let mut unreadable = Vec::new();
    for raw in updates {
        match parse::inbound(raw, platform, me, filter) {
            Ok(event) => events.extend(event),
            // One bad update must not block the others.
            Err(error) => unreadable.push(unreadable_update(raw, &error)),
        }
    }
    (events, unreadable)
}

fn unreadable_update(raw: &RawValue, error: &serde_json::Error) -> Unreadable {
    let update_id = parse::update_id(raw);
    warn!(platform = "telegram", update_id, at = error.column(), "unreadable update stored");
    Unreadable::shape(update_id.map(|id| id.to_string()), error, raw.get())
}
