//! `/restart`, from any chat.

use std::io;
use std::path::Path;

use petasos_core::Inbound;
use petasos_core::journal::Outcome;
use petasos_core::lifecycle::{From, How, Leave};
use petasos_store::Pending;

use crate::clock;
use crate::home::restart;
use crate::sessions::{Ended, Session};

impl Session {
    /// Who asked, and that it was done, is on disk before we leave: the next process tells them, and knows the
    /// command if the platform delivers it again.
    pub(in crate::sessions) async fn restart(&mut self, pending: &Pending) -> Result<(), Ended> {
        let situation = self.handles.lifecycle.gate.situation();
        let how = if self.handles.lifecycle.lifetime.supervised { How::Service } else { How::Detached };
        let restart = Leave::Restart { how, from: From::Chat };
        let current = situation.leaving.map(|leaving| leaving.why);
        let (counts, others) = (current.is_none_or(|current| restart.outranks(current)), situation.active());
        let text = match (counts, others) {
            (true, 0) => "🔄 Restarting gateway. I should be back within 60 seconds.".to_owned(),
            (true, _) => format!("🔄 Restarting gateway. Draining {others} active agent(s) first."),
            (false, _) if !situation.restart_requested => {
                "⏹ The gateway is shutting down, and was asked to stay down.".to_owned()
            }
            (false, 0) => "🔄 A restart is already in progress.".to_owned(),
            (false, _) => format!("🔄 A restart is already in progress. Draining {others} active agent(s)."),
        };
        if counts {
            let (home, inbound) = (self.handles.home.clone(), pending.inbound.clone());
            let noted = petasos_runtime::blocking(move || note_restart(&home, &inbound)).await;
            if !matches!(noted, Ok(Ok(()))) {
                tracing::warn!(?noted, "the chat that asked will not hear that we are back");
            }
        }
        self.answer(pending, text, Outcome::Answered).await?;
        self.handles.lifecycle.gate.leave(restart, None);
        Ok(())
    }
}

fn note_restart(home: &Path, inbound: &Inbound) -> io::Result<()> {
    let source = &inbound.source;
    let platform = source.platform.as_str().to_owned();
    let requested_at = clock::now().0 as f64 / 1000.0;
    let update_id = inbound.dedup.rsplit(':').next().and_then(|number| number.parse().ok());
    restart::write(home, &restart::Processed { platform: platform.clone(), requested_at, update_id })?;
    let Some(chat_id) = source.chat_id.clone() else { return Ok(()) };
    let note = restart::Notify {
        platform,
        chat_id,
        chat_type: source.chat_type.as_str().to_owned(),
        thread_id: source.thread_id.clone(),
        // Some platforms give an address that answers for a while instead of an id: that is nobody's business.
        message_id: source.message_id.clone().filter(|id| !id.contains("://")),
    };
    restart::write(home, &note)
}
