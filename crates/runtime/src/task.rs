//! Tasks and blocking work.

use std::future::Future;
use std::pin::Pin;

use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// `tokio::spawn`, scheduled by a simulation if one runs. The future is boxed, so that tokio's task code is compiled once
/// for each output type, not for each future.
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        return tokio::spawn(simulation.schedule(future));
    }
    let future: Pin<Box<dyn Future<Output = F::Output> + Send>> = Box::pin(future);
    tokio::spawn(future)
}

/// `tokio::task::spawn_blocking`. In a simulation, a task without an await.
pub fn blocking<T, F>(work: F) -> JoinHandle<T>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        return tokio::spawn(simulation.schedule(async move { work() }));
    }
    tokio::task::spawn_blocking(work)
}

/// `JoinSet::spawn`, scheduled by a simulation if one runs.
pub fn spawn_into<F>(tasks: &mut JoinSet<F::Output>, future: F) -> AbortHandle
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    #[cfg(feature = "simulation")]
    if let Some(simulation) = crate::simulation::current() {
        return tasks.spawn(simulation.schedule(future));
    }
    tasks.spawn(future)
}

/// Names what the current task works on, for a simulation that has to relate what the task does to a request.
#[cfg(feature = "simulation")]
pub fn annotate(what: &str) {
    if let Some(simulation) = crate::simulation::current() {
        simulation.annotate(what);
    }
}

/// Names what the current task works on, for a simulation that has to relate what the task does to a request.
#[cfg(not(feature = "simulation"))]
pub const fn annotate(_what: &str) {}
