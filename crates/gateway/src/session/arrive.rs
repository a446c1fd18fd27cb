//! Messages with files: let in when their files are here, and in the order in which they came.
//!
//! The first of them is being fetched, in a task of its own; the others wait behind it, whether they have files or
//! not. Meanwhile the session hears everything else: commands, reports, a stop. A crash leaves them in the inbox.

use std::collections::VecDeque;

use petasos_core::admission::{Arrival, Refusal};
use petasos_core::journal::Outcome;
use petasos_core::message::Attachment;
use petasos_core::{Inbound, InboxId};
use petasos_store::Pending;
use tokio::task::JoinHandle;

use super::admit::Promise;
use super::{Ended, Session};
use crate::fetch::Fetcher;

/// Messages that may wait for files.
const MOST: usize = 64;

/// Those on their way into the queue, oldest first; the first one's files are being fetched.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    waiting: VecDeque<(Pending, Promise)>,
    /// Always there while somebody waits. Dropping it ends the fetch.
    fetch: Option<Fetch>,
}

#[derive(Debug)]
struct Fetch(JoinHandle<Inbound>);

impl Drop for Fetch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Arriving {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn holds(&self, id: InboxId) -> bool {
        self.waiting.iter().any(|(pending, _)| pending.id == id)
    }

    /// Forgets those that `gone` names; their ids are returned.
    pub(super) fn take_back(&mut self, gone: impl Fn(&Pending) -> bool) -> Vec<InboxId> {
        let first = self.waiting.front().is_some_and(|(pending, _)| gone(pending));
        if first {
            self.fetch = None;
        }
        let ids = self.waiting.iter().filter(|(pending, _)| gone(pending)).map(|(pending, _)| pending.id);
        let ids = ids.collect();
        self.waiting.retain(|(pending, _)| !gone(pending));
        ids
    }
}

/// The first message with what became of its files; never, if none is fetched. `None`: the fetch panicked.
pub(super) async fn fetched(arriving: &mut Arriving) -> Option<Inbound> {
    match &mut arriving.fetch {
        Some(Fetch(task)) => task.await.ok(),
        None => std::future::pending().await,
    }
}

impl Session {
    /// Whether a message must wait for files, its own or those of one before it.
    pub(super) fn waits_for_files(&self, pending: &Pending) -> bool {
        !self.arriving.is_empty() || Fetcher::wants(&pending.inbound)
    }

    pub(super) async fn await_files(&mut self, pending: Pending, promise: Promise) -> Result<(), Ended> {
        if self.arriving.len() >= MOST && promise == Promise::NotYet {
            let text = Refusal::QueueFull.text().into_owned();
            return self.answer(&pending, text, Outcome::Refused).await;
        }
        self.arriving.waiting.push_back((pending, promise));
        self.fetch_first();
        Ok(())
    }

    /// Starts to fetch for the first message, unless that is under way.
    pub(super) fn fetch_first(&mut self) {
        let Some((first, _)) = self.arriving.waiting.front().filter(|_| self.arriving.fetch.is_none()) else {
            return;
        };
        let (shell, id, inbound) = (self.shell.clone(), first.id, first.inbound.clone());
        let task = tokio::spawn(async move {
            let adapter = shell.channels.adapter(inbound.source.platform).cloned();
            shell.fetcher.fetch(adapter.as_deref(), id, inbound).await
        });
        self.arriving.fetch = Some(Fetch(task));
    }

    /// What became of the first message's files is kept; then it is let in, and all behind it that wait for no files
    /// of their own.
    pub(super) async fn files_are_here(&mut self, inbound: Option<Inbound>) -> Result<(), Ended> {
        self.arriving.fetch = None;
        let Some((first, promise)) = self.arriving.waiting.pop_front() else { return Ok(()) };
        let inbound = inbound.unwrap_or_else(|| given_up(first.inbound.clone()));
        let first = Pending { inbound, ..first };
        self.handling = Some(first.clone());
        let (id, kept) = (first.id, first.inbound.clone());
        self.change(move |tx| tx.rewrite(id, &kept)).await?;
        if let Some(text) = troubles(&first.inbound) {
            self.notice(&first, text, vec![]).await?;
        }
        self.let_in(first, promise).await?;
        while let Some((next, promise)) =
            self.arriving.waiting.pop_front_if(|(next, _)| !Fetcher::wants(&next.inbound))
        {
            self.handling = Some(next.clone());
            self.let_in(next, promise).await?;
        }
        self.fetch_first();
        Ok(())
    }

    async fn let_in(&mut self, pending: Pending, promise: Promise) -> Result<(), Ended> {
        let arrival = if pending.inbound.internal { Arrival::Internal } else { Arrival::Text };
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
