//! Marks below the messages that turns answer: seen, then done or failed. A courtesy, never more.
//!
//! Owns one short queue and one worker per platform that wants marks. Nothing waits for them and nothing is
//! stored: the route of a turn says what to mark, so a turn that a later process ends is marked by that one.
//! When there is too much to do, first marks are left out, so that what was marked is finished.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::journal::Outcome;
use petasos_core::{Fault, Platform, Route};
use petasos_platforms::{Adapter, Mark};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::channels::Channels;
use crate::stopper::Stopper;

/// Marks that may wait at one platform; the second half is for those that finish.
const DEPTH: usize = 128;
const PATIENCE: Duration = Duration::from_secs(5);
/// Least time between two marks: the strictest platform takes one in a quarter of a second.
const PACE: Duration = Duration::from_millis(250);
/// Longest wait that a platform may ask for.
const LONGEST: Duration = Duration::from_secs(60);
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
    loop {
        tokio::select! {
            biased;
            () = stopper.stopped() => break,
            next = wanted.recv() => match next {
                Some((route, mark)) => place(&adapter, &route, mark, &stopper).await,
                None => return,
            },
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

/// Once we stop, a mark that would have to wait is left out.
async fn place(adapter: &Adapter, route: &Route, mark: Mark, stopper: &Stopper) {
    for again in [mark != Mark::Seen, false] {
        let wait = match timeout(PATIENCE, adapter.react(route, mark)).await {
            Ok(Ok(())) => return sleep(PACE).await,
            Ok(Err(error)) => {
                tracing::debug!(platform = %route.platform, %error, "a message was not marked");
                match error.fault() {
                    Fault::Later { after } => after.unwrap_or(PACE).min(LONGEST),
                    Fault::Refused | Fault::Fatal => return sleep(PACE).await,
                }
            }
            Err(_elapsed) => PACE,
        };
        tokio::select! {
            () = stopper.stopped() => return,
            () = sleep(wait) => {}
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
    use petasos_fakes::telegram::{Fault, Telegram};
    use petasos_platforms::telegram;

    use super::*;

    #[tokio::test]
    async fn a_platform_that_wants_a_long_wait_does_not_hold_up_a_stop() {
        let fake = Telegram::start().unwrap();
        fake.on("setMessageReaction").always().does(Fault::too_many(50));
        let mut config = telegram::Config::new(Secret::new("123:abc"));
        config.base_url = format!("{}/bot", fake.url());
        config.reactions = true;
        let adapter = Adapter::Telegram(telegram::Telegram::new(config).unwrap());
        let source = Source::new(adapter.platform(), ChatType::Dm, "7");
        let mut route = Route::back_to(&source, Delivery::Push);
        route.reply_to = Some("1".into());
        let stopper = Stopper::default();
        let placing = timeout(Duration::from_secs(20), place(&adapter, &route, Mark::Done, &stopper));
        let (placed, ()) = tokio::join!(placing, async {
            while fake.calls_of("setMessageReaction").is_empty() {
                sleep(Duration::from_millis(5)).await;
            }
            stopper.stop();
        });
        assert!(placed.is_ok(), "it waits on");
        assert_eq!(fake.calls_of("setMessageReaction").len(), 1);
    }
}
