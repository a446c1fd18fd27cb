//! Messages whose files are being downloaded, in order with the messages behind them.
//!
//! One task downloads the files of the first message; later messages wait behind it, with or without files. The session keeps
//! handling commands, reports and stops. A crash leaves the messages in the inbox.

use std::collections::VecDeque;

use petasos_core::admission::{AdmissionRefusal, Arrival, MAX_QUEUED};
use petasos_core::command::{self as slash, Name, Parsed};
use petasos_core::journal::MessageOutcome;
use petasos_core::message::Attachment;
use petasos_core::{Inbound, InboxId, RunId, Source};
use petasos_store::PendingMessage;
use tokio::task::JoinHandle;

use super::admit::AdmissionPromise;
use crate::api::runs::run_of;
use crate::inbound::downloads::Downloader;
use crate::notices::files as notices;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::messages::reply::CommandReply;
use crate::sessions::{SessionError, SessionTask};

#[derive(Debug, Default)]
pub(in crate::sessions) struct PendingDownloads {
    waiting: VecDeque<WaitingMessage>,
    /// Set while messages wait. Aborted on drop.
    fetch: Option<DownloadTask>,
}

#[derive(Debug)]
struct WaitingMessage {
    pending: PendingMessage,
    arrival: Arrival,
    promise: AdmissionPromise,
}

#[derive(Debug)]
struct DownloadTask(JoinHandle<Inbound>);

impl Drop for DownloadTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl PendingDownloads {
    pub(in crate::sessions) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(in crate::sessions) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(in crate::sessions) fn contains(&self, id: InboxId) -> bool {
        self.waiting.iter().any(|message| message.pending.id == id)
    }

    /// Whether a message of the same author is among them, which could share a turn.
    pub(in crate::sessions) fn contains_author(&self, author: &Source) -> bool {
        let is_of = |message: &WaitingMessage| message.pending.inbound.source.user_id == author.user_id;
        self.waiting.iter().any(|message| message.arrival == Arrival::Text && is_of(message))
    }

    /// Removes the messages that match and returns their ids and API run ids.
    pub(in crate::sessions) fn remove_where(
        &mut self,
        matches: impl Fn(&PendingMessage) -> bool,
    ) -> Vec<(InboxId, Option<RunId>)> {
        if self.waiting.front().is_some_and(|first| matches(&first.pending)) {
            self.fetch = None;
        }
        let removed = self.waiting.iter().map(|message| &message.pending).filter(|it| matches(it));
        let removed = removed.map(with_run).collect();
        self.waiting.retain(|message| !matches(&message.pending));
        removed
    }
}

/// A message and the API run that it started.
pub(in crate::sessions) fn with_run(pending: &PendingMessage) -> (InboxId, Option<RunId>) {
    let source = &pending.inbound.source;
    (pending.id, run_of(source.platform, source.message_id.as_ref()))
}

/// The first message after its download; pending for ever if none runs. `None`: the download panicked.
pub(in crate::sessions) async fn next_downloaded(arriving: &mut PendingDownloads) -> Option<Inbound> {
    match &mut arriving.fetch {
        Some(DownloadTask(task)) => task.await.ok(),
        None => std::future::pending().await,
    }
}

impl SessionTask {
    /// Whether a message must wait for downloads, its own or those of an earlier message.
    pub(in crate::sessions) fn must_wait_for_files(&self, pending: &PendingMessage) -> bool {
        !self.downloads.is_empty() || Downloader::wants(&pending.inbound)
    }

    /// The same for a message that an earlier process accepted.
    pub(in crate::sessions) fn must_still_wait_for_files(&self, pending: &PendingMessage) -> bool {
        self.must_wait_for_files(pending) && !planted(PlantedBug::ForgetsFiles)
    }

    /// Appends a message, or refuses it if the queue is full. An accepted message keeps its place.
    pub(in crate::sessions) async fn enqueue_download(
        &mut self,
        pending: PendingMessage,
        arrival: Arrival,
        promise: AdmissionPromise,
    ) -> Result<(), SessionError> {
        let full = self.queue.len() + self.steering().len() + self.downloads.len() >= MAX_QUEUED;
        if full && promise == AdmissionPromise::NotYet && arrival != Arrival::Internal {
            let text = AdmissionRefusal::QueueFull.text().into_owned();
            return self.reply(&pending, text, MessageOutcome::Refused).await;
        }
        self.downloads.waiting.push_back(WaitingMessage { pending, arrival, promise });
        self.start_next_download();
        Ok(())
    }

    /// Starts the download of the first message, unless it is running.
    pub(in crate::sessions) fn start_next_download(&mut self) {
        let Some(first) = self.downloads.waiting.front().filter(|_| self.downloads.fetch.is_none()) else {
            return;
        };
        let handles = self.handles.clone();
        let key = self.key.clone();
        let id = first.pending.id;
        let inbound = first.pending.inbound.clone();
        let task = petasos_runtime::spawn(async move {
            let adapter = handles.channels.adapter(inbound.source.platform).cloned();
            handles.downloader.fetch(adapter.as_deref(), &key, id, inbound).await
        });
        self.downloads.fetch = Some(DownloadTask(task));
    }

    /// Stores the result of the first message's download, then admits it and the following messages without files.
    pub(in crate::sessions) async fn on_files_fetched(
        &mut self,
        inbound: Option<Inbound>,
    ) -> Result<(), SessionError> {
        self.downloads.fetch = None;
        let Some(mut first) = self.downloads.waiting.pop_front() else { return Ok(()) };
        first.pending.inbound = inbound.unwrap_or_else(|| with_failed_files(first.pending.inbound));
        let pending = first.pending.clone();
        self.current = Some(pending.clone());
        let address = self.address(&pending);
        let notice = failure_notice(&pending.inbound).map(CommandReply::answered);
        let id = pending.id;
        let downloaded = pending.inbound.clone();
        let reply = notice.clone();
        // One commit: a crash neither repeats nor loses the notice.
        self.write(Commit::Rewrite, move |tx| {
            tx.rewrite(id, &downloaded)?;
            reply.as_ref().map_or(Ok(()), |reply| address.enqueue_reply(tx, reply, vec![]))
        })
        .await?;
        if notice.is_some() {
            self.publish_reply(&pending, None).await?;
        }
        self.admit_fetched(first).await?;
        while let Some(next) =
            self.downloads.waiting.pop_front_if(|next| !Downloader::wants(&next.pending.inbound))
        {
            self.current = Some(next.pending.clone());
            self.admit_fetched(next).await?;
        }
        self.start_next_download();
        Ok(())
    }

    async fn admit_fetched(&mut self, message: WaitingMessage) -> Result<(), SessionError> {
        let WaitingMessage { mut pending, arrival, promise } = message;
        if let (Arrival::Queued, Parsed::Known(Name::Queue, text)) =
            (arrival, slash::parse(&pending.inbound.text))
        {
            pending.inbound.text = text;
        }
        match promise {
            AdmissionPromise::Given => {
                self.enqueue(pending, arrival, AdmissionPromise::Given);
                Ok(())
            }
            AdmissionPromise::NotYet => {
                Box::pin(self.resume_turn()).await?;
                self.admit(pending, arrival).await
            }
        }
    }
}

/// Marks the files as failed after a panic; they are not tried again.
fn with_failed_files(mut inbound: Inbound) -> Inbound {
    for attachment in inbound.attachments.iter_mut().filter(|it| it.needs_download()) {
        attachment.error = Some(notices::DOWNLOAD_FAILED.into());
    }
    inbound
}

/// `None`: every file was received.
fn failure_notice(inbound: &Inbound) -> Option<String> {
    let line = |it: &Attachment| {
        let name = it.name.as_deref().map(|name| format!(" {name}")).unwrap_or_default();
        it.error.as_ref().map(|why| notices::not_received(&it.kind, &name, why))
    };
    let lines: Vec<String> = inbound.attachments.iter().filter_map(line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
