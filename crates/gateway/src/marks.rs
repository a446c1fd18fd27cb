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
        for adapter in channels.adapters().filter(|adapter| adapter.marks()) {
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
                Some((route, mark)) => place(&adapter, &route, mark).await,
                None => return,
            },
        }
    }
    let rest = async {
        while let Ok((route, mark)) = wanted.try_recv() {
            if mark != Mark::Seen {
                place(&adapter, &route, mark).await;
            }
        }
    };
    // What is left has no mark, or an old one: nobody depends on it.
    let _late = timeout(FAREWELL, rest).await;
}

async fn place(adapter: &Adapter, route: &Route, mark: Mark) {
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
        sleep(wait).await;
        if !again {
            return;
        }
    }
}
