//! Received events that are not on disk yet: ordered, bounded, acknowledged after the commit. An event that cannot be
//! stored is retried alone, then stored as unreadable; if that fails too, the connector delivers it again.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::Error;
use super::parse::{EventContent, PendingEvent};
use crate::inbound::{CommitError, InboundSink, Unreadable};

/// Limit for events without a buffer id, which are never redelivered; beyond it, reading stops.
const MAX_READ_FRAMES: usize = 4096;
const MAX_QUEUED_BYTES: usize = 32 << 20;
const MAX_READ_BYTES: usize = 2 * MAX_QUEUED_BYTES;
const BATCH: usize = 64;
const RETRY_WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];
const PAUSE: Duration = Duration::from_secs(1);
/// Half of the connector's acknowledgement timeout.
const MAX_FAILING: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct CommitQueue {
    queue: VecDeque<PendingEvent>,
    bytes: usize,
    retries: Vec<(Instant, PendingEvent)>,
    paused_until: Option<Instant>,
    failing_since: Option<Instant>,
    /// Limit in frames. A frame with a buffer id beyond it is redelivered later.
    max_frames: usize,
    /// A frame with a buffer id was dropped: later ones on this connection must not overtake it.
    pub(super) overflowed: bool,
}

#[derive(Debug)]
pub(super) struct CommitOutcome {
    pub(super) events: Vec<PendingEvent>,
    pub(super) result: Result<(), CommitError>,
}

impl CommitQueue {
    pub(super) const fn new(max_frames: usize) -> Self {
        Self {
            queue: VecDeque::new(),
            bytes: 0,
            retries: Vec::new(),
            paused_until: None,
            failing_since: None,
            max_frames,
            overflowed: false,
        }
    }

    pub(super) fn push(&mut self, pending: PendingEvent) {
        let acknowledgeable = pending.buffer.is_some();
        let full = self.queue.len() >= self.max_frames || self.bytes >= MAX_QUEUED_BYTES;
        if acknowledgeable && (self.overflowed || full) {
            self.overflowed = true;
            return;
        }
        self.bytes += pending.weight();
        self.queue.push_back(pending);
    }

    /// Reading must stop.
    pub(super) fn is_full(&self) -> bool {
        self.queue.len() >= MAX_READ_FRAMES || self.bytes >= MAX_READ_BYTES
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.retries.is_empty()
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.paused_until.or_else(|| self.retries.iter().map(|(at, _)| *at).min())
    }

    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<PendingEvent>> {
        if self.paused_until.is_some_and(|until| until > now) {
            return None;
        }
        self.paused_until = None;
        if let Some(at) = self.retries.iter().position(|(at, _)| *at <= now) {
            return Some(vec![self.retries.remove(at).1]);
        }
        let batch: Vec<_> = self.queue.drain(..self.queue.len().min(BATCH)).collect();
        self.bytes -= batch.iter().map(PendingEvent::weight).sum::<usize>();
        (!batch.is_empty()).then_some(batch)
    }

    pub(super) fn record_success(&mut self) {
        self.failing_since = None;
    }

    /// The store refused everything; the batch stays first. `false`: for too long.
    pub(super) fn retry_later(&mut self, pending: Vec<PendingEvent>, now: Instant) -> bool {
        self.paused_until = Some(now + PAUSE);
        for pending in pending.into_iter().rev() {
            if pending.alone {
                self.retries.insert(0, (now, pending));
            } else {
                self.bytes += pending.weight();
                self.queue.push_front(pending);
            }
        }
        let since = *self.failing_since.get_or_insert(now);
        let too_long = now.duration_since(since) >= MAX_FAILING;
        if too_long {
            self.failing_since = None; // the next connection starts afresh
        }
        !too_long
    }

    /// The batch is invalid, perhaps because of one event.
    pub(super) fn reject(&mut self, pending: Vec<PendingEvent>, now: Instant) {
        let alone = pending.len() == 1;
        for mut pending in pending {
            pending.alone = true;
            if !alone {
                self.retries.push((now, pending));
                continue;
            }
            let wait = RETRY_WAITS.get(pending.rejections as usize);
            pending.rejections += 1;
            match wait {
                Some(wait) => self.retries.push((now + *wait, pending)),
                None if matches!(pending.content, EventContent::Event(_)) => {
                    tracing::error!("event rejected; storing it as unreadable");
                    self.retries.push((now, pending.into_unreadable()));
                }
                None if pending.buffer.is_some() => {
                    tracing::error!("unreadable event rejected; the connector will redeliver it");
                }
                None => tracing::error!("event rejected and lost: it has no buffer id"),
            }
        }
    }
}

pub(super) async fn commit(sink: &InboundSink, pending: Vec<PendingEvent>) -> CommitOutcome {
    let mut events: Vec<_> = Vec::new();
    let mut unreadable: Vec<Unreadable> = Vec::new();
    for pending in &pending {
        match &pending.content {
            EventContent::Event(event) => events.push((**event).clone()),
            EventContent::Unreadable(event) => unreadable.push(event.clone()),
            EventContent::Nothing => {}
        }
    }
    if events.is_empty() && unreadable.is_empty() {
        return CommitOutcome { events: pending, result: Ok(()) };
    }
    let result = sink.commit(events, unreadable, None).await;
    CommitOutcome { events: pending, result }
}

impl From<CommitError> for Error {
    fn from(_closed: CommitError) -> Self {
        Self::Deserted
    }
}

#[cfg(test)]
mod tests {
    use petasos_relay::frame::Malformed;
    use petasos_runtime::clock;

    use super::*;

    fn event_named(text: &str) -> PendingEvent {
        let event = serde_json::json!({"text": text, "message_id": text, "source": {"chat_id": "c"}});
        PendingEvent::event(&event, Some(text.to_owned()), 1, |_| false)
    }

    fn numbers(pending: &[PendingEvent]) -> Vec<&str> {
        pending.iter().filter_map(|pending| pending.buffer.as_deref()).collect()
    }

    #[test]
    fn keeps_order_while_the_store_refuses_commits() {
        let mut queue = CommitQueue::new(256);
        let mut now = clock::monotonic();
        ["b1", "b2"].into_iter().for_each(|name| queue.push(event_named(name)));
        let mut given_up = 0;
        for _ in 0..65 {
            let pending = queue.next(now).expect("a batch");
            assert_eq!(numbers(&pending), ["b1", "b2"]);
            assert!(
                pending.iter().all(|pending| matches!(pending.content, EventContent::Event(_))),
                "{pending:?}"
            );
            given_up += usize::from(!queue.retry_later(pending, now));
            assert!(queue.next(now).is_none() && !queue.is_empty(), "commits are paused");
            now = queue.due().expect("a retry");
        }
        assert_eq!(given_up, 2, "the connection, every half minute");
        queue.push(event_named("b3"));
        assert_eq!(numbers(&queue.next(now).expect("all of them")), ["b1", "b2", "b3"]);
        assert!(queue.is_empty() && queue.bytes == 0);
    }

    #[test]
    fn stores_rejected_events_as_unreadable() {
        let mut queue = CommitQueue::new(256);
        let mut now = clock::monotonic();
        ["bad", "good"].into_iter().for_each(|name| queue.push(event_named(name)));
        let mut kept = vec![];
        let mut aside = vec![];
        let mut store_fails = true;
        while !queue.is_empty() {
            let Some(pending) = queue.next(now) else {
                now = queue.due().expect("a retry");
                continue;
            };
            let bad = pending.iter().any(|it| it.buffer.as_deref() == Some("bad"));
            let events = pending.iter().all(|it| matches!(it.content, EventContent::Event(_)));
            // A store failure in between is not the event's fault.
            if std::mem::take(&mut store_fails) && pending.len() == 1 {
                queue.retry_later(pending, now);
            } else if bad && events {
                store_fails |= pending.len() > 1;
                queue.reject(pending, now);
            } else {
                let name = pending[0].buffer.clone().unwrap_or_default();
                if events { kept.push(name) } else { aside.push(name) }
            }
        }
        assert_eq!((kept, aside), (vec!["good".to_owned()], vec!["bad".to_owned()]));
    }

    #[test]
    fn bounds_frames_and_bytes() {
        let megabyte = "x".repeat(1 << 20);
        let pending = |buffer: Option<&str>| {
            PendingEvent::unreadable(Malformed::NotJson, &megabyte, buffer.map(str::to_owned), 1)
        };
        let mut queue = CommitQueue::new(256);
        let now = clock::monotonic();
        (0..40).for_each(|_| queue.push(pending(Some("b"))));
        assert!(queue.overflowed && !queue.is_full());
        assert_eq!(queue.queue.len(), 32, "the rest is redelivered");
        (0..32).for_each(|_| queue.push(pending(None)));
        assert!(queue.is_full(), "nothing more is read");
        while queue.next(now).is_some() {}
        assert_eq!((queue.bytes, queue.is_full()), (0, false));
    }
}
