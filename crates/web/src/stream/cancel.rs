//! Cancel-on-drop: a run ends when the client that waits for it leaves.

use petasos_gateway::{Handle, RunRow};
use tracing::warn;

use crate::serve::Stop;

/// Stops a run when it is dropped, unless it was disarmed before.
pub(crate) struct CancelOnDrop {
    handle: Handle,
    run: Option<RunRow>,
    stop: Stop,
}

impl CancelOnDrop {
    /// `None`: there is no run to stop.
    pub(crate) fn new(handle: &Handle, run: Option<RunRow>, stop: &Stop) -> Self {
        Self { handle: handle.clone(), run, stop: stop.clone() }
    }

    /// The run has ended, or is to go on without its client.
    pub(crate) fn disarm(&mut self) {
        self.run = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(run) = self.run.take() else { return };
        // When the server stops, the client did not leave: the run goes on with the next process.
        if self.stop.is_asked() {
            return;
        }
        let handle = self.handle.clone();
        tokio::spawn(async move {
            if let Err(error) = handle.stop_run(&run).await {
                warn!(run = run.id, %error, "cannot stop a run whose client has left");
            }
        });
    }
}
