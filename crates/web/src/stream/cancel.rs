//! Cancel-on-drop: stops a run whose client disconnects while waiting for it.

use petasos_gateway::{Handle, RunRow};
use tracing::warn;

use crate::server::StopSignal;

/// Stops the run on drop, unless disarmed.
pub(crate) struct CancelOnDrop {
    handle: Handle,
    run: Option<RunRow>,
    stop: StopSignal,
}

impl CancelOnDrop {
    pub(crate) fn new(handle: &Handle, run: Option<RunRow>, stop: &StopSignal) -> Self {
        Self { handle: handle.clone(), run, stop: stop.clone() }
    }

    pub(crate) fn disarm(&mut self) {
        self.run = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        let Some(run) = self.run.take() else { return };
        // At shutdown the client did not disconnect: the next process continues the run.
        if self.stop.is_stopping() {
            return;
        }
        let handle = self.handle.clone();
        petasos_runtime::spawn(async move {
            if let Err(error) = handle.stop_run(&run).await {
                warn!(run = %run.id, %error, "cannot stop the run of a disconnected client");
            }
        });
    }
}
