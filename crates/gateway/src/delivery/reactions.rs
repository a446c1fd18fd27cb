//! Marks below the messages that turns answer: seen, then done or failed. A courtesy, never more.
//!
//! Owns one short queue and one worker per platform that wants marks. Nothing waits for them and nothing is
//! stored: the route of a turn says what to mark, so a turn that a later process ends is marked by that one.
//! When there is too much to do, first marks are left out, so that what was marked is finished.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::journal::Outcome;
use petasos_core::rate_limit::LONGEST_WAIT;
use petasos_core::{Fault, Millis, Platform, Route};
use petasos_platforms::{Adapter, Mark};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::clock;
use crate::lifecycle::shutdown::Stopper;
use crate::links::channels::Channels;

/// Marks that may wait at one platform; the second half is for those that finish.
const DEPTH: usize = 128;
const PATIENCE: Duration = Duration::from_secs(5);
/// Least time between two marks: the strictest platform takes one in a quarter of a second.
const PACE: Duration = Duration::from_millis(250);
/// How often deferred marks are looked at.
const LOOK: Duration = Duration::from_secs(60);
/// What is finished while we stop is still told, as far as this goes.
const FAREWELL: Duration = Duration::from_secs(1);

type Wanted = (Route, Mark);

#[derive(Debug, Default)]
pub(crate) struct Marks(HashMap<Platform, mpsc::Sender<Wanted>>);

impl Marks {
    /// Makes the queues; the workers are to be spawned.
    pub(crate) fn new(
        channels: &Channels,
        stopper: &Stopper,
    ) -> (Self, Vec<impl Future<Output = ()> + use<>>) {
        let (mut queues, mut workers) = (HashMap::new(), Vec::new());
        for adapter in channels.adapters().filter(|adapter| adapter.capabilities().marks) {
            let (queue, wanted) = mpsc::channel(DEPTH);
            queues.insert(adapter.platform(), queue);
            workers.push(work(adapter.clone(), wanted, stopper.clone()));
        }
        (Self(queues), workers)
    }

    pub(crate) fn begun(&self, route: &Route) {
        self.put(route, Mark::Seen);
    }

    pub(crate) fn ended(&self, route: &Route, outcome: Outcome) {
        self.put(
            route,
            match outcome {
                Outcome::Answered => Mark::Done,
                Outcome::Refused | Outcome::Dead => Mark::Failed,
                Outcome::Merged | Outcome::Cancelled => Mark::Cleared,
            },
        );
    }

    fn put(&self, route: &Route, mark: Mark) {
        let Some(queue) = self.0.get(&route.platform) else { return };
        if mark == Mark::Seen && queue.capacity() <= DEPTH / 2 {
            return;
        }
        if queue.try_send((route.clone(), mark)).is_err() {
            tracing::debug!(platform = %route.platform, "too many marks; one is left out");
        }
    }
}

async fn work(adapter: Arc<Adapter>, mut wanted: mpsc::Receiver<Wanted>, stopper: Stopper) {
    let mut deferred = Deferred::default();
    loop {
        if let Some(wanted) = deferred.take_due(clock::now()) {
            tend(&adapter, wanted, &mut deferred, &stopper).await;
            continue;
        }
        petasos_runtime::select! {
            biased;
            () = stopper.stopped() => break,
            next = wanted.recv() => match next {
                Some(wanted) => tend(&adapter, wanted, &mut deferred, &stopper).await,
                None => return,
            },
            () = clock::sleep_until(deferred.next(clock::now())) => {}
        }
    }
    let rest = async {
        while let Ok((route, mark)) = wanted.try_recv() {
            if mark != Mark::Seen {
                place(&adapter, &route, mark, &stopper).await;
            }
        }
    };
    // What is left has no mark, or an old one: nobody depends on it.
    let _late = timeout(FAREWELL, rest).await;
}

/// Final marks that a rate limit holds back, and when each may be made.
#[derive(Debug, Default)]
struct Deferred(Vec<(Millis, Wanted)>);

impl Deferred {
    /// The oldest gives way when there are too many.
    fn add(&mut self, at: Millis, wanted: Wanted) {
        self.0.retain(|(_, (route, _))| *route != wanted.0);
        if self.0.len() >= DEPTH {
            self.0.remove(0);
        }
        self.0.push((at, wanted));
    }

    fn take_due(&mut self, now: Millis) -> Option<Wanted> {
        let due = self.0.iter().position(|(at, _)| *at <= now || *at > now.after(LONGEST_WAIT))?;
        Some(self.0.remove(due).1)
    }

    /// When to look again: the clock may be set back meanwhile.
    fn next(&self, now: Millis) -> Millis {
        let look = now.after(LOOK);
        self.0.iter().map(|(at, _)| *at).min().unwrap_or(look).min(look)
    }
}

/// Makes a mark, or leaves it for the end of a rate limit. A first mark is not worth the wait.
async fn tend(adapter: &Adapter, (route, mark): Wanted, deferred: &mut Deferred, stopper: &Stopper) {
    let free_at = |now| adapter.reaction_free_at(&route, now);
    if free_at(clock::now()) <= clock::now() {
        place(adapter, &route, mark, stopper).await;
    } else if mark == Mark::Seen {
        return;
    }
    let now = clock::now();
    let free = free_at(now);
    if free > now && mark != Mark::Seen {
        deferred.add(free, (route.clone(), mark));
    }
}

/// Once we stop, a mark that would have to wait is left out.
async fn place(adapter: &Adapter, route: &Route, mark: Mark, stopper: &Stopper) {
    for again in [mark != Mark::Seen, false] {
        match timeout(PATIENCE, adapter.react(route, mark)).await {
            Ok(Ok(())) => return sleep(PACE).await,
            Ok(Err(error)) => {
                tracing::debug!(platform = %route.platform, %error, "a message was not marked");
                match error.fault() {
                    Fault::Later { after: None } => {}
                    Fault::Later { after: Some(_) } | Fault::Refused | Fault::Fatal => {
                        return sleep(PACE).await;
                    }
                }
            }
            Err(_elapsed) => {}
        }
        petasos_runtime::select! {
            () = stopper.stopped() => return,
            () = sleep(PACE) => {}
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
        let mut route = Route::back_to(&source, Delivery::Push);
        route.reply_to = Some("1".into());
        route
    }

    #[tokio::test]
    async fn rate_limited_reaction_defers_that_chat_and_no_other() {
        let fake = Telegram::start().unwrap();
        fake.on("setMessageReaction").does(Fault::too_many(50));
        let adapter = adapter(&fake);
        let (limited, other) = (route(&adapter, "7"), route(&adapter, "8"));
        let (stopper, mut deferred) = (Stopper::default(), Deferred::default());
        tend(&adapter, (limited.clone(), Mark::Done), &mut deferred, &stopper).await;
        assert_eq!(fake.calls_of("setMessageReaction").len(), 1);
        for mark in [Mark::Seen, Mark::Done] {
            tend(&adapter, (limited.clone(), mark), &mut deferred, &stopper).await;
        }
        assert_eq!(fake.calls_of("setMessageReaction").len(), 1, "the chat is rate limited");
        tend(&adapter, (other, Mark::Done), &mut deferred, &stopper).await;
        assert_eq!(fake.calls_of("setMessageReaction").len(), 2);
        let now = clock::now();
        assert_eq!(deferred.0.len(), 1, "the last final mark of the message");
        assert!(deferred.take_due(now.after(Duration::from_secs(40))).is_none());
        assert_eq!(deferred.take_due(now.after(Duration::from_secs(51))), Some((limited, Mark::Done)));
    }

    #[tokio::test]
    async fn rate_limited_final_reaction_is_deferred_where_reactions_have_their_own_limit() {
        let fake = Discord::start().unwrap();
        fake.add_direct(50);
        fake.on("react").does(discord::Fault::too_many(50.0));
        let mut config = petasos_platforms::discord::Config::new(Secret::new("OTAw.x.secret"));
        config.api_base = fake.api_base();
        let adapter = Adapter::Discord(petasos_platforms::discord::Discord::new(config).unwrap());
        let route = route(&adapter, "50");
        let (stopper, mut deferred) = (Stopper::default(), Deferred::default());
        tend(&adapter, (route.clone(), Mark::Done), &mut deferred, &stopper).await;
        assert_eq!(fake.calls_of("react").len(), 1);
        tend(&adapter, (route.clone(), Mark::Seen), &mut deferred, &stopper).await;
        assert_eq!(fake.calls_of("react").len(), 1, "reactions in that chat are rate limited");
        let now = clock::now();
        assert!(deferred.take_due(now.after(Duration::from_secs(40))).is_none());
        assert_eq!(deferred.take_due(now.after(Duration::from_secs(51))), Some((route, Mark::Done)));
    }

    #[test]
    fn deferred_marks_are_bounded() {
        let fake = Telegram::start().unwrap();
        let adapter = adapter(&fake);
        let mut deferred = Deferred::default();
        for chat in 0..2 * DEPTH {
            deferred.add(Millis(5), (route(&adapter, &chat.to_string()), Mark::Done));
        }
        assert_eq!(deferred.0.len(), DEPTH);
    }
}
