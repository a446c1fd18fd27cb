//! `/compress`, and the fresh session that replaces a conversation that cannot be compacted.

use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::message::Delivery;
use petasos_core::session::ResolveMode;
use petasos_core::transcript::Message;
use petasos_core::turn::Event;
use petasos_core::{SessionId, SessionKey};
use petasos_store::{Error as StoreError, PendingMessage, Tx};

use crate::clock;
use crate::notices::turns as notices;
use crate::runtime::commit::Commit;
use crate::sessions::messages::reply::CommandReply;
use crate::sessions::turn::compaction::CompactionOutcome;
use crate::sessions::{ManualCompaction, SessionError, SessionTask};

impl SessionTask {
    /// Starts a compaction; the command is answered when it is done.
    pub(in crate::sessions) async fn compress(
        &mut self,
        pending: &PendingMessage,
        focus: &str,
    ) -> Result<(), SessionError> {
        let key = self.key.clone();
        let session = self.write(Commit::Reply, move |tx| tx.bound(&key)).await?;
        let Some(session) = session else {
            return self.reply(pending, notices::NOTHING_TO_SUMMARISE.into(), MessageOutcome::Refused).await;
        };
        let focus = Some(focus.trim().to_owned()).filter(|focus| !focus.is_empty());
        self.start_compaction(pending.clone(), session, focus);
        Ok(())
    }

    /// Commits the summary, its cost and the reply in one transaction.
    pub(in crate::sessions) async fn finish_compaction(
        &mut self,
        session: SessionId,
        outcome: Option<CompactionOutcome>,
    ) -> Result<(), SessionError> {
        let Some(ManualCompaction { command: pending, .. }) = self.compaction.take() else { return Ok(()) };
        self.current = Some(pending.clone());
        let Some(CompactionOutcome { compaction, usage, tokens: (before, after) }) = outcome else {
            return self
                .reply(&pending, notices::NOTHING_TO_SUMMARISE.into(), MessageOutcome::Answered)
                .await;
        };
        let text = if compaction.replaced.is_some() {
            notices::summarised(before, after)
        } else {
            notices::tool_outputs_removed(before, after)
        };
        let key = self.key.clone();
        let at = clock::now();
        let writes = [
            Write::AddUsage { key: key.clone(), session: session.clone(), usage },
            Write::Compact { key, session, compaction, at },
        ];
        self.reply_with(&pending, move |tx, _| {
            tx.apply(&writes, at)?;
            Ok(CommandReply::answered(text.clone()))
        })
        .await
    }

    pub(in crate::sessions) async fn fail_compaction(&mut self, notice: String) -> Result<(), SessionError> {
        let Some(ManualCompaction { command: pending, .. }) = self.compaction.take() else { return Ok(()) };
        self.reply(&pending, notice, MessageOutcome::Refused).await
    }

    /// `false`: no compaction was running.
    pub(in crate::sessions) async fn stop_compaction(&mut self) -> Result<bool, SessionError> {
        let Some(ManualCompaction { command: pending, .. }) = self.compaction.take() else {
            return Ok(false);
        };
        self.reply(&pending, notices::SUMMARY_STOPPED.into(), MessageOutcome::Cancelled).await?;
        Ok(true)
    }

    /// Ends the turn with a notice and opens a fresh session. A crash between the two leaves a conversation that gets here again.
    pub(in crate::sessions) async fn start_fresh_session(
        &mut self,
        attempt: u32,
    ) -> Result<(), SessionError> {
        self.end_work();
        let pull = self.turn().is_some_and(|turn| turn.route.delivery == Delivery::Pull);
        self.feed(Event::CallFailed { attempt, notice: notices::STARTED_FRESH.into() }).await?;
        let key = self.key.clone();
        let handles = self.handles.clone();
        let session = self
            .write(Commit::Reply, move |tx| {
                let Some(source) = tx.entry(&key)?.and_then(|entry| entry.origin) else { return Ok(None) };
                let hint = &handles.channels.capabilities(source.platform).hint.clone();
                let opened =
                    handles.settings.open(tx, &key, &source, hint, ResolveMode::ForceNew, clock::now())?;
                announce(tx, &key, &opened.entry.session_id, pull)?;
                Ok(Some(opened.entry.session_id))
            })
            .await?;
        if session.is_some() {
            self.view_tx.send_modify(|view| view.session = session);
        }
        Ok(())
    }
}

/// Readers of the transcript see the notice in the new session.
fn announce(tx: &Tx<'_>, key: &SessionKey, session: &SessionId, pull: bool) -> Result<(), StoreError> {
    tx.forget_failures(key)?;
    if pull {
        tx.append(session, &Message::notice(notices::STARTED_FRESH, clock::now()))?;
    }
    Ok(())
}
