//! Named long-lived tasks.
//!
//! If a vital task panics or ends early, the error is logged with the task's name and the gateway stops; the next start
//! recovers.

use std::future::Future;

use tokio::task::JoinHandle;

use crate::Error;
use crate::lifecycle::shutdown::ShutdownHandle;

/// Starts a task that must run as long as the gateway.
pub fn vital(
    name: &'static str,
    shutdown: &ShutdownHandle,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let shutdown = shutdown.clone();
    petasos_runtime::spawn(async move {
        let ended = petasos_runtime::spawn(task).await;
        if ended.is_err() {
            tracing::error!(task = name, "task panicked");
        }
        if !shutdown.stopping() {
            tracing::error!(task = name, "a vital task has ended; stopping the gateway");
            shutdown.fail();
        }
    })
}

/// Runs a future to its end even if the caller is dropped, such as the handler of a closed HTTP connection or an aborted
/// tool call. A commit and the dispatch that follows it belong in one such future; otherwise a caller dropped in between
/// leaves stored work that starts only with the next process.
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

    /// Polls a future this many times and drops it, then waits until the writes of the tasks that it started are committed.
    /// `false`: the future finished.
    pub(crate) async fn dropped_after(polls: usize, db: &Db, future: impl Future) -> bool {
        let dropped = {
            let mut future = pin!(future);
            let mut left = polls;
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
        db.write(Commit::WriteProbe, |_| Ok(())).await.unwrap();
        dropped
    }
}
