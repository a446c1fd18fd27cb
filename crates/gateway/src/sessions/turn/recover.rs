//! Starts a session from the store: its open turn and its queued messages.

use petasos_core::admission::Arrival;
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::ids::{RowId, SessionId};
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::lifecycle::TurnOrigin;
use petasos_core::session::ResumeDecision;
use petasos_core::turn::{Event, Phase, Turn};
use petasos_core::{Inbound, InboxId, Source};
use petasos_store::{Error as StoreError, PendingMessage, Tx, UnreadableEvent};

use crate::background::hooks;
use crate::lifecycle::startup::boot::readable;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::messages::reply::CommandReply;
use crate::sessions::questions;
use crate::sessions::turn::{RunningTurn, TurnSlot};
use crate::sessions::{AdmissionPromise, SessionError, SessionTask, TaskHistory, parsed};
use crate::{clock, notices};

struct StoredSession {
    open: Option<Turn>,
    author: Option<Source>,
    question: String,
    session: Option<SessionId>,
    row: Option<RowId>,
}

impl SessionTask {
    pub(in crate::sessions) async fn recover(&mut self, history: TaskHistory) -> Result<(), SessionError> {
        let StoredSession { open, author, question, session, row } = self.load_stored().await?;
        if open.is_none() && history == TaskHistory::FailedRepeatedly {
            self.give_up_first().await?;
        }
        self.view_tx.send_modify(|view| {
            view.session = session;
            view.rows = row;
        });
        self.reader = author.as_ref().map(|author| author.platform);
        self.running = open.map(|turn| RunningTurn::new(turn, author, question, TurnSlot::Parked(history)));
        // Queued commands run in order: a `/stop` stops the turn that it was sent for.
        self.reload().await?;
        self.view_tx.send_modify(|view| view.ready = true);
        Ok(())
    }

    /// Resumes the open turn, if there is one and turns may run.
    pub(in crate::sessions) async fn resume_turn(&mut self) -> Result<(), SessionError> {
        let parked =
            self.running.as_ref().and_then(|running| Some((running.parked_history()?, &running.turn)));
        let Some((history, turn)) = parked else { return Ok(()) };
        if self.handles.lifecycle.quarantine.holds(turn.id) {
            return Ok(());
        }
        let turn = turn.clone();
        if history == TaskHistory::Clean
            && !self.handles.settings.resume_window.contains(Some(self.handles.lifecycle.age()))
        {
            // Fresh at startup, but nothing resumed it within the window.
            let notice = ResumeDecision::Stale.notice().map(str::to_owned);
            return self.feed(Event::GivenUp { notice }).await;
        }
        // Refused only during shutdown; the next start finds the turn unchanged.
        let Ok(slot) = self.handles.lifecycle.gate.claim(&self.key, TurnOrigin::Resumed) else {
            return Ok(());
        };
        slot.set_turn(turn.id);
        // Startup has already counted a crash of the process, but not a failure of this session task.
        let clean = history == TaskHistory::Clean;
        tracing::info!(turn = %turn.id, clean, "resuming an interrupted turn");
        let repeatable = match &turn.phase {
            Phase::Acting { calls, .. } => {
                let harmless = calls.iter().filter(|call| {
                    self.handles.agent.tools.read_only(&call.name) || planted(PlantedBug::RepeatsTools)
                });
                harmless.map(|call| call.id.clone()).collect()
            }
            Phase::Thinking | Phase::Over => vec![],
        };
        let id = turn.id;
        let unstarted = self
            .write(Commit::ResumeTurn, move |tx| {
                tx.turn_resumed(id)?;
                questions::unapproved_calls(tx, id)
            })
            .await?;
        if let Some(running) = &mut self.running {
            running.slot = TurnSlot::Active(slot);
            running.resumed = true;
        }
        self.publish_turn();
        self.feed(Event::Recovered { clean, repeatable, unstarted }).await
    }

    async fn load_stored(&self) -> Result<StoredSession, SessionError> {
        loop {
            let key = self.key.clone();
            let read = self.handles.db.read(move |reader| {
                let session = reader.bound(&key)?;
                let row = session.as_ref().map_or(Ok(None), |session| reader.last_row(session))?;
                let open = reader.open_turn_of(&key)?;
                let question = open.as_ref().map(|turn| reader.pending(InboxId::from(turn.id))).transpose();
                let question = readable(question)?.flatten().map(|pending| pending.inbound);
                let text =
                    question.as_ref().map(|it| hooks::excerpt(&it.text).to_owned()).unwrap_or_default();
                let author = question.map(|inbound| inbound.source);
                Ok(StoredSession { open, author, question: text, session, row })
            });
            match read.await {
                Ok(known) => return Ok(known),
                Err(error) => self.wait_or_fail(&error).await?,
            }
        }
    }

    /// Processes, in order, the messages in the inbox that the session has not seen.
    pub(in crate::sessions) async fn reload(&mut self) -> Result<(), SessionError> {
        let queued = loop {
            let key = self.key.clone();
            let read = self.handles.db.read(move |reader| {
                let session = reader.bound(&key)?;
                let row = session.map_or(Ok(None), |session| reader.last_row(&session))?;
                Ok((reader.queued(&key)?, reader.newest()?, row))
            });
            match read.await {
                Ok((queued, newest, row)) => {
                    self.known_up_to = newest;
                    self.view_tx.send_if_modified(|view| std::mem::replace(&mut view.rows, row) != row);
                    break queued;
                }
                Err(error) => self.wait_or_fail(&error).await?,
            }
        };
        for pending in queued {
            if self.is_known(&pending) {
                continue;
            }
            if pending.received_at >= self.handles.lifecycle.started_at {
                Box::pin(self.process_message(pending)).await?;
                continue;
            }
            if let Some(reply) = self.as_question_reply(&pending)
                && Box::pin(self.handle_question_reply(&pending, reply)).await?
            {
                continue;
            }
            match parsed(&pending.inbound) {
                _ if pending.inbound.internal => {
                    self.enqueue(pending, Arrival::Internal, AdmissionPromise::Given);
                }
                Parsed::Text if self.must_still_wait_for_files(&pending) => {
                    self.enqueue_download(pending, Arrival::Text, AdmissionPromise::Given).await?;
                }
                Parsed::Text => self.enqueue(pending, Arrival::Text, AdmissionPromise::Given),
                // Already acknowledged.
                Parsed::Known(Name::Queue, text)
                    if slash::parse(&text) == Parsed::Text && !text.is_empty() =>
                {
                    if self.must_still_wait_for_files(&pending) {
                        self.enqueue_download(pending, Arrival::Queued, AdmissionPromise::Given).await?;
                        continue;
                    }
                    self.enqueue(
                        PendingMessage { inbound: Inbound { text, ..pending.inbound }, ..pending },
                        Arrival::Queued,
                        AdmissionPromise::Given,
                    );
                }
                Parsed::Known(..) | Parsed::Unknown(_) => Box::pin(self.command(pending)).await?,
            }
        }
        self.current = None;
        Ok(())
    }

    fn is_known(&self, pending: &PendingMessage) -> bool {
        let queued = self.queue.iter().any(|waiting| waiting.pending.id == pending.id);
        queued
            || self.downloads.contains(pending.id)
            || self.steering().iter().any(|steered| steered.id == pending.id)
            || self.compaction.as_ref().is_some_and(|it| it.command.id == pending.id)
    }

    /// Gives up the first queued message, which made the session fail repeatedly.
    async fn give_up_first(&mut self) -> Result<(), SessionError> {
        let key = self.key.clone();
        self.current = self.write(Commit::GiveUp, move |tx| Ok(tx.queued(&key)?.into_iter().next())).await?;
        self.give_up_current().await;
        Ok(())
    }

    /// Gives up the current message, which the store refuses permanently. Its outcome, its entry in the list of unreadable events and
    /// the notice to its author are one commit.
    pub(in crate::sessions) async fn give_up_current(&mut self) {
        let Some(pending) = self.current.take() else { return };
        let settle =
            Write::SettleInbox { inbox: vec![pending.id], outcome: MessageOutcome::Dead, at: clock::now() };
        let address = self.address(&pending);
        let notice = CommandReply::answered(notices::sessions::GIVEN_UP);
        let listed = pending.inbound.clone();
        let settled = settle.clone();
        let committed = self.write(Commit::GiveUp, move |tx| {
            address.enqueue_reply(tx, &notice, vec![settled.clone()])?;
            list_unreadable(tx, &listed)
        });
        if committed.await.is_ok() {
            // Fails only during shutdown; the notice is in the outbox.
            let _ = self.publish_reply(&pending, None).await;
            return;
        }
        // The session cannot be used either: settle the message without a notice.
        let listed = pending.inbound.clone();
        let ended = self.write(Commit::GiveUp, move |tx| {
            tx.apply(std::slice::from_ref(&settle), clock::now())?;
            list_unreadable(tx, &listed)
        });
        if ended.await.is_err() {
            tracing::error!(message = %pending.id, "cannot give up a message that cannot be handled");
        }
    }
}

/// Lists a message in `petasos links unreadable`.
fn list_unreadable(tx: &Tx<'_>, inbound: &Inbound) -> Result<(), StoreError> {
    let raw = serde_json::to_string(inbound).unwrap_or_default();
    let unread = UnreadableEvent {
        id: 0,
        link: inbound.source.platform.to_string(),
        event: Some(inbound.dedup.clone()),
        why: "the store refused every attempt to handle it".into(),
        size: raw.len() as u64,
        at: clock::now(),
    };
    tx.record_unreadable(&unread, &raw)
}
