//! `/compress`, and what is done when nothing more can go.

use petasos_core::compaction::Relief;
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::Delivery;
use petasos_core::session::Ask;
use petasos_core::transcript::Message;
use petasos_core::turn::Event;
use petasos_core::{SessionId, SessionKey};
use petasos_store::{Error as StoreError, Pending, Tx};

use crate::clock;
use crate::runtime::commit::Commit;
use crate::sessions::messages::reply::Reply;
use crate::sessions::turn::compaction::Relieved;
use crate::sessions::turn::notices;
use crate::sessions::{Compressing, Ended, Session};

impl Session {
    /// Starts to sum the conversation up; the answer comes when it is done.
    pub(in crate::sessions) async fn compress(
        &mut self,
        pending: &Pending,
        focus: &str,
    ) -> Result<(), Ended> {
        let key = self.key.clone();
        let session = self.change(Commit::Say, move |tx| tx.bound(&key)).await?;
        let Some(session) = session else {
            return self.answer(pending, notices::NOTHING_TO_COMPRESS.into(), Outcome::Refused).await;
        };
        let focus = Some(focus.trim().to_owned()).filter(|focus| !focus.is_empty());
        self.start_compressing(pending.clone(), session, focus);
        Ok(())
    }

    /// The summary, what it cost and the answer to the command: one transaction.
    pub(in crate::sessions) async fn compressed(
        &mut self,
        session: SessionId,
        relieved: Option<Relieved>,
    ) -> Result<(), Ended> {
        let Some(Compressing { asked: pending, .. }) = self.compressing.take() else { return Ok(()) };
        self.handling = Some(pending.clone());
        let Some(Relieved { relief, bill, tokens: (before, after) }) = relieved else {
            return self.answer(&pending, notices::NOTHING_TO_COMPRESS.into(), Outcome::Answered).await;
        };
        let text = match &relief {
            Relief { replaced: Some(_), .. } => {
                format!(
                    "🗜 Compressed: about {before} tokens have become {after}. The whole conversation is kept on disk."
                )
            }
            Relief { .. } => {
                format!("🗜 Old tool outputs were put aside: about {before} tokens have become {after}.")
            }
        };
        let (key, at) = (self.key.clone(), clock::now());
        let writes = [
            Write::Spend { key: key.clone(), session: session.clone(), bill },
            Write::Relieve { key, session, relief, at },
        ];
        self.reply(&pending, move |tx, _| {
            tx.apply(&writes, at)?;
            Ok(Reply::answered(text.clone()))
        })
        .await
    }

    pub(in crate::sessions) async fn not_compressed(&mut self, notice: String) -> Result<(), Ended> {
        let Some(Compressing { asked: pending, .. }) = self.compressing.take() else { return Ok(()) };
        self.answer(&pending, notice, Outcome::Refused).await
    }

    /// `false`: there was nothing to stop.
    pub(in crate::sessions) async fn stop_compressing(&mut self) -> Result<bool, Ended> {
        let Some(Compressing { asked: pending, .. }) = self.compressing.take() else { return Ok(false) };
        self.answer(&pending, notices::COMPRESSION_STOPPED.into(), Outcome::Cancelled).await?;
        Ok(true)
    }

    /// The conversation does not fit its model however short we make it: the turn ends with the truth, and the next
    /// message starts afresh. A crash between the two leaves a conversation that comes here again.
    pub(in crate::sessions) async fn start_over(&mut self, attempt: u32) -> Result<(), Ended> {
        self.end_work();
        let pull = self.turn().is_some_and(|turn| turn.route.delivery == Delivery::Pull);
        self.feed(Event::CallFailed { attempt, notice: notices::EXHAUSTED.into() }).await?;
        let (key, handles) = (self.key.clone(), self.handles.clone());
        let session = self
            .change(Commit::Say, move |tx| {
                let Some(source) = tx.entry(&key)?.and_then(|entry| entry.origin) else { return Ok(None) };
                let hint = &handles.channels.capabilities(source.platform).hint.clone();
                let opened = handles.settings.open(tx, &key, &source, hint, Ask::ForceNew, clock::now())?;
                tell(tx, &key, &opened.entry.session_id, pull)?;
                Ok(Some(opened.entry.session_id))
            })
            .await?;
        if session.is_some() {
            self.show.send_modify(|view| view.session = session);
        }
        Ok(())
    }
}

/// Whoever reads the transcript looks into the new one from now on.
fn tell(tx: &Tx<'_>, key: &SessionKey, session: &SessionId, pull: bool) -> Result<(), StoreError> {
    tx.forget_failures(key)?;
    if pull {
        tx.append(session, &Message::notice(notices::EXHAUSTED, clock::now()))?;
    }
    Ok(())
}
