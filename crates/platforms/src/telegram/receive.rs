//! The usual link: a long poll whose offset moves only after the gateway has committed.
//!
//! There is one poll at a time, by construction: the next request is made by the loop that read the last
//! answer. A backlog is never discarded. A crash at any point leaves the offset where the last commit
//! put it, and Telegram says again what came after; the inbox knows by `dedup` what it already has.

use std::convert::Infallible;
use std::future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use petasos_core::link::redial::{Hint, NO_JITTER, Policy, Redial};
use petasos_core::{Inbound, Platform};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::gate::Gate;
use super::wire::Me;
use super::{Error, Telegram, parse};
use crate::intake::{Health, Intake, NotTaken, Unreadable};

/// A server that answers an idle poll sooner than this does not hold it as asked; asking again at once
/// would become a storm, so we take a breath.
const HASTE: Duration = Duration::from_millis(50);
const BREATH: Duration = Duration::from_millis(100);
/// Most updates that one poll brings.
const PAGE: usize = 100;
/// Updates we read; Telegram does not send the others.
pub(super) const WANTED: [&str; 3] = ["message", "channel_post", "callback_query"];

impl Telegram {
    pub async fn receive(
        &self,
        cursor: Option<String>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        if let Some(door) = &self.door {
            return tokio::select! {
                error = self.be_called(door, intake, health) => error,
                never = lasting(self.publish_menu()) => match never {},
            };
        }
        let offset = cursor.and_then(|cursor| cursor.parse().ok());
        tokio::select! {
            error = self.listen(offset, intake, health) => error,
            never = lasting(self.beside_the_poll()) => match never {},
        }
    }

    async fn listen(
        &self,
        mut offset: Option<i64>,
        intake: &Intake,
        health: &mut (dyn FnMut(Health) + Send),
    ) -> Error {
        health(Health::Connecting);
        let policy = Policy::long_poll(self.config.poll_backoff_base);
        let mut redial = Redial::new(policy);
        // A gateway that stores nothing at the moment is no reason to give the link up.
        let mut unstored = Redial::new(policy.without_limit());
        let mut me: Option<Me> = None;
        // The first poll after trouble does not linger: its answer is the proof of life. Nor do those that catch up:
        // one that brings nothing is the proof that nothing waits.
        let mut linger = Duration::ZERO;
        let brought = AtomicBool::new(false);
        let mut withheld = pin!(self.withheld(&brought));
        loop {
            let asked = Instant::now();
            let round = tokio::select! {
                round = self.round(&mut me, offset, linger) => round,
                waiting = &mut withheld => {
                    warn!(platform = "telegram", waiting, "updates wait that no poll brings; polling anew");
                    health(Health::Degraded { reason: "telegram_updates_withheld" });
                    withheld.set(self.withheld(&brought));
                    linger = Duration::ZERO;
                    continue;
                }
            };
            let (me, polled) = match round {
                Ok(round) => round,
                // There is no connection yet: how often to try is the supervisor's business.
                Err(error) => return error,
            };
            match polled {
                Ok(updates) => {
                    redial.reset();
                    let some = !updates.is_empty();
                    let more = updates.len() >= PAGE || (some && linger.is_zero());
                    health(if more { Health::CatchingUp } else { Health::Polling });
                    if some {
                        brought.store(true, Ordering::Relaxed);
                    }
                    let hasty = (some || !linger.is_zero()) && asked.elapsed() < HASTE;
                    linger = if more { Duration::ZERO } else { self.config.poll_timeout };
                    match self.hand_over(updates, offset, me, intake).await {
                        Ok(next) => {
                            unstored.reset();
                            if hasty && next == offset {
                                sleep(BREATH).await;
                            }
                            offset = next;
                            continue;
                        }
                        Err(NotTaken::Refused | NotTaken::Unfit) => {
                            let Some(wait) = unstored.after(Hint::Resume, NO_JITTER) else {
                                return Error::Closed;
                            };
                            defer(wait, "telegram_not_taken", health).await;
                        }
                        Err(NotTaken::Closed) => return Error::Closed,
                    }
                }
                Err(error) => match redial.after(error.hint(), NO_JITTER) {
                    Some(Duration::ZERO) if error.is_webhook_active() => {
                        warn!(platform = "telegram", "a webhook was set for this bot; removing it");
                        self.delete_webhook().await;
                    }
                    Some(wait) => defer(wait, error.code(), health).await,
                    None => return error.given_up(),
                },
            }
            linger = Duration::ZERO;
        }
    }

    /// One poll. The first one finds out who we are at the same time; without that there is no connection.
    async fn round<'a>(
        &self,
        known: &'a mut Option<Me>,
        offset: Option<i64>,
        linger: Duration,
    ) -> Result<(&'a Me, Result<Vec<Box<RawValue>>, Error>), Error> {
        match known {
            Some(me) => Ok((me, self.get_updates(offset, linger).await)),
            None => {
                let (me, polled) = tokio::join!(self.get_me(), self.get_updates(offset, linger));
                let me = known.insert(me?);
                info!(platform = "telegram", bot = me.username, "connected");
                Ok((me, polled))
            }
        }
    }

    /// The offset to go on from, once the gateway has what came before it.
    async fn hand_over(
        &self,
        updates: Vec<Box<RawValue>>,
        offset: Option<i64>,
        me: &Me,
        intake: &Intake,
    ) -> Result<Option<i64>, NotTaken> {
        // Telegram may begin to number anew, so the last batch counts and not the highest number ever.
        let Some(last) = updates.iter().filter_map(|raw| parse::number(raw)).max() else {
            return Ok(offset);
        };
        let (events, unreadable) = sorted(&updates, self.platform, me, &self.gate);
        let next = last.saturating_add(1);
        intake.commit(events, unreadable, Some(next.to_string())).await?;
        Ok(Some(next))
    }

    pub async fn check(&self) -> Result<String, Error> {
        Ok(format!("@{}", self.get_me().await?.username))
    }

    pub(super) async fn get_me(&self) -> Result<Me, Error> {
        self.talk.call("getMe", &json!({}), self.config.request_timeout).await
    }

    /// Best effort: a webhook that is still there shows itself as a refused poll.
    async fn delete_webhook(&self) {
        let parameters = json!({ "drop_pending_updates": false });
        let deleted: Result<Value, Error> =
            self.talk.call("deleteWebhook", &parameters, self.config.request_timeout).await;
        if let Err(error) = deleted {
            debug!(platform = "telegram", %error, "webhook not removed");
        }
    }

    async fn get_updates(&self, offset: Option<i64>, linger: Duration) -> Result<Vec<Box<RawValue>>, Error> {
        let mut parameters = json!({ "timeout": linger.as_secs(), "limit": PAGE, "allowed_updates": WANTED });
        if let Some(offset) = offset {
            parameters["offset"] = offset.into();
        }
        self.poll.call("getUpdates", &parameters, linger + self.config.poll_grace).await
    }

    /// What a new link does once and no message waits for.
    async fn beside_the_poll(&self) {
        tokio::join!(self.delete_webhook(), self.publish_menu());
    }

    /// Best effort: the commands work without a menu.
    async fn publish_menu(&self) {
        if self.config.menu.is_empty() {
            return;
        }
        let parameters = json!({ "commands": self.config.menu });
        let published: Result<Value, Error> =
            self.talk.call("setMyCommands", &parameters, self.config.request_timeout).await;
        if let Err(error) = published {
            debug!(platform = "telegram", %error, "command menu not published");
        }
    }
}

async fn defer(wait: Duration, reason: &'static str, health: &mut (dyn FnMut(Health) + Send)) {
    warn!(platform = "telegram", reason, ?wait, "poll deferred");
    health(Health::Degraded { reason });
    sleep(wait).await;
}

/// Never returns, so that it ends with the link it stands beside.
async fn lasting(work: impl Future<Output = ()>) -> Infallible {
    work.await;
    future::pending().await
}

/// What is for us, and what cannot be read.
pub(super) fn sorted(
    updates: &[Box<RawValue>],
    platform: Platform,
    me: &Me,
    gate: &Gate,
) -> (Vec<Inbound>, Vec<Unreadable>) {
    let (mut events, mut unreadable) = (Vec::new(), Vec::new());
    for raw in updates {
        match parse::inbound(raw, platform, me, gate) {
            Ok(event) => events.extend(event),
            // It must not stand in the way of the others.
            Err(error) => unreadable.push(set_aside(raw, &error)),
        }
    }
    (events, unreadable)
}

fn set_aside(raw: &RawValue, error: &serde_json::Error) -> Unreadable {
    let update_id = parse::number(raw);
    warn!(platform = "telegram", update_id, at = error.column(), "unreadable update set aside");
    Unreadable::shape(update_id.map(|id| id.to_string()), error, raw.get())
}
