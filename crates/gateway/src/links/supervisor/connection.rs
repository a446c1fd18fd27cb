//! One running adapter: what is heard of it, and how it ends.
//!
//! The adapter runs in a task of its own, so that a panic there is a broken link like any other. Whoever wants a new
//! connection ends the old one first and waits until it is gone; one that does not go in time is abandoned: nobody
//! listens to it any more, and what it reads it cannot acknowledge.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::{Fault, SessionKey};
use petasos_platforms::{Adapter, Batch, Error, Health, Intake, Post};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

/// Batches that may wait for a commit.
const BATCHES: usize = 2;
/// Interrupts that may wait; one more says nothing new.
const INTERRUPTS: usize = 64;

/// Dropping it ends the adapter at its next wait.
pub(crate) struct Connection {
    pub(crate) generation: u64,
    task: JoinHandle<Error>,
    batches: mpsc::Receiver<Batch>,
    posts: mpsc::Receiver<Post>,
    interrupts: mpsc::Receiver<SessionKey>,
    /// What it said last: news that nobody has noticed yet gives way to newer.
    health: watch::Receiver<Health>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(crate) enum Heard {
    Batch(Batch),
    Post(Post),
    /// Somebody elsewhere wants this conversation to stop what it does.
    Interrupt(SessionKey),
    Health(Health),
    Broke {
        fault: Fault,
        code: String,
        reason: String,
    },
}

/// How a connection that was ended went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Parting {
    Gone,
    Abandoned,
}

impl Connection {
    pub(crate) fn open(adapter: Arc<Adapter>, generation: u64, cursor: Option<String>) -> Self {
        let (intake, batches, posts) = Intake::with_posts(BATCHES);
        let (intake, interrupts) = intake.with_interrupts(INTERRUPTS);
        let (pulse, health) = watch::channel(Health::Connecting);
        let task = petasos_runtime::spawn(async move {
            let mut tell = move |health| {
                pulse.send_replace(health);
            };
            adapter.receive(cursor, &intake, &mut tell).await
        });
        Self { generation, task, batches, posts, interrupts, health }
    }

    pub(crate) async fn hear(&mut self) -> Heard {
        petasos_runtime::select! {
            // In the order in which it happens: a round trip, what it brought, the end.
            biased;
            Ok(()) = self.health.changed() => Heard::Health(self.health.borrow_and_update().clone()),
            Some(key) = self.interrupts.recv() => Heard::Interrupt(key),
            Some(batch) = self.batches.recv() => Heard::Batch(batch),
            Some(post) = self.posts.recv() => Heard::Post(post),
            ended = &mut self.task => match ended {
                Ok(error) => Heard::Broke {
                    fault: error.fault(),
                    code: error.code().to_owned(),
                    reason: error.to_string(),
                },
                Err(_panicked) => Heard::Broke {
                    fault: Fault::Later { after: None },
                    code: "adapter_panicked".into(),
                    reason: "the adapter panicked".into(),
                },
            },
        }
    }

    /// Ends the adapter and waits until it has let everything go.
    pub(crate) async fn close(mut self, within: Duration) -> Parting {
        if self.task.is_finished() {
            return Parting::Gone;
        }
        self.task.abort();
        match tokio::time::timeout(within, &mut self.task).await {
            Ok(_ended) => Parting::Gone,
            Err(_elapsed) => Parting::Abandoned,
        }
    }
}

/// A connection of the first generation whose adapter does this.
#[cfg(test)]
pub(crate) fn with(task: JoinHandle<Error>) -> (Connection, watch::Sender<Health>) {
    let (pulse, health) = watch::channel(Health::Connecting);
    let (intake, batches, posts) = Intake::with_posts(BATCHES);
    let (_intake, interrupts) = intake.with_interrupts(INTERRUPTS);
    (Connection { generation: 1, task, batches, posts, interrupts, health }, pulse)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_end_like_any_other() {
        let (mut connection, _pulse) = with(tokio::spawn(async { panic!("a bug in an adapter") }));
        let Heard::Broke { fault, code, .. } = connection.hear().await else { panic!("broken") };
        assert_eq!((fault, code.as_str()), (Fault::Later { after: None }, "adapter_panicked"));
        assert_eq!(connection.close(Duration::ZERO).await, Parting::Gone);
    }

    #[tokio::test]
    async fn what_the_adapter_holds_is_let_go_before_the_end_is_told() {
        let (held, hold) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            let _held = held;
            std::future::pending().await
        });
        let (connection, _pulse) = with(task);
        tokio::task::yield_now().await;
        assert_eq!(connection.close(Duration::from_secs(5)).await, Parting::Gone);
        assert!(hold.await.is_err(), "let go");
    }

    #[tokio::test]
    async fn one_that_does_not_go_is_abandoned_in_time() {
        let (release, stuck) = std::sync::mpsc::channel::<()>();
        let (begin, begun) = tokio::sync::oneshot::channel();
        // A task on a thread of its own cannot be ended from outside.
        let task = tokio::task::spawn_blocking(move || {
            begin.send(()).expect("the test waits");
            let _released = stuck.recv();
            Error::from(petasos_platforms::telegram::Error::Closed)
        });
        let (connection, _pulse) = with(task);
        begun.await.expect("it runs");
        assert_eq!(connection.close(Duration::from_millis(50)).await, Parting::Abandoned);
        drop(release);
    }
}
