//! Every long-lived task has a name, and the gateway does not outlive it unnoticed.
//!
//! A panic is an exit like any other: it is logged with the task's name, and the gateway stops, because it
//! cannot keep its promises without the task. The next start recovers.

use std::future::Future;

use tokio::task::JoinHandle;

use crate::Error;
use crate::lifecycle::shutdown::Stopper;

/// Starts a task that must live as long as the gateway.
pub fn vital(
    name: &'static str,
    stopper: &Stopper,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let stopper = stopper.clone();
    petasos_runtime::spawn(async move {
        let ended = petasos_runtime::spawn(task).await;
        if ended.is_err() {
            tracing::error!(task = name, "task panicked");
        }
        if !stopper.stopping() {
            tracing::error!(task = name, "the gateway cannot go on without this task and stops");
            stopper.fail();
        }
    })
}

/// Runs a future to its end, also if the caller is dropped meanwhile: the handler of a closed HTTP connection, a tool
/// call that `/stop` aborts. A commit and the hand-over that follows it belong into one such future; otherwise a
/// caller that is dropped between the two leaves stored work that starts only after the next process start.
///
/// # Errors
/// If the future panicked, or the runtime shuts down.
pub(crate) async fn uncancelled<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, Error> {
    petasos_runtime::spawn(future).await.map_err(|_ended| Error::Io("the operation failed".into()))
}

#[cfg(test)]
pub(crate) mod testing {
    use std::future::{Future, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use crate::runtime::commit::Commit;
    use crate::storage::database::Db;

    /// Polls a future this often, each time after it was woken, and drops it. Returns when the tasks that it started have
    /// enqueued their writes and these are committed. `false`: it finished.
    pub(crate) async fn dropped_after(polls: usize, db: &Db, future: impl Future) -> bool {
        let dropped = {
            let (mut future, mut left) = (pin!(future), polls);
            poll_fn(|context| {
                if left == 0 {
                    return Poll::Ready(true);
                }
                left -= 1;
                future.as_mut().poll(context).map(|_finished| false)
            })
            .await
        };
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
        db.write(Commit::Pulse, |_| Ok(())).await.unwrap();
        dropped
    }
}
