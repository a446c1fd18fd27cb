//! Notifications: messages without a question before them, from scheduled jobs, the command line and tools.
//!
//! Messages for a platform go through the outbox, in the order of their chat. A caller may wait for delivery; a message
//! that is not delivered by then stays in the outbox. A failing target does not affect the others.

pub(crate) mod forward;
pub(crate) mod home_channels;
pub(crate) mod output;
pub(crate) mod transcript_mirror;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::directory::{Directory, ResolveError};
use petasos_core::outbox::{Draft, Item, State};
use petasos_core::target::{self, ChatAddress, Destination, Target};
use petasos_core::text::is_silence_narration;
use petasos_core::{Millis, OutboxId, Route};
use petasos_store::{Error as StoreError, Tx};
use serde::Serialize;

use crate::api::handle::Handle;
use crate::background::notifications::home_channels::HomeChannels;
use crate::background::notifications::output::OutputJob;
use crate::clock;
use crate::delivery::LaneDispatcher;
use crate::home::directory;
use crate::lifecycle::config::Settings;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::channels::Channels;
use crate::links::outages::notices;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::storage::database::Db;

#[derive(Debug, Clone)]
pub struct Notification {
    /// Comma-separated targets: see `core::target`.
    pub to: String,
    pub text: String,
    pub job: OutputJob,
    /// The chat where the job was requested.
    pub origin: Option<ChatAddress>,
    pub mirror: MirrorMode,
    pub wait: Duration,
}

/// Whether a notification is added to the transcript of its chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MirrorMode {
    No,
    /// As a message of the agent.
    Assistant,
    /// As a message to the agent.
    User,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NotificationResult {
    pub target: String,
    #[serde(flatten)]
    pub outcome: NotificationOutcome,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum NotificationOutcome {
    Delivered {
        messages: Vec<String>,
    },
    /// In the outbox, not delivered yet.
    Queued {
        item: OutboxId,
    },
    /// Not tried: the chat is dead.
    Skipped {
        reason: &'static str,
    },
    /// The text only says that there is nothing to report.
    Silent,
    Saved {
        file: PathBuf,
    },
    Failed {
        error: String,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct Notifications {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) lanes: LaneDispatcher,
    pub(crate) homes: Arc<HomeChannels>,
    /// Root of the output files.
    pub(crate) home: PathBuf,
    pub(crate) settings: Arc<Settings>,
    pub(crate) lifetime: Arc<Lifetime>,
    pub(crate) shutdown: ShutdownHandle,
}

const DEAD_CHAT: &str = "dead_target";
/// Longer texts are also saved in a file, because platforms may split or cut them.
pub(crate) const MAX_CHARS_INLINE: usize = 4000;
const MAX_WAIT: Duration = Duration::from_secs(600);
const FIRST_POLL: Duration = Duration::from_millis(10);
const MAX_POLL: Duration = Duration::from_millis(500);

impl Handle {
    /// Sends a notification to each of its targets once, in their order.
    pub async fn post(&self, post: Notification) -> Vec<NotificationResult> {
        self.0.handles.notifications.send(post).await
    }
}

impl Notifications {
    /// A dropped caller only stops waiting: all targets get their message.
    pub(crate) async fn send(&self, post: Notification) -> Vec<NotificationResult> {
        let to = post.to.clone();
        let wait = post.wait.min(MAX_WAIT);
        let enqueued = tasks::uncancelled(enqueue_all(self.clone(), post)).await;
        let mut posted = enqueued.unwrap_or_else(|error| {
            vec![NotificationResult { target: to, outcome: failed(error.to_string()) }]
        });
        await_delivery(self, &mut posted, wait).await;
        posted
    }

    pub(crate) async fn notify_owner(&self, text: &str) {
        self.notify(self.homes.routes(), text).await;
    }

    pub(crate) async fn notify(&self, to: Vec<Route>, text: &str) {
        let enqueued = notices(&to, text);
        if enqueued.is_empty() {
            return;
        }
        if let Err(error) = self.db.write(Commit::Outage, move |tx| tx.apply(&enqueued, clock::now())).await {
            tracing::warn!(%error, "cannot enqueue a notification");
            return;
        }
        for route in to {
            self.lanes.wake(route.lane()).await;
        }
    }
}

/// Enqueues one outbox item per chat, or writes the output file.
async fn enqueue_all(service: Notifications, post: Notification) -> Vec<NotificationResult> {
    let service = &service;
    let mut posted = Vec::new();
    for (target, aim) in resolve_destinations(service, &post).await {
        let outcome = match aim {
            Ok(Destination::Chat(place)) => enqueue_for_chat(service, &place, &post).await,
            Ok(Destination::File) => save_output(service, &post, output::save).await,
            Ok(Destination::NoHomeChannel(platform)) => {
                failed(format!("{platform} has no home channel; send /sethome in a chat there to set it"))
            }
            Err(error) => failed(error),
        };
        posted.push(NotificationResult { target, outcome });
    }
    let enqueued = posted.iter().any(|it| matches!(it.outcome, NotificationOutcome::Queued { .. }));
    if enqueued && post.text.chars().nth(MAX_CHARS_INLINE).is_some() {
        let kept = save_output(service, &post, output::save_whole).await;
        tracing::info!(?kept, "saved a long text in a file");
    }
    posted
}

pub(crate) fn enqueue(
    tx: &Tx<'_>,
    place: &ChatAddress,
    text: &str,
    now: Millis,
) -> Result<Option<OutboxId>, StoreError> {
    let dead = tx.dead_chat(place.platform, &place.chat_id)?;
    if dead.is_some_and(|dead| !dead.probe_due(now)) {
        return Ok(None);
    }
    tx.enqueue_new(&Draft::notice(place.route(), text), now).map(Some)
}

async fn enqueue_for_chat(
    service: &Notifications,
    place: &ChatAddress,
    post: &Notification,
) -> NotificationOutcome {
    if service.channels.adapter(place.platform).is_none() {
        return failed(format!("{} is not connected here", place.platform));
    }
    if service.settings.filter_silence && is_silence_narration(&post.text) {
        return NotificationOutcome::Silent;
    }
    let to = place.clone();
    let text = post.text.clone();
    let mirror = post.mirror;
    let now = clock::now();
    let enqueued = service.db.write(Commit::Notification, move |tx| {
        let item = enqueue(tx, &to, &text, now)?;
        if item.is_some() {
            transcript_mirror::append(tx, &to, &text, mirror, now)?;
        }
        Ok(item)
    });
    match enqueued.await {
        Ok(Some(item)) => {
            service.lanes.wake(place.route().lane()).await;
            NotificationOutcome::Queued { item }
        }
        Ok(None) => NotificationOutcome::Skipped { reason: DEAD_CHAT },
        Err(error) => failed(error.to_string()),
    }
}

/// The destinations of a notification, and the targets that cannot be resolved.
pub(crate) async fn resolve_destinations(
    service: &Notifications,
    post: &Notification,
) -> Vec<(String, Result<Destination, String>)> {
    let home = service.home.clone();
    // Without the directory, chats can only be addressed by id.
    let names = petasos_runtime::blocking(move || directory::read(&home)).await.unwrap_or_default();
    let homes = homes(service, post);
    let mut destinations: Vec<(String, Result<Destination, String>)> = Vec::new();
    for (written, target) in Target::parse_list(&post.to) {
        let target =
            target.map_err(|bad| bad.to_string()).and_then(|target| resolve_chat_name(target, &names));
        match target {
            Ok(target) => {
                let found = target::expand(&[target], post.origin.as_ref(), &homes);
                if found.is_empty() {
                    let error = "no platform has a home channel; send /sethome in a chat to set it";
                    destinations.push((written.clone(), Err(error.into())));
                }
                let alone = found.len() == 1;
                for aim in found {
                    let name = if alone { written.clone() } else { display_name(&aim) };
                    if !destinations.iter().any(|(_, known)| known.as_ref() == Ok(&aim)) {
                        destinations.push((name, Ok(aim)));
                    }
                }
            }
            Err(error) => destinations.push((written, Err(error))),
        }
    }
    destinations
}

/// Home channels, with the threads configured for scheduled jobs.
fn homes(service: &Notifications, post: &Notification) -> Vec<ChatAddress> {
    let mut homes = service.homes.places();
    for home in homes.iter_mut().filter(|_| post.job.id.is_some()) {
        let threads = &service.lifetime.scheduled_threads;
        let own = threads.iter().find(|(platform, _)| *platform == home.platform);
        home.thread_id = own.map(|(_, thread)| thread.clone()).or(home.thread_id.take());
    }
    homes
}

fn resolve_chat_name(target: Target, names: &Directory) -> Result<Target, String> {
    let Target::Chat(place) = target else { return Ok(target) };
    if target::is_id(place.platform, &place.chat_id) {
        return Ok(Target::Chat(place));
    }
    let known = names.resolve(place.platform, &place.chat_id).map_err(|unresolved| match unresolved {
        ResolveError::Unknown => {
            format!(
                "no chat on {} is called {:?}; `petasos channels` lists the chats",
                place.platform, place.chat_id
            )
        }
        ResolveError::Several(names) => format!("{:?} is ambiguous: {}", place.chat_id, names.join(", ")),
    })?;
    Ok(Target::Chat(ChatAddress { thread_id: place.thread_id.or(known.thread_id), ..known }))
}

fn display_name(aim: &Destination) -> String {
    match aim {
        Destination::File => Target::Local.to_string(),
        Destination::Chat(place) => place.to_string(),
        Destination::NoHomeChannel(platform) => platform.to_string(),
    }
}

pub(crate) async fn save_output(
    service: &Notifications,
    post: &Notification,
    save: fn(&std::path::Path, &OutputJob, &str, Millis) -> std::io::Result<PathBuf>,
) -> NotificationOutcome {
    let home = service.home.clone();
    let job = post.job.clone();
    let text = post.text.clone();
    match petasos_runtime::blocking(move || save(&home, &job, &text, clock::now())).await {
        Ok(Ok(file)) => NotificationOutcome::Saved { file },
        Ok(Err(error)) => failed(format!("the file cannot be written: {error}")),
        Err(_panicked) => failed("writing the file panicked".into()),
    }
}

/// Polls the outbox until all items are delivered or given up, or the time is over.
async fn await_delivery(service: &Notifications, posted: &mut [NotificationResult], wait: Duration) {
    let deadline = clock::monotonic() + wait;
    let mut pause = FIRST_POLL;
    loop {
        let mut open = false;
        for it in posted.iter_mut() {
            let NotificationOutcome::Queued { item } = it.outcome else { continue };
            match service.db.read(move |reader| reader.item(item)).await {
                Ok(found) => it.outcome = outcome_of(item, found),
                // The item stays in the outbox.
                Err(error) => tracing::debug!(%error, "the outbox cannot be read"),
            }
            open |= matches!(it.outcome, NotificationOutcome::Queued { .. });
        }
        if !open || clock::monotonic() >= deadline {
            return;
        }
        petasos_runtime::select! {
            () = service.shutdown.stopped() => return,
            () = tokio::time::sleep_until(deadline.min(clock::monotonic() + pause)) => {}
        }
        pause = (pause * 2).min(MAX_POLL);
    }
}

fn outcome_of(id: OutboxId, item: Option<Item>) -> NotificationOutcome {
    let Some(item) = item else { return failed("the message was dropped from the outbox".into()) };
    match item.state {
        State::Done => NotificationOutcome::Delivered { messages: item.sent },
        State::Dead => match item.last_error {
            Some(error) if error.starts_with(DEAD_CHAT) => NotificationOutcome::Skipped { reason: DEAD_CHAT },
            error => failed(error.unwrap_or_default()),
        },
        State::Streaming | State::Due | State::Sending => NotificationOutcome::Queued { item: id },
    }
}

fn failed(error: String) -> NotificationOutcome {
    NotificationOutcome::Failed { error }
}
