//! Replies without a turn: acknowledgements, command replies, refusals.
//!
//! The effect of a command, its reply, and the settlement of its message are one transaction, so a crash can neither repeat the
//! command nor lose the reply.

use std::sync::Arc;

use petasos_core::admission::{Ack, Arrival};
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::message::Delivery;
use petasos_core::outbox::{Button, Draft, Kind};
use petasos_core::session::ResolveMode;
use petasos_core::transcript::Message;
use petasos_core::{Route, SessionId, SessionKey};
use petasos_store::{Error as StoreError, PendingMessage, Tx};

use crate::api::runs::run_of;
use crate::lifecycle::config::{OpenedSession, Settings};
use crate::runtime::commit::Commit;
use crate::sessions::{ACK_INTERVAL, SessionError, SessionTask};
use crate::{clock, notices};

#[derive(Debug, Clone)]
pub(in crate::sessions) struct CommandReply {
    pub(in crate::sessions) text: String,
    pub(in crate::sessions) outcome: MessageOutcome,
    pub(in crate::sessions) buttons: Vec<Button>,
    /// The new current transcript, if the command changed it.
    pub(in crate::sessions) entered: Option<SessionId>,
}

impl CommandReply {
    pub(in crate::sessions) fn answered(text: impl Into<String>) -> Self {
        Self { text: text.into(), outcome: MessageOutcome::Answered, buttons: vec![], entered: None }
    }

    pub(in crate::sessions) fn refused(text: impl Into<String>) -> Self {
        Self { outcome: MessageOutcome::Refused, ..Self::answered(text) }
    }
}

#[derive(Clone)]
pub(in crate::sessions) struct ReplyAddress {
    key: SessionKey,
    pending: PendingMessage,
    route: Route,
    hint: String,
    settings: Arc<Settings>,
}

impl SessionTask {
    pub(in crate::sessions) async fn reply(
        &mut self,
        pending: &PendingMessage,
        text: String,
        outcome: MessageOutcome,
    ) -> Result<(), SessionError> {
        let reply = CommandReply { outcome, ..CommandReply::answered(text) };
        self.reply_with(pending, move |_, _| Ok(reply.clone())).await
    }

    /// Runs `job`, replies and settles the message in one transaction.
    pub(in crate::sessions) async fn reply_with<F>(
        &mut self,
        pending: &PendingMessage,
        job: F,
    ) -> Result<(), SessionError>
    where
        F: Fn(&Tx<'_>, &ReplyAddress) -> Result<CommandReply, StoreError> + Clone + Send + 'static,
    {
        let address = self.address(pending);
        let entered = self
            .write(Commit::Reply, move |tx| {
                let reply = job(tx, &address)?;
                let settle = Write::SettleInbox {
                    inbox: vec![address.pending.id],
                    outcome: reply.outcome,
                    at: clock::now(),
                };
                address.enqueue_reply(tx, &reply, vec![settle])?;
                Ok(reply.entered)
            })
            .await?;
        self.publish_reply(pending, entered).await
    }

    /// Sends a notice to the author of a message together with further writes.
    pub(in crate::sessions) async fn send_notice(
        &mut self,
        pending: &PendingMessage,
        text: String,
        writes: Vec<Write>,
    ) -> Result<(), SessionError> {
        let address = self.address(pending);
        let reply = CommandReply::answered(text);
        self.write(Commit::Reply, move |tx| address.enqueue_reply(tx, &reply, writes.clone())).await?;
        self.publish_reply(pending, None).await
    }

    /// Acknowledges a message. The acknowledgement is true: the message is committed.
    pub(in crate::sessions) async fn acknowledge(
        &mut self,
        pending: &PendingMessage,
        ack: Ack,
        arrival: Arrival,
    ) -> Result<(), SessionError> {
        let now = clock::now();
        let Some(text) = ack.text() else { return Ok(()) };
        // `/queue` is acknowledged every time.
        let recent =
            self.acked_at.is_some_and(|at| now.since(at) < ACK_INTERVAL) && arrival != Arrival::Queued;
        if !self.handles.settings.busy_ack || recent {
            return Ok(());
        }
        self.acked_at = Some(now);
        let text = match arrival {
            Arrival::Queued => notices::commands::queued(text, self.queue.len()),
            Arrival::Text | Arrival::Internal => text.to_owned(),
        };
        self.send_notice(pending, text, vec![]).await
    }

    /// Writes to the store, retrying while it may recover.
    pub(in crate::sessions) async fn write<T, F>(&self, commit: Commit, job: F) -> Result<T, SessionError>
    where
        T: Send + 'static,
        F: Fn(&Tx<'_>) -> Result<T, StoreError> + Clone + Send + 'static,
    {
        loop {
            match self.handles.db.write(commit, job.clone()).await {
                Ok(value) => return Ok(value),
                Err(error) => self.wait_or_fail(&error).await?,
            }
        }
    }

    pub(in crate::sessions) fn address(&self, pending: &PendingMessage) -> ReplyAddress {
        let source = &pending.inbound.source;
        ReplyAddress {
            key: self.key.clone(),
            pending: pending.clone(),
            route: self.handles.channels.reply_route(&pending.inbound),
            hint: self.handles.channels.capabilities(source.platform).hint.clone(),
            settings: self.handles.settings.clone(),
        }
    }

    /// Called after the commit: wakes the lane and updates the view.
    pub(in crate::sessions) async fn publish_reply(
        &mut self,
        pending: &PendingMessage,
        entered: Option<SessionId>,
    ) -> Result<(), SessionError> {
        let source = &pending.inbound.source;
        self.notify_run_ended(run_of(source.platform, source.message_id.as_ref()));
        let route = self.handles.channels.reply_route(&pending.inbound);
        match route.delivery {
            Delivery::Push => self.handles.delivery.lanes.wake(route.lane()).await,
            Delivery::Pull => {}
        }
        let key = self.key.clone();
        let current = self.handles.db.read(move |reader| {
            let session = reader.bound(&key)?;
            let row = session.as_ref().map_or(Ok(None), |session| reader.last_row(session))?;
            Ok((session, row))
        });
        // The reply is committed; the view is updated with the next change at the latest.
        if let Ok((session, row)) = current.await {
            self.view_tx.send_modify(|view| {
                if entered.is_some() || view.session.is_none() {
                    view.session = session;
                }
                view.rows = row;
            });
        }
        Ok(())
    }
}

impl ReplyAddress {
    pub(in crate::sessions) fn delivery(&self) -> Delivery {
        self.route.delivery
    }

    /// Finds or creates the transcript of the author's messages.
    pub(in crate::sessions) fn open(
        &self,
        tx: &Tx<'_>,
        ask: ResolveMode,
    ) -> Result<OpenedSession, StoreError> {
        self.settings.open(tx, &self.key, &self.pending.inbound.source, &self.hint, ask, clock::now())
    }

    pub(in crate::sessions) fn enqueue_reply(
        &self,
        tx: &Tx<'_>,
        reply: &CommandReply,
        mut writes: Vec<Write>,
    ) -> Result<(), StoreError> {
        let now = clock::now();
        match self.route.delivery {
            Delivery::Push => writes.push(Write::Enqueue(Draft {
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
                    None => self.open(tx, ResolveMode::Continue)?.entry.session_id,
                };
                writes.push(Write::Append { session, message: Message::notice(reply.text.clone(), now) });
            }
        }
        tx.apply(&writes, now)
    }
}
