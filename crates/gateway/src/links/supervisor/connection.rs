//! One running adapter and the events that it reports.
//!
//! The adapter runs in a task of its own, so that a panic counts as a broken link. A connection is closed before the next
//! one is opened. One that does not close in time is abandoned: its events are dropped, and it cannot acknowledge the
//! messages that it reads.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::{Fault, SessionKey};
use petasos_platforms::{Adapter, Error, InboundBatch, InboundSink, LinkHealth, Post};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

const BATCH_CAPACITY: usize = 2;
const INTERRUPT_CAPACITY: usize = 64;

/// Dropping it aborts the adapter at its next await.
pub(crate) struct Connection {
    pub(crate) generation: u64,
    task: JoinHandle<Error>,
    batches: mpsc::Receiver<InboundBatch>,
    posts: mpsc::Receiver<Post>,
    interrupts: mpsc::Receiver<SessionKey>,
    /// Only the latest value is kept.
    health: watch::Receiver<LinkHealth>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) enum ConnectionEvent {
    Batch(InboundBatch),
    Post(Post),
    /// A connector asks to stop the turn of this session.
    Interrupt(SessionKey),
    Health(LinkHealth),
    Failed {
        fault: Fault,
        code: String,
        reason: String,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum CloseOutcome {
    Closed,
    Abandoned,
}

impl Connection {
    pub(crate) fn open(adapter: Arc<Adapter>, generation: u64, cursor: Option<String>) -> Self {
        let (intake, batches, posts) = InboundSink::with_posts(BATCH_CAPACITY);
        let (intake, interrupts) = intake.with_interrupts(INTERRUPT_CAPACITY);
        let (health_sender, health) = watch::channel(LinkHealth::Connecting);
        let task = petasos_runtime::spawn(async move {
            let mut report = move |health| {
                health_sender.send_replace(health);
            };
            adapter.receive(cursor, &intake, &mut report).await
        });
        Self { generation, task, batches, posts, interrupts, health }
    }

    pub(crate) async fn next_event(&mut self) -> ConnectionEvent {
        petasos_runtime::select! {
            // In causal order: a round trip, the messages it brought, the end.
            biased;
            Ok(()) = self.health.changed() => ConnectionEvent::Health(self.health.borrow_and_update().clone()),
            Some(key) = self.interrupts.recv() => ConnectionEvent::Interrupt(key),
            Some(batch) = self.batches.recv() => ConnectionEvent::Batch(batch),
            Some(post) = self.posts.recv() => ConnectionEvent::Post(post),
            ended = &mut self.task => match ended {
                Ok(error) => ConnectionEvent::Failed {
                    fault: error.fault(),
                    code: error.code().to_owned(),
                    reason: error.to_string(),
                },
                Err(_panicked) => ConnectionEvent::Failed {
                    fault: Fault::Later { after: None },
                    code: "adapter_panicked".into(),
                    reason: "the adapter panicked".into(),
                },
            },
        }
    }

    /// Aborts the adapter and waits until its resources are released.
    pub(crate) async fn close(mut self, within: Duration) -> CloseOutcome {
        if self.task.is_finished() {
            return CloseOutcome::Closed;
        }
        self.task.abort();
        match tokio::time::timeout(within, &mut self.task).await {
            Ok(_ended) => CloseOutcome::Closed,
            Err(_elapsed) => CloseOutcome::Abandoned,
        }
    }
}

/// A connection of generation 1 with this task as its adapter.
#[cfg(test)]
pub(crate) fn connection_of(task: JoinHandle<Error>) -> (Connection, watch::Sender<LinkHealth>) {
    let (health_sender, health) = watch::channel(LinkHealth::Connecting);
    let (intake, batches, posts) = InboundSink::with_posts(BATCH_CAPACITY);
    let (_intake, interrupts) = intake.with_interrupts(INTERRUPT_CAPACITY);
    (Connection { generation: 1, task, batches, posts, interrupts, health }, health_sender)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reports_adapter_panic_as_broken_link() {
        let (mut connection, _health) =
            connection_of(petasos_runtime::spawn(async { panic!("a bug in an adapter") }));
        let ConnectionEvent::Failed { fault, code, .. } = connection.next_event().await else {
            panic!("broken")
        };
        assert_eq!((fault, code.as_str()), (Fault::Later { after: None }, "adapter_panicked"));
        assert_eq!(connection.close(Duration::ZERO).await, CloseOutcome::Closed);
    }

    #[tokio::test]
    async fn close_waits_until_adapter_resources_are_released() {
        let (held, hold) = tokio::sync::oneshot::channel::<()>();
        let task = petasos_runtime::spawn(async move {
            let _held = held;
            std::future::pending().await
        });
        let (connection, _health) = connection_of(task);
        tokio::task::yield_now().await;
        assert_eq!(connection.close(Duration::from_secs(5)).await, CloseOutcome::Closed);
        assert!(hold.await.is_err(), "released");
    }

    #[tokio::test]
    async fn abandons_connection_that_does_not_close_in_time() {
        let (release, stuck) = std::sync::mpsc::sync_channel::<()>(1);
        let (begin, begun) = tokio::sync::oneshot::channel();
        // A blocking task cannot be aborted.
        let task = petasos_runtime::blocking(move || {
            begin.send(()).expect("the test waits");
            let _released = stuck.recv();
            Error::from(petasos_platforms::telegram::Error::Closed)
        });
        let (connection, _health) = connection_of(task);
        begun.await.expect("it runs");
        assert_eq!(connection.close(Duration::from_millis(50)).await, CloseOutcome::Abandoned);
        drop(release);
    }
}
