//! Every long-lived task has a name, and the gateway does not outlive it unnoticed.
//!
//! A panic is an exit like any other: it is logged with the task's name, and the gateway stops, because it
//! cannot keep its promises without the task. The next start recovers.

use std::future::Future;

use tokio::task::JoinHandle;

use crate::stopper::Stopper;

/// Starts a task that must live as long as the gateway.
pub fn vital(
    name: &'static str,
    stopper: &Stopper,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let stopper = stopper.clone();
    tokio::spawn(async move {
        let ended = tokio::spawn(task).await;
        if ended.is_err() {
            tracing::error!(task = name, "task panicked");
        }
        if !stopper.stopping() {
            tracing::error!(task = name, "the gateway cannot go on without this task and stops");
            stopper.fail();
        }
    })
}
