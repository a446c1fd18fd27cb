//! `/new`: starts a new conversation and cancels what was meant for the old one.

use std::collections::BTreeSet;

use petasos_core::message::Delivery;
use petasos_core::session::ResolveMode;
use petasos_core::{InboxId, LaneId, RunId};
use petasos_store::PendingMessage;

use crate::background::completions;
use crate::clock;
use crate::notices::commands as notices;
use crate::sessions::commands::cancel_messages;
use crate::sessions::messages::files::with_run;
use crate::sessions::messages::reply::CommandReply;
use crate::sessions::{SessionError, SessionTask};

impl SessionTask {
    /// Messages that were queued before this command are cancelled with their session.
    pub(in crate::sessions) async fn new_session(
        &mut self,
        pending: &PendingMessage,
    ) -> Result<(), SessionError> {
        self.handles.agent.delegation.stop(&self.key);
        self.interrupt().await?;
        let before = self.view_tx.borrow().session.clone();
        let lanes = self.lanes_of_internal(pending.id);
        let removed = self.take_before(pending.id);
        let key = self.key.clone();
        let cancelled: Vec<_> = removed.iter().map(|(id, _)| *id).collect();
        let channels = self.handles.channels.clone();
        self.reply_with(pending, move |tx, address| {
            let entered = address.open(tx, ResolveMode::ForceNew)?.entry.session_id;
            // Results of background work are announced in the chat instead.
            for inbox in &cancelled {
                completions::recheck_session(tx, &channels, *inbox, Some(&entered), clock::now())?;
            }
            cancel_messages(tx, &cancelled)?;
            // Crashes of the old conversation do not count against the new one.
            tx.forget_failures(&key)?;
            let reply = CommandReply::answered(notices::NEW_SESSION);
            Ok(CommandReply { entered: Some(entered), ..reply })
        })
        .await?;
        removed.into_iter().for_each(|(_, run)| self.notify_run_ended(run));
        for lane in lanes {
            self.handles.delivery.lanes.wake(lane).await;
        }
        self.emit_session_change(&pending.inbound.source, before);
        Ok(())
    }

    /// Lanes that may deliver notices about the internal messages in the queue.
    fn lanes_of_internal(&self, before: InboxId) -> BTreeSet<LaneId> {
        let own = self.queue.iter().map(|waiting| &waiting.pending);
        let own = own.filter(|pending| pending.id < before && pending.inbound.internal);
        let routes = own.map(|pending| self.handles.channels.reply_route(&pending.inbound));
        routes.filter(|route| route.delivery == Delivery::Push).map(|route| route.lane()).collect()
    }

    /// Takes the earlier messages off the queue; returns their ids and API run ids.
    fn take_before(&mut self, id: InboxId) -> Vec<(InboxId, Option<RunId>)> {
        let earlier = |pending: &PendingMessage| pending.id < id;
        let waiting = self.queue.iter().map(|waiting| &waiting.pending).chain(self.steering());
        let waiting = waiting.filter(|it| earlier(it));
        let mut removed: Vec<_> = waiting.map(with_run).collect();
        removed.extend(self.downloads.remove_where(earlier));
        self.start_next_download();
        self.queue.retain(|waiting| !earlier(&waiting.pending));
        if let Some(running) = &mut self.running {
            running.steering.retain(|pending| !earlier(pending));
        }
        self.publish_queue();
        removed
    }
}
