//! What was read and is not on disk yet: in order, bounded, and acknowledged only afterwards.
//!
//! While the gateway can keep nothing, everything waits in its order; if that lasts, the connection is given up, so that
//! no message is blamed for it (a connector counts what is not acknowledged). What it cannot keep as it is, is tried again by
//! itself while others go on, and put aside in the end; what cannot be put aside either is not acknowledged, and the
//! connector says it again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use super::parse::{Told, What};
use crate::intake::{Intake, NotTaken, Unreadable};

/// What has no number is never said again: it is kept until nothing more can be read.
const MOST_LIVE: usize = 4096;
/// The same in bytes, as they came.
const MOST_BYTES: usize = 32 << 20;
const MOST_LIVE_BYTES: usize = 2 * MOST_BYTES;
/// Frames in one commit.
const BATCH: usize = 64;
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
/// How long a gateway that can keep nothing is left alone.
const REST: Duration = Duration::from_secs(1);
/// Connectors wait for an acknowledgement twice as long.
const LONGEST_TROUBLE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Waiting {
    queue: VecDeque<Told>,
    /// Of what is in `queue`.
    bytes: usize,
    again: Vec<(Instant, Told)>,
    /// Nothing is committed before then.
    rests: Option<Instant>,
    /// Since when nothing can be kept.
    troubled: Option<Instant>,
    /// Frames that may wait. What has a number and does not fit is said again later.
    most: usize,
    /// Something with a number did not fit: what comes behind it on this connection must not overtake it.
    pub(super) overflowed: bool,
}

/// What became of a commit.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) told: Vec<Told>,
    pub(super) taken: Result<(), NotTaken>,
}

impl Waiting {
    pub(super) const fn new(most: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            again: Vec::new(),
            rests: None,
            troubled: None,
            most,
            overflowed: false,
        }
    }

    pub(super) fn push(&mut self, told: Told) {
        let numbered = told.buffer.is_some();
        let full = self.queue.len() >= self.most || self.bytes >= MOST_BYTES;
        if numbered && (self.overflowed || full) {
            self.overflowed = true;
            return;
        }
        self.bytes += told.weight();
        self.queue.push_back(told);
    }

    /// Nothing more may be read.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MOST_LIVE || self.bytes >= MOST_LIVE_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.again.is_empty()
    }

    /// When something that was refused is to be tried again.
    pub(super) fn due(&self) -> Option<Instant> {
        self.rests.or_else(|| self.again.iter().map(|(at, _)| *at).min())
    }

    /// What to commit now; nothing: `None`.
    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<Told>> {
        if self.rests.is_some_and(|until| until > now) {
            return None;
        }
        self.rests = None;
        if let Some(at) = self.again.iter().position(|(at, _)| *at <= now) {
            return Some(vec![self.again.remove(at).1]);
        }
        let batch: Vec<_> = self.queue.drain(..self.queue.len().min(BATCH)).collect();
        self.bytes -= batch.iter().map(Told::weight).sum::<usize>();
        (!batch.is_empty()).then_some(batch)
    }

    /// The gateway keeps something.
    pub(super) fn kept(&mut self) {
        self.troubled = None;
    }

    /// The gateway keeps nothing at the moment. They stay first. `false`: it has been so for too long.
    pub(super) fn put_back(&mut self, told: Vec<Told>, now: Instant) -> bool {
        self.rests = Some(now + REST);
        for told in told.into_iter().rev() {
            if told.alone {
                self.again.insert(0, (now, told));
            } else {
                self.bytes += told.weight();
                self.queue.push_front(told);
            }
        }
        let since = *self.troubled.get_or_insert(now);
        let lasts = now.duration_since(since) >= LONGEST_TROUBLE;
        if lasts {
            self.troubled = None; // the next connection has its own time
        }
        !lasts
    }

    /// They cannot be kept as they are. Together they may have failed because of one of them.
    pub(super) fn refused(&mut self, told: Vec<Told>, now: Instant) {
        let alone = told.len() == 1;
        for mut told in told {
            told.alone = true;
            if !alone {
                self.again.push((now, told));
                continue;
            }
            let wait = AGAIN.get(told.refused as usize);
            told.refused += 1;
            match wait {
                Some(wait) => self.again.push((now + *wait, told)),
                None if matches!(told.what, What::Event(_)) => {
                    tracing::error!("a message could not be kept; it is put aside");
                    self.again.push((now, told.put_aside()));
                }
                None if told.buffer.is_some() => {
                    tracing::error!("a message could not be put aside; the connector has to say it again");
                }
                None => tracing::error!("a message could not be kept, and nobody will say it again"),
            }
        }
    }
}

/// One transaction of the gateway.
pub(super) async fn commit(intake: &Intake, told: Vec<Told>) -> Outcome {
    let (mut events, mut unreadable): (Vec<_>, Vec<Unreadable>) = (Vec::new(), Vec::new());
    for told in &told {
        match &told.what {
            What::Event(event) => events.push((**event).clone()),
            What::Unreadable(kept) => unreadable.push(kept.clone()),
            What::Nothing => {}
        }
    }
    if events.is_empty() && unreadable.is_empty() {
        return Outcome { told, taken: Ok(()) };
    }
    let taken = intake.commit(events, unreadable, None).await;
    Outcome { told, taken }
}

impl From<NotTaken> for Error {
    fn from(_closed: NotTaken) -> Self {
        Self::Deserted
    }
}

#[cfg(test)]
mod tests {
    use petasos_relay::frame::Malformed;

    use super::*;

    fn said(text: &str) -> Told {
        let event = serde_json::json!({"text": text, "message_id": text, "source": {"chat_id": "c"}});
        Told::event(&event, Some(text.to_owned()), 1, |_| false)
    }

    fn numbers(told: &[Told]) -> Vec<&str> {
        told.iter().filter_map(|told| told.buffer.as_deref()).collect()
    }

    #[test]
    fn while_nothing_can_be_kept_all_wait_in_order_and_none_is_put_aside() {
        let (mut waiting, mut now) = (Waiting::new(256), Instant::now());
        ["b1", "b2"].into_iter().for_each(|name| waiting.push(said(name)));
        let mut given_up = 0;
        for _ in 0..65 {
            let told = waiting.next(now).expect("what waits is tried");
            assert_eq!(numbers(&told), ["b1", "b2"]);
            assert!(told.iter().all(|told| matches!(told.what, What::Event(_))), "{told:?}");
            given_up += usize::from(!waiting.put_back(told, now));
            assert!(waiting.next(now).is_none() && !waiting.is_empty(), "the gateway is left alone");
            now = waiting.due().expect("a next try");
        }
        assert_eq!(given_up, 2, "the connection, every half minute");
        waiting.push(said("b3"));
        assert_eq!(numbers(&waiting.next(now).expect("all of them")), ["b1", "b2", "b3"]);
        assert!(waiting.is_empty() && waiting.bytes == 0);
    }

    #[test]
    fn what_cannot_be_kept_is_put_aside_and_the_others_go_on() {
        let (mut waiting, mut now) = (Waiting::new(256), Instant::now());
        ["bad", "good"].into_iter().for_each(|name| waiting.push(said(name)));
        let (mut kept, mut aside, mut troubled) = (vec![], vec![], true);
        while !waiting.is_empty() {
            let Some(told) = waiting.next(now) else {
                now = waiting.due().expect("a next try");
                continue;
            };
            let bad = told.iter().any(|it| it.buffer.as_deref() == Some("bad"));
            let events = told.iter().all(|it| matches!(it.what, What::Event(_)));
            // In the middle of it the gateway is in trouble for a moment, which is nobody's fault.
            if std::mem::take(&mut troubled) && told.len() == 1 {
                waiting.put_back(told, now);
            } else if bad && events {
                troubled |= told.len() > 1;
                waiting.refused(told, now);
            } else {
                let name = told[0].buffer.clone().unwrap_or_default();
                if events { kept.push(name) } else { aside.push(name) }
            }
        }
        assert_eq!((kept, aside), (vec!["good".to_owned()], vec!["bad".to_owned()]));
    }

    #[test]
    fn what_waits_is_counted_and_weighed() {
        let megabyte = "x".repeat(1 << 20);
        let told = |buffer: Option<&str>| {
            Told::unreadable(Malformed::NotJson, &megabyte, buffer.map(str::to_owned), 1)
        };
        let mut waiting = Waiting::new(256);
        let now = Instant::now();
        (0..40).for_each(|_| waiting.push(told(Some("b"))));
        assert!(waiting.overflowed && !waiting.is_full());
        assert_eq!(waiting.queue.len(), 32, "the rest is said again");
        (0..32).for_each(|_| waiting.push(told(None)));
        assert!(waiting.is_full(), "nothing more is read");
        while waiting.next(now).is_some() {}
        assert_eq!((waiting.bytes, waiting.is_full()), (0, false));
    }
}
