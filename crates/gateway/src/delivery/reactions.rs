//! Status reactions on the messages that a turn answers: seen, then done or failed. Best effort.
//!
//! Owns one bounded queue and one worker per platform that supports reactions. Nothing is stored: the route of a turn names the
//! message, so a later process that ends the turn can finish the reaction. Under load first reactions are dropped, so that
//! existing ones are finished.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::journal::MessageOutcome;
use petasos_core::rate_limit::MAX_WAIT;
use petasos_core::{Fault, Millis, Platform, Route};
use petasos_platforms::{Adapter, StatusReaction};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::clock;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::channels::Channels;

/// Queue size per platform; the second half is reserved for final reactions.
const DEPTH: usize = 128;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Minimum interval: the strictest platform allows one per quarter second.
const MIN_INTERVAL: Duration = Duration::from_millis(250);
/// How often deferred reactions are rechecked.
const RECHECK_EVERY: Duration = Duration::from_secs(60);
/// Time for final reactions during shutdown.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);

type QueuedReaction = (Route, StatusReaction);

#[derive(Debug, Default)]
pub(crate) struct ReactionQueues(HashMap<Platform, mpsc::Sender<QueuedReaction>>);

impl ReactionQueues {
    /// Returns the queues and their workers, which the caller spawns.
    pub(crate) fn new(
        channels: &Channels,
        shutdown: &ShutdownHandle,
    ) -> (Self, Vec<impl Future<Output = ()> + use<>>) {
        let mut queues = HashMap::new();
        let mut workers = Vec::new();
        for adapter in channels.adapters().filter(|adapter| adapter.capabilities().status_reactions) {
            let (queue, queue_rx) = mpsc::channel(DEPTH);
            queues.insert(adapter.platform(), queue);
            workers.push(run_worker(adapter.clone(), queue_rx, shutdown.clone()));
        }
        (Self(queues), workers)
    }

    pub(crate) fn turn_started(&self, route: &Route) {
        self.enqueue(route, StatusReaction::Seen);
    }

    pub(crate) fn turn_ended(&self, route: &Route, outcome: MessageOutcome) {
        self.enqueue(
            route,
            match outcome {
                MessageOutcome::Answered => StatusReaction::Done,
                MessageOutcome::Refused | MessageOutcome::Dead => StatusReaction::Failed,
                MessageOutcome::Merged | MessageOutcome::Cancelled => StatusReaction::Cleared,
            },
        );
    }

    fn enqueue(&self, route: &Route, reaction: StatusReaction) {
        let Some(queue) = self.0.get(&route.platform) else { return };
        if reaction == StatusReaction::Seen && queue.capacity() <= DEPTH / 2 {
            return;
        }
        if queue.try_send((route.clone(), reaction)).is_err() {
            tracing::debug!(platform = %route.platform, "reaction queue full; one dropped");
        }
    }
}

async fn run_worker(
    adapter: Arc<Adapter>,
    mut queue_rx: mpsc::Receiver<QueuedReaction>,
    shutdown: ShutdownHandle,
) {
    let mut deferred = DeferredReactions::default();
    loop {
        if let Some(queue_rx) = deferred.pop_due(clock::now()) {
            react_or_defer(&adapter, queue_rx, &mut deferred, &shutdown).await;
            continue;
        }
        petasos_runtime::select! {
            biased;
            () = shutdown.stopped() => break,
            next = queue_rx.recv() => match next {
                Some(queue_rx) => react_or_defer(&adapter, queue_rx, &mut deferred, &shutdown).await,
                None => return,
            },
            () = clock::sleep_until(deferred.next(clock::now())) => {}
        }
    }
    let rest = async {
        while let Ok((route, reaction)) = queue_rx.try_recv() {
            if reaction != StatusReaction::Seen {
                send(&adapter, &route, reaction, &shutdown).await;
            }
        }
    };
    let _late = timeout(SHUTDOWN_GRACE, rest).await;
}

/// Final reactions held back by a rate limit, with the time at which each may be sent.
#[derive(Debug, Default)]
struct DeferredReactions(Vec<(Millis, QueuedReaction)>);

impl DeferredReactions {
    /// Drops the oldest when full.
    fn add(&mut self, at: Millis, queue_rx: QueuedReaction) {
        self.0.retain(|(_, (route, _))| *route != queue_rx.0);
        if self.0.len() >= DEPTH {
            self.0.remove(0);
        }
        self.0.push((at, queue_rx));
    }

    fn pop_due(&mut self, now: Millis) -> Option<QueuedReaction> {
        let due = self.0.iter().position(|(at, _)| *at <= now || *at > now.after(MAX_WAIT))?;
        Some(self.0.remove(due).1)
    }

    /// When to recheck; bounded, because the clock may be set back.
    fn next(&self, now: Millis) -> Millis {
        let look = now.after(RECHECK_EVERY);
        self.0.iter().map(|(at, _)| *at).min().unwrap_or(look).min(look)
    }
}

/// Sends a reaction, or defers a final one until the rate limit ends. A first reaction is dropped instead.
async fn react_or_defer(
    adapter: &Adapter,
    (route, reaction): QueuedReaction,
    deferred: &mut DeferredReactions,
    shutdown: &ShutdownHandle,
) {
    let free_at = |now| adapter.reaction_free_at(&route, now);
    if free_at(clock::now()) <= clock::now() {
        send(adapter, &route, reaction, shutdown).await;
    } else if reaction == StatusReaction::Seen {
        return;
    }
    let now = clock::now();
    let free = free_at(now);
    if free > now && reaction != StatusReaction::Seen {
        deferred.add(free, (route.clone(), reaction));
    }
}

/// Tries a final reaction twice. No retry during shutdown.
async fn send(adapter: &Adapter, route: &Route, reaction: StatusReaction, shutdown: &ShutdownHandle) {
    for again in [reaction != StatusReaction::Seen, false] {
        match timeout(REQUEST_TIMEOUT, adapter.react(route, reaction)).await {
            Ok(Ok(())) => return clock::sleep(MIN_INTERVAL).await,
            Ok(Err(error)) => {
                tracing::debug!(platform = %route.platform, %error, "reaction not sent");
                match error.fault() {
                    Fault::Later { after: None } => {}
                    Fault::Later { after: Some(_) } | Fault::Refused | Fault::Fatal => {
                        return clock::sleep(MIN_INTERVAL).await;
                    }
                }
            }
            Err(_elapsed) => {}
        }
        petasos_runtime::select! {
            () = shutdown.stopped() => return,
            () = clock::sleep(MIN_INTERVAL) => {}
        }
        if !again {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::message::{ChatType, Delivery};
    use petasos_core::{Secret, Source};
    use petasos_fakes::discord::{self, Discord};
    use petasos_fakes::telegram::{Fault, Telegram};
    use petasos_platforms::telegram;

    use super::*;

    fn adapter(fake: &Telegram) -> Adapter {
        let mut config = telegram::Config::new(Secret::new("123:abc"));
        config.base_url = format!("{}/bot", fake.url());
        config.reactions = true;
        Adapter::Telegram(telegram::Telegram::new(config).unwrap())
    }

    fn route(adapter: &Adapter, chat: &str) -> Route {
        let source = Source::new(adapter.platform(), ChatType::Dm, chat);
        let mut route = Route::to_source(&source, Delivery::Push);
        route.reply_to = Some("1".into());
        route
    }

    #[tokio::test]
    async fn rate_limited_reaction_defers_only_that_chat() {
        let fake = Telegram::start().unwrap();
        fake.on("setMessageReaction").does(Fault::too_many(50));
        let adapter = adapter(&fake);
        let limited = route(&adapter, "7");
        let other = route(&adapter, "8");
        let shutdown = ShutdownHandle::default();
        let mut deferred = DeferredReactions::default();
        react_or_defer(&adapter, (limited.clone(), StatusReaction::Done), &mut deferred, &shutdown).await;
        assert_eq!(fake.calls_of("setMessageReaction").len(), 1);
        for reaction in [StatusReaction::Seen, StatusReaction::Done] {
            react_or_defer(&adapter, (limited.clone(), reaction), &mut deferred, &shutdown).await;
        }
        assert_eq!(fake.calls_of("setMessageReaction").len(), 1, "the chat is rate limited");
        react_or_defer(&adapter, (other, StatusReaction::Done), &mut deferred, &shutdown).await;
        assert_eq!(fake.calls_of("setMessageReaction").len(), 2);
        let now = clock::now();
        assert_eq!(deferred.0.len(), 1, "the last final reaction of the message");
        assert!(deferred.pop_due(now.after(Duration::from_secs(40))).is_none());
        assert_eq!(
            deferred.pop_due(now.after(Duration::from_secs(51))),
            Some((limited, StatusReaction::Done))
        );
    }

    #[tokio::test]
    async fn defers_rate_limited_final_reaction_on_discord() {
        let fake = Discord::start().unwrap();
        fake.add_direct(50);
        fake.on("react").does(discord::Fault::too_many(50.0));
        let mut config = petasos_platforms::discord::Config::new(Secret::new("OTAw.x.secret"));
        config.api_base = fake.api_base();
        let adapter = Adapter::Discord(petasos_platforms::discord::Discord::new(config).unwrap());
        let route = route(&adapter, "50");
        let shutdown = ShutdownHandle::default();
        let mut deferred = DeferredReactions::default();
        react_or_defer(&adapter, (route.clone(), StatusReaction::Done), &mut deferred, &shutdown).await;
        assert_eq!(fake.calls_of("react").len(), 1);
        react_or_defer(&adapter, (route.clone(), StatusReaction::Seen), &mut deferred, &shutdown).await;
        assert_eq!(fake.calls_of("react").len(), 1, "reactions in that chat are rate limited");
        let now = clock::now();
        assert!(deferred.pop_due(now.after(Duration::from_secs(40))).is_none());
        assert_eq!(deferred.pop_due(now.after(Duration::from_secs(51))), Some((route, StatusReaction::Done)));
    }

    #[test]
    fn deferred_reactions_are_bounded() {
        let fake = Telegram::start().unwrap();
        let adapter = adapter(&fake);
        let mut deferred = DeferredReactions::default();
        for chat in 0..2 * DEPTH {
            deferred.add(Millis(5), (route(&adapter, &chat.to_string()), StatusReaction::Done));
        }
        assert_eq!(deferred.0.len(), DEPTH);
    }
}
