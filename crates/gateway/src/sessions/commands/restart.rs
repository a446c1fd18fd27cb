//! `/restart`, from any chat.

use std::io;
use std::path::Path;

use petasos_core::Inbound;
use petasos_core::journal::MessageOutcome;
use petasos_core::lifecycle::{RestartMethod, RestartOrigin, ShutdownReason};
use petasos_store::PendingMessage;

use crate::clock;
use crate::home::restart;
use crate::notices::commands as notices;
use crate::sessions::{SessionError, SessionTask};

impl SessionTask {
    /// Writes the request to disk before the shutdown, so that the next process can notify the requester and recognises the command
    /// if the platform delivers it again.
    pub(in crate::sessions) async fn restart(
        &mut self,
        pending: &PendingMessage,
    ) -> Result<(), SessionError> {
        let situation = self.handles.lifecycle.gate.snapshot();
        let method = if self.handles.lifecycle.lifetime.supervised {
            RestartMethod::Service
        } else {
            RestartMethod::Detached
        };
        let restart = ShutdownReason::Restart { method, origin: RestartOrigin::Chat };
        let current = situation.leaving.map(|leaving| leaving.why);
        let takes_effect = current.is_none_or(|current| restart.outranks(current));
        let active = situation.active();
        let text = match (takes_effect, active) {
            (true, 0) => notices::RESTARTING.to_owned(),
            (true, _) => notices::restarting_after_drain(active),
            (false, _) if !situation.restart_requested => notices::STAYING_DOWN.to_owned(),
            (false, 0) => notices::ALREADY_RESTARTING.to_owned(),
            (false, _) => notices::already_restarting_after_drain(active),
        };
        if takes_effect {
            let home = self.handles.home.clone();
            let inbound = pending.inbound.clone();
            let stored = petasos_runtime::blocking(move || store_request(&home, &inbound)).await;
            if !matches!(stored, Ok(Ok(()))) {
                tracing::warn!(?stored, "cannot store the restart request; its chat will not be notified");
            }
        }
        self.reply(pending, text, MessageOutcome::Answered).await?;
        self.handles.lifecycle.gate.shut_down(restart, None);
        Ok(())
    }
}

fn store_request(home: &Path, inbound: &Inbound) -> io::Result<()> {
    let source = &inbound.source;
    let platform = source.platform.as_str().to_owned();
    let requested_at = clock::now().0 as f64 / 1000.0;
    let update_id = inbound.dedup.rsplit(':').next().and_then(|number| number.parse().ok());
    restart::write(home, &restart::LastRestart { platform: platform.clone(), requested_at, update_id })?;
    let Some(chat_id) = source.chat_id.clone() else { return Ok(()) };
    let note = restart::RestartRequest {
        platform,
        chat_id,
        chat_type: source.chat_type.as_str().to_owned(),
        thread_id: source.thread_id.clone(),
        // Some platforms give a temporary reply URL instead of an id; it must not be stored.
        message_id: source.message_id.clone().filter(|id| !id.contains("://")),
    };
    restart::write(home, &note)
}
