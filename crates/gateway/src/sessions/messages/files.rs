//! Messages with files: let in when their files are here, and in the order in which they came, what was queued among them.
//!
//! The first of them is being fetched, in a task of its own; the others wait behind it, whether they have files or
//! not. Meanwhile the session hears everything else: commands, reports, a stop. A crash leaves them in the inbox.

use std::collections::VecDeque;

use petasos_core::admission::{Arrival, QUEUE_CAP, Refusal};
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::journal::Outcome;
use petasos_core::message::Attachment;
use petasos_core::{Inbound, InboxId, Source};
use petasos_store::Pending;
use tokio::task::JoinHandle;

use super::admit::Promise;
use crate::inbound::downloads::Fetcher;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::messages::reply::Reply;
use crate::sessions::{Ended, Session};

/// Those on their way into the queue, oldest first; the first one's files are being fetched.
#[derive(Debug, Default)]
pub(in crate::sessions) struct Arriving {
    waiting: VecDeque<Coming>,
    /// Always there while somebody waits. Dropping it ends the fetch.
    fetch: Option<Fetch>,
}

#[derive(Debug)]
struct Coming {
    /// As it is in the inbox.
    pending: Pending,
    arrival: Arrival,
    promise: Promise,
}

#[derive(Debug)]
struct Fetch(JoinHandle<Inbound>);

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Arriving {
    pub(in crate::sessions) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(in crate::sessions) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(in crate::sessions) fn holds(&self, id: InboxId) -> bool {
        self.waiting.iter().any(|coming| coming.pending.id == id)
    }

    /// Whether a message of the same author, which could be answered with it, is among them.
    pub(in crate::sessions) fn holds_of(&self, author: &Source) -> bool {
        let is_of = |coming: &Coming| coming.pending.inbound.source.user_id == author.user_id;
        self.waiting.iter().any(|coming| coming.arrival == Arrival::Text && is_of(coming))
    }

    /// Forgets those that `gone` names; their ids are returned.
    pub(in crate::sessions) fn take_back(
        &mut self,
        gone: impl Fn(&Pending) -> bool,
    ) -> Vec<(InboxId, Option<String>)> {
        if self.waiting.front().is_some_and(|first| gone(&first.pending)) {
            self.fetch = None;
        }
        let taken = self.waiting.iter().map(|coming| &coming.pending).filter(|it| gone(it));
        let taken = taken.map(|it| (it.id, it.inbound.source.message_id.clone())).collect();
        self.waiting.retain(|coming| !gone(&coming.pending));
        taken
    }
}

/// The first message with what became of its files; never, if none is fetched. `None`: the fetch panicked.
pub(in crate::sessions) async fn fetched(arriving: &mut Arriving) -> Option<Inbound> {
    match &mut arriving.fetch {
        Some(Fetch(task)) => task.await.ok(),
        None => std::future::pending().await,
    }
}

impl Session {
    /// Whether a message must wait for files, its own or those of one before it.
    pub(in crate::sessions) fn waits_for_files(&self, pending: &Pending) -> bool {
        !self.arriving.is_empty() || Fetcher::wants(&pending.inbound)
    }

    /// The same for a message that an earlier process accepted.
    pub(in crate::sessions) fn still_waits_for_files(&self, pending: &Pending) -> bool {
        self.waits_for_files(pending) && !planted(Planted::ForgetsFiles)
    }

    /// Whoever comes when too many wait is turned away here: once in, a message has its place.
    pub(in crate::sessions) async fn await_files(
        &mut self,
        pending: Pending,
        arrival: Arrival,
        promise: Promise,
    ) -> Result<(), Ended> {
        let full = self.queue.len() + self.steering().len() + self.arriving.len() >= QUEUE_CAP;
        if full && promise == Promise::NotYet && arrival != Arrival::Internal {
            let text = Refusal::QueueFull.text().into_owned();
            return self.answer(&pending, text, Outcome::Refused).await;
        }
        self.arriving.waiting.push_back(Coming { pending, arrival, promise });
        self.fetch_first();
        Ok(())
    }

    /// Starts to fetch for the first message, unless that is under way.
    pub(in crate::sessions) fn fetch_first(&mut self) {
        let Some(first) = self.arriving.waiting.front().filter(|_| self.arriving.fetch.is_none()) else {
            return;
        };
        let (handles, key) = (self.handles.clone(), self.key.clone());
        let (id, inbound) = (first.pending.id, first.pending.inbound.clone());
        let task = petasos_runtime::spawn(async move {
            let adapter = handles.channels.adapter(inbound.source.platform).cloned();
            handles.fetcher.fetch(adapter.as_deref(), &key, id, inbound).await
        });
        self.arriving.fetch = Some(Fetch(task));
    }

    /// What became of the first message's files is kept; then it is let in, and all behind it that wait for no files
    /// of their own.
    pub(in crate::sessions) async fn files_are_here(
        &mut self,
        inbound: Option<Inbound>,
    ) -> Result<(), Ended> {
        self.arriving.fetch = None;
        let Some(mut first) = self.arriving.waiting.pop_front() else { return Ok(()) };
        first.pending.inbound = inbound.unwrap_or_else(|| given_up(first.pending.inbound));
        let pending = first.pending.clone();
        self.handling = Some(pending.clone());
        let (address, trouble) = (self.address(&pending), troubles(&pending.inbound).map(Reply::answered));
        let (id, kept, reply) = (pending.id, pending.inbound.clone(), trouble.clone());
        // One commit: whoever goes on after a crash neither says it again nor leaves it out.
        self.change(Commit::Rewrite, move |tx| {
            tx.rewrite(id, &kept)?;
            reply.as_ref().map_or(Ok(()), |reply| address.tell(tx, reply, vec![]))
        })
        .await?;
        if trouble.is_some() {
            self.told(&pending, None).await?;
        }
        self.let_in(first).await?;
        while let Some(next) =
            self.arriving.waiting.pop_front_if(|next| !Fetcher::wants(&next.pending.inbound))
        {
            self.handling = Some(next.pending.clone());
            self.let_in(next).await?;
        }
        self.fetch_first();
        Ok(())
    }

    async fn let_in(&mut self, coming: Coming) -> Result<(), Ended> {
        let Coming { mut pending, arrival, promise } = coming;
        if let (Arrival::Queued, Parsed::Known(Name::Queue, text)) =
            (arrival, slash::parse(&pending.inbound.text))
        {
            pending.inbound.text = text;
        }
        match promise {
            Promise::Given => {
                self.enqueue(pending, arrival, Promise::Given);
                Ok(())
            }
            Promise::NotYet => {
                Box::pin(self.take_up()).await?;
                self.admit(pending, arrival).await
            }
        }
    }
}

/// Fetching panicked: nothing of it is tried again.
fn given_up(mut inbound: Inbound) -> Inbound {
    for attachment in inbound.attachments.iter_mut().filter(|it| it.is_wanted()) {
        attachment.trouble = Some("fetching it failed".into());
    }
    inbound
}

/// What to tell the author; `None`: all is well.
fn troubles(inbound: &Inbound) -> Option<String> {
    let line = |it: &Attachment| {
        let name = it.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
        it.trouble.as_ref().map(|why| format!("⚠️ I could not read your {}{name}: {why}.", it.kind))
    };
    let lines: Vec<String> = inbound.attachments.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
