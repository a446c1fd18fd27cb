//! How a session starts: it reads what the store knows of it, and goes on from there.

use petasos_core::admission::Arrival;
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::ids::{RowId, SessionId};
use petasos_core::journal::{Outcome, Write};
use petasos_core::lifecycle::Claim;
use petasos_core::session::Fate;
use petasos_core::turn::{Event, Phase, Turn};
use petasos_core::{Inbound, InboxId, Source};
use petasos_store::{Error as StoreError, Pending, Tx, Unread};

use crate::background::hooks;
use crate::clock;
use crate::lifecycle::startup::boot::readable;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::messages::reply::Reply;
use crate::sessions::questions;
use crate::sessions::turn::{Running, Standing, notices};
use crate::sessions::{Ended, Past, Promise, Session, parsed};

/// What the store knows of a conversation.
struct Known {
    open: Option<Turn>,
    /// Who asked for the open turn.
    author: Option<Source>,
    asked: String,
    session: Option<SessionId>,
    row: Option<RowId>,
}

impl Session {
    pub(in crate::sessions) async fn recover(&mut self, past: Past) -> Result<(), Ended> {
        let Known { open, author, asked, session, row } = self.known().await?;
        if open.is_none() && past == Past::Hopeless {
            self.give_up_first().await?;
        }
        self.show.send_modify(|view| {
            view.session = session;
            view.rows = row;
        });
        self.reader = author.as_ref().map(|author| author.platform);
        self.running = open.map(|turn| Running::new(turn, author, asked, Standing::Parked(past)));
        // Commands that wait are obeyed in their place: a `/stop` finds the turn it was meant for.
        self.reload().await?;
        self.show.send_modify(|view| view.ready = true);
        Ok(())
    }

    /// Goes on with the turn that was found open, if there is one and turns may run.
    pub(in crate::sessions) async fn take_up(&mut self) -> Result<(), Ended> {
        let parked = self.running.as_ref().and_then(|running| Some((running.parked()?, &running.turn)));
        let Some((past, turn)) = parked else { return Ok(()) };
        if self.handles.lifecycle.quarantine.holds(turn.id) {
            return Ok(());
        }
        let turn = turn.clone();
        if past == Past::Fresh
            && !self.handles.settings.resume_window.holds(Some(self.handles.lifecycle.age()))
        {
            // It was fresh when we started, and nobody came for it since.
            let notice = Fate::Stale.notice().map(str::to_owned);
            return self.feed(Event::GivenUp { notice }).await;
        }
        // Refused only by a gateway that leaves; the next start finds the turn as it is.
        let Ok(slot) = self.handles.lifecycle.gate.claim(&self.key, Claim::Resumed) else { return Ok(()) };
        slot.began(turn.id);
        // A crash of the process was counted when this one took over; a failure of this session was not.
        let clean = past == Past::Fresh;
        tracing::info!(turn = %turn.id, clean, "resuming an interrupted turn");
        let repeatable = match &turn.phase {
            Phase::Acting { calls, .. } => {
                let harmless = calls.iter().filter(|call| {
                    self.handles.agent.tools.read_only(&call.name) || planted(Planted::RepeatsTools)
                });
                harmless.map(|call| call.id.clone()).collect()
            }
            Phase::Thinking | Phase::Over => vec![],
        };
        let id = turn.id;
        let unstarted = self
            .change(Commit::TakenUp, move |tx| {
                tx.turn_taken_up(id)?;
                questions::unstarted(tx, id)
            })
            .await?;
        if let Some(running) = &mut self.running {
            running.standing = Standing::AtWork(slot);
            running.resumed = true;
        }
        self.go_live();
        self.feed(Event::Recovered { clean, repeatable, unstarted }).await
    }

    async fn known(&self) -> Result<Known, Ended> {
        loop {
            let key = self.key.clone();
            let read = self.handles.db.read(move |reader| {
                let session = reader.bound(&key)?;
                let row = session.as_ref().map_or(Ok(None), |session| reader.last_row(session))?;
                let open = reader.open_turn_of(&key)?;
                let asked = open.as_ref().map(|turn| reader.pending(InboxId::from(turn.id))).transpose();
                let asked = readable(asked)?.flatten().map(|pending| pending.inbound);
                let text = asked.as_ref().map(|it| hooks::shown(&it.text).to_owned()).unwrap_or_default();
                let author = asked.map(|inbound| inbound.source);
                Ok(Known { open, author, asked: text, session, row })
            });
            match read.await {
                Ok(known) => return Ok(known),
                Err(error) => self.refused(&error).await?,
            }
        }
    }

    /// Takes in, in order, what waits in the inbox and is not known here yet.
    pub(in crate::sessions) async fn reload(&mut self) -> Result<(), Ended> {
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
                    self.show.send_if_modified(|view| std::mem::replace(&mut view.rows, row) != row);
                    break queued;
                }
                Err(error) => self.refused(&error).await?,
            }
        };
        for pending in queued {
            if self.holds(&pending) {
                continue;
            }
            if pending.received_at >= self.handles.lifecycle.started_at {
                Box::pin(self.take_in(pending)).await?;
                continue;
            }
            if let Some(word) = self.as_word(&pending)
                && Box::pin(self.hear_word(&pending, word)).await?
            {
                continue;
            }
            match parsed(&pending.inbound) {
                _ if pending.inbound.internal => {
                    self.enqueue(pending, Arrival::Internal, Promise::Given);
                }
                Parsed::Text if self.still_waits_for_files(&pending) => {
                    self.await_files(pending, Arrival::Text, Promise::Given).await?;
                }
                Parsed::Text => self.enqueue(pending, Arrival::Text, Promise::Given),
                // It was acknowledged when it came; it only waits.
                Parsed::Known(Name::Queue, text)
                    if slash::parse(&text) == Parsed::Text && !text.is_empty() =>
                {
                    if self.still_waits_for_files(&pending) {
                        self.await_files(pending, Arrival::Queued, Promise::Given).await?;
                        continue;
                    }
                    self.enqueue(
                        Pending { inbound: Inbound { text, ..pending.inbound }, ..pending },
                        Arrival::Queued,
                        Promise::Given,
                    );
                }
                Parsed::Known(..) | Parsed::Unknown(_) => Box::pin(self.command(pending)).await?,
            }
        }
        self.handling = None;
        Ok(())
    }

    fn holds(&self, pending: &Pending) -> bool {
        let queued = self.queue.iter().any(|waiting| waiting.pending.id == pending.id);
        queued
            || self.arriving.holds(pending.id)
            || self.steering().iter().any(|steered| steered.id == pending.id)
            || self.compressing.as_ref().is_some_and(|it| it.asked.id == pending.id)
    }

    /// The first message that waits took the session down again and again.
    async fn give_up_first(&mut self) -> Result<(), Ended> {
        let key = self.key.clone();
        self.handling =
            self.change(Commit::GiveUp, move |tx| Ok(tx.queued(&key)?.into_iter().next())).await?;
        self.condemn().await;
        Ok(())
    }

    /// The store will never take what we decided about a message: it is given up, so that it cannot end the
    /// session again and again. Its end, its entry in the list and the notice to its author are one commit.
    pub(in crate::sessions) async fn condemn(&mut self) {
        let Some(pending) = self.handling.take() else { return };
        let settle = Write::SettleInbox { inbox: vec![pending.id], outcome: Outcome::Dead, at: clock::now() };
        let (address, notice) = (self.address(&pending), Reply::answered(notices::CONDEMNED));
        let (listed, settled) = (pending.inbound.clone(), settle.clone());
        let told = self.change(Commit::GiveUp, move |tx| {
            address.tell(tx, &notice, vec![settled.clone()])?;
            list(tx, &listed)
        });
        if told.await.is_ok() {
            // Only a gateway that stops fails here; the notice is in the outbox.
            let _ = self.told(&pending, None).await;
            return;
        }
        // Where it belongs cannot be used either: then at least it ends.
        let listed = pending.inbound.clone();
        let ended = self.change(Commit::GiveUp, move |tx| {
            tx.apply(std::slice::from_ref(&settle), clock::now())?;
            list(tx, &listed)
        });
        if ended.await.is_err() {
            tracing::error!(message = %pending.id, "a message that cannot be handled could not be given up either");
        }
    }
}

/// Keeps a message for `petasos links unreadable`.
fn list(tx: &Tx<'_>, inbound: &Inbound) -> Result<(), StoreError> {
    let raw = serde_json::to_string(inbound).unwrap_or_default();
    let unread = Unread {
        id: 0,
        link: inbound.source.platform.to_string(),
        event: Some(inbound.dedup.clone()),
        why: "the store refused every attempt to handle it".into(),
        size: raw.len() as u64,
        at: clock::now(),
    };
    tx.keep_unreadable(&unread, &raw)
}
