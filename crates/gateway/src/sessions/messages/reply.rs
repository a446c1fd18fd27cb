//! Answers without a turn: acknowledgements, command answers, refusals.
//!
//! What a command changes, what it answers, and the end of the message that asked: one transaction, so a crash
//! can neither repeat the command nor swallow its answer.

use std::sync::Arc;

use petasos_core::admission::{Ack, Arrival};
use petasos_core::journal::{Outcome, Write};
use petasos_core::message::Delivery;
use petasos_core::outbox::{Button, Draft, Kind};
use petasos_core::session::Ask;
use petasos_core::transcript::Message;
use petasos_core::{Route, SessionId, SessionKey};
use petasos_store::{Error as StoreError, Pending, Tx};

use crate::clock;
use crate::lifecycle::config::{Opened, Settings};
use crate::runtime::commit::Commit;
use crate::sessions::{ACK_EVERY, Ended, Session};

/// What a command has to say.
#[derive(Debug, Clone)]
pub(in crate::sessions) struct Reply {
    pub(in crate::sessions) text: String,
    pub(in crate::sessions) outcome: Outcome,
    pub(in crate::sessions) buttons: Vec<Button>,
    /// The transcript the conversation is in now, if the command changed it.
    pub(in crate::sessions) entered: Option<SessionId>,
}

impl Reply {
    pub(in crate::sessions) fn answered(text: impl Into<String>) -> Self {
        Self { text: text.into(), outcome: Outcome::Answered, buttons: vec![], entered: None }
    }

    pub(in crate::sessions) fn refused(text: impl Into<String>) -> Self {
        Self { outcome: Outcome::Refused, ..Self::answered(text) }
    }
}

/// Where and how something is said to the author of a message.
#[derive(Clone)]
pub(in crate::sessions) struct Address {
    key: SessionKey,
    pending: Pending,
    route: Route,
    hint: String,
    settings: Arc<Settings>,
}

impl Session {
    /// Answers a message and settles it.
    pub(in crate::sessions) async fn answer(
        &mut self,
        pending: &Pending,
        text: String,
        outcome: Outcome,
    ) -> Result<(), Ended> {
        let reply = Reply { outcome, ..Reply::answered(text) };
        self.reply(pending, move |_, _| Ok(reply.clone())).await
    }

    /// Does what a command asks for, answers it and settles it: one transaction.
    pub(in crate::sessions) async fn reply<F>(&mut self, pending: &Pending, job: F) -> Result<(), Ended>
    where
        F: Fn(&Tx<'_>, &Address) -> Result<Reply, StoreError> + Clone + Send + 'static,
    {
        let address = self.address(pending);
        let entered = self
            .change(Commit::Say, move |tx| {
                let reply = job(tx, &address)?;
                let settle = Write::SettleInbox {
                    inbox: vec![address.pending.id],
                    outcome: reply.outcome,
                    at: clock::now(),
                };
                address.tell(tx, &reply, vec![settle])?;
                Ok(reply.entered)
            })
            .await?;
        self.told(pending, entered).await
    }

    /// Says something to the author of a message, together with further writes.
    pub(in crate::sessions) async fn notice(
        &mut self,
        pending: &Pending,
        text: String,
        writes: Vec<Write>,
    ) -> Result<(), Ended> {
        let (address, reply) = (self.address(pending), Reply::answered(text));
        self.change(Commit::Say, move |tx| address.tell(tx, &reply, writes.clone())).await?;
        self.told(pending, None).await
    }

    /// Tells the author what has become of a message. True by the time it is said: the message is on disk.
    pub(in crate::sessions) async fn acknowledge(
        &mut self,
        pending: &Pending,
        ack: Ack,
        arrival: Arrival,
    ) -> Result<(), Ended> {
        let now = clock::now();
        let Some(text) = ack.text() else { return Ok(()) };
        // Whoever asked for the queue wants to hear that it worked, every time.
        let recent = self.acked_at.is_some_and(|at| now.since(at) < ACK_EVERY) && arrival != Arrival::Queued;
        if !self.handles.settings.busy_ack || recent {
            return Ok(());
        }
        self.acked_at = Some(now);
        let text = match arrival {
            Arrival::Queued => format!("{text} ({} queued)", self.queue.len()),
            Arrival::Text | Arrival::Internal => text.to_owned(),
        };
        self.notice(pending, text, vec![]).await
    }

    /// Changes the store, and waits for one that refuses for the moment.
    pub(in crate::sessions) async fn change<T, F>(&self, commit: Commit, job: F) -> Result<T, Ended>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<T, StoreError> + Clone + Send + 'static,
    {
        loop {
            match self.handles.db.write(commit, job.clone()).await {
                Ok(value) => return Ok(value),
                Err(error) => self.refused(&error).await?,
            }
        }
    }

    pub(in crate::sessions) fn address(&self, pending: &Pending) -> Address {
        let source = &pending.inbound.source;
        Address {
            key: self.key.clone(),
            pending: pending.clone(),
            route: self.handles.channels.way_back(&pending.inbound),
            hint: self.handles.channels.capabilities(source.platform).hint.clone(),
            settings: self.handles.settings.clone(),
        }
    }

    /// After the commit: whoever watches or waits learns of it.
    pub(in crate::sessions) async fn told(
        &mut self,
        pending: &Pending,
        entered: Option<SessionId>,
    ) -> Result<(), Ended> {
        self.settled(pending.inbound.source.message_id.as_ref());
        let route = self.handles.channels.way_back(&pending.inbound);
        match route.delivery {
            Delivery::Push => self.handles.delivery.deliver.due(route.lane()).await,
            Delivery::Pull => {}
        }
        let key = self.key.clone();
        let current = self.handles.db.read(move |reader| {
            let session = reader.bound(&key)?;
            let row = session.as_ref().map_or(Ok(None), |session| reader.last_row(session))?;
            Ok((session, row))
        });
        // The store took the answer; what is shown of it may wait for the next change.
        if let Ok((session, row)) = current.await {
            self.show.send_modify(|view| {
                if entered.is_some() || view.session.is_none() {
                    view.session = session;
                }
                view.rows = row;
            });
        }
        Ok(())
    }
}

impl Address {
    pub(in crate::sessions) fn delivery(&self) -> Delivery {
        self.route.delivery
    }

    /// Finds or makes the transcript that this author's messages belong to.
    pub(in crate::sessions) fn open(&self, tx: &Tx<'_>, ask: Ask) -> Result<Opened, StoreError> {
        self.settings.open(tx, &self.key, &self.pending.inbound.source, &self.hint, ask, clock::now())
    }

    pub(in crate::sessions) fn tell(
        &self,
        tx: &Tx<'_>,
        reply: &Reply,
        mut writes: Vec<Write>,
    ) -> Result<(), StoreError> {
        let now = clock::now();
        match self.route.delivery {
            Delivery::Push => writes.push(Write::Owe(Draft {
                route: self.route.clone(),
                session_key: Some(self.key.clone()),
                turn: None,
                kind: Kind::Notice,
                text: reply.text.clone(),
                buttons: reply.buttons.clone(),
            })),
            Delivery::Pull => {
                let session = match tx.entry(&self.key)? {
                    Some(entry) => entry.session_id,
                    None => self.open(tx, Ask::Continue)?.entry.session_id,
                };
                writes.push(Write::Append { session, message: Message::notice(reply.text.clone(), now) });
            }
        }
        tx.apply(&writes, now)
    }
}
