//! `/new`: the conversation begins afresh, and nothing that was meant for the old one reaches the new one.

use std::collections::BTreeSet;

use petasos_core::InboxId;
use petasos_core::LaneId;
use petasos_core::message::Delivery;
use petasos_core::session::Ask;
use petasos_store::Pending;

use crate::background::completions;
use crate::clock;
use crate::sessions::commands::cancel;
use crate::sessions::messages::reply::Reply;
use crate::sessions::{Ended, Session};

impl Session {
    /// What waits and was said before this command is cancelled with the session it was meant for.
    pub(in crate::sessions) async fn renew(&mut self, pending: &Pending) -> Result<(), Ended> {
        self.handles.agent.delegation.stop(&self.key);
        self.interrupt().await?;
        let before = self.show.borrow().session.clone();
        let lanes = self.lanes_of_internal(pending.id);
        let (taken, key) = (self.take_before(pending.id), self.key.clone());
        let cancelled: Vec<_> = taken.iter().map(|(id, _)| *id).collect();
        let channels = self.handles.channels.clone();
        self.reply(pending, move |tx, address| {
            let entered = address.open(tx, Ask::ForceNew)?.entry.session_id;
            // What has ended is not lost with the conversation: the chat hears of it.
            for inbox in &cancelled {
                completions::look_again(tx, &channels, *inbox, Some(&entered), clock::now())?;
            }
            cancel(tx, &cancelled)?;
            // What happened to the old one says nothing about the new one.
            tx.forget_failures(&key)?;
            let reply = Reply::answered("✨ New session. The earlier one is kept: /sessions lists it.");
            Ok(Reply { entered: Some(entered), ..reply })
        })
        .await?;
        taken.iter().for_each(|(_, run)| self.settled(run.as_ref()));
        for lane in lanes {
            self.handles.delivery.deliver.due(lane).await;
        }
        self.hooks_hear_of_a_session(&pending.inbound.source, before);
        Ok(())
    }

    /// Where something may have to be said about what the gateway itself put into the queue.
    fn lanes_of_internal(&self, before: InboxId) -> BTreeSet<LaneId> {
        let own = self.queue.iter().map(|waiting| &waiting.pending);
        let own = own.filter(|pending| pending.id < before && pending.inbound.internal);
        let routes = own.map(|pending| self.handles.channels.way_back(&pending.inbound));
        routes.filter(|route| route.delivery == Delivery::Push).map(|route| route.lane()).collect()
    }

    /// What waits and came before this one: its id, and its author's own name for it.
    fn take_before(&mut self, id: InboxId) -> Vec<(InboxId, Option<String>)> {
        let earlier = |pending: &Pending| pending.id < id;
        let waiting = self.queue.iter().map(|waiting| &waiting.pending).chain(self.steering());
        let waiting = waiting.filter(|it| earlier(it));
        let mut taken: Vec<_> = waiting.map(|it| (it.id, it.inbound.source.message_id.clone())).collect();
        taken.extend(self.arriving.take_back(earlier));
        self.fetch_first();
        self.queue.retain(|waiting| !earlier(&waiting.pending));
        if let Some(running) = &mut self.running {
            running.steering.retain(|pending| !earlier(pending));
        }
        self.publish_queue();
        taken
    }
}
