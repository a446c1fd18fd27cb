//! Saying something where nobody asked: scheduled work, a command on this machine, a tool.
//!
//! Whatever goes to a platform goes through the outbox, in the order of its chat; a caller may wait for it for a while,
//! and what is not delivered by then is still owed. One target's failure is nobody else's.

pub(crate) mod forward;
pub(crate) mod home_channels;
pub(crate) mod output;
pub(crate) mod transcript_mirror;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::directory::{Directory, Unresolved};
use petasos_core::outbox::{Draft, Item, State};
use petasos_core::target::{self, Aim, Place, Target};
use petasos_core::text::is_silence_narration;
use petasos_core::{Millis, OutboxId, Route};
use petasos_store::{Error as StoreError, Tx};
use serde::Serialize;
use tokio::time::Instant;

use crate::api::handle::Handle;
use crate::background::notifications::home_channels::Homes;
use crate::background::notifications::output::Job;
use crate::clock;
use crate::delivery::Deliver;
use crate::home::directory;
use crate::lifecycle::config::Settings;
use crate::lifecycle::lifetime::Lifetime;
use crate::lifecycle::shutdown::Stopper;
use crate::links::channels::Channels;
use crate::links::outages::notices;
use crate::runtime::commit::Commit;
use crate::runtime::tasks;
use crate::storage::database::Db;

/// What is to be said, and where.
#[derive(Debug, Clone)]
pub struct Post {
    /// As people write it: see `core::target`.
    pub to: String,
    pub text: String,
    pub job: Job,
    /// Where the work was asked for.
    pub origin: Option<Place>,
    pub mirror: Mirror,
    /// How long to wait for the platforms.
    pub wait: Duration,
}

/// Whether the conversation there learns of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirror {
    No,
    /// As the agent's own words.
    Own,
    /// As something brought to the agent.
    Brief,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Posted {
    pub target: String,
    #[serde(flatten)]
    pub fate: Fate,
}

/// What has become of it in one place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Fate {
    Delivered {
        messages: Vec<String>,
    },
    /// Owed, and on its way.
    Queued {
        item: OutboxId,
    },
    /// Not tried: `dead_target`.
    Skipped {
        reason: &'static str,
    },
    /// It only says that nothing is said.
    Silent,
    Saved {
        file: PathBuf,
    },
    Failed {
        error: String,
    },
}

/// Says something where nobody asked, and holds what that takes.
#[derive(Debug, Clone)]
pub(crate) struct Notifications {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) deliver: Deliver,
    pub(crate) homes: Arc<Homes>,
    /// Below it lie the files of what goes to no platform.
    pub(crate) home: PathBuf,
    pub(crate) settings: Arc<Settings>,
    pub(crate) lifetime: Arc<Lifetime>,
    pub(crate) stopper: Stopper,
}

const DEAD: &str = "dead_target";
/// A longer text is kept as a whole, whatever the platform makes of it.
pub(crate) const LONG: usize = 4000;
/// Nobody waits longer.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
const FIRST_LOOK: Duration = Duration::from_millis(10);
const SLOWEST_LOOK: Duration = Duration::from_millis(500);

impl Handle {
    /// In the order in which the places were named, each once.
    pub async fn post(&self, post: Post) -> Vec<Posted> {
        self.0.handles.notifications.everywhere(post).await
    }
}

impl Notifications {
    /// A caller that is dropped meanwhile only stops waiting: every place that was named gets its message.
    pub(crate) async fn everywhere(&self, post: Post) -> Vec<Posted> {
        let (to, wait) = (post.to.clone(), post.wait.min(LONGEST_WAIT));
        let enqueued = tasks::uncancelled(enqueue(self.clone(), post)).await;
        let mut posted =
            enqueued.unwrap_or_else(|error| vec![Posted { target: to, fate: failed(error.to_string()) }]);
        settle(self, &mut posted, wait).await;
        posted
    }

    /// The owner hears it in every home channel.
    pub(crate) async fn tell_owner(&self, text: &str) {
        self.tell(self.homes.routes(), text).await;
    }

    /// Says something to the owner in these chats.
    pub(crate) async fn tell(&self, to: Vec<Route>, text: &str) {
        let owed = notices(&to, text);
        if owed.is_empty() {
            return;
        }
        if let Err(error) = self.db.write(Commit::Outage, move |tx| tx.apply(&owed, clock::now())).await {
            tracing::warn!(%error, "nobody could be told");
            return;
        }
        for route in to {
            self.deliver.due(route.lane()).await;
        }
    }
}

/// Puts one item per place into the outbox, and what belongs into files there.
async fn enqueue(by: Notifications, post: Post) -> Vec<Posted> {
    let by = &by;
    let mut posted = Vec::new();
    for (target, aim) in aims(by, &post).await {
        let fate = match aim {
            Ok(Aim::Chat(place)) => say(by, &place, &post).await,
            Ok(Aim::File) => saved(by, &post, output::save).await,
            Ok(Aim::Homeless(platform)) => {
                failed(format!("{platform} has no home channel; /sethome in a chat there makes it one"))
            }
            Err(error) => failed(error),
        };
        posted.push(Posted { target, fate });
    }
    let owed = posted.iter().any(|it| matches!(it.fate, Fate::Queued { .. }));
    if owed && post.text.chars().nth(LONG).is_some() {
        let kept = saved(by, &post, output::save_whole).await;
        tracing::info!(?kept, "a long text is kept as a whole");
    }
    posted
}

/// Puts a message for a place into the outbox. `None`: the chat is known to be dead.
pub(crate) fn owe(
    tx: &Tx<'_>,
    place: &Place,
    text: &str,
    now: Millis,
) -> Result<Option<OutboxId>, StoreError> {
    let dead = tx.dead_chat(place.platform, &place.chat_id)?;
    if dead.is_some_and(|dead| !dead.probe_due(now)) {
        return Ok(None);
    }
    tx.owe_new(&Draft::notice(place.route(), text), now).map(Some)
}

async fn say(by: &Notifications, place: &Place, post: &Post) -> Fate {
    if by.channels.adapter(place.platform).is_none() {
        return failed(format!("{} is not connected here", place.platform));
    }
    if by.settings.filter_silence && is_silence_narration(&post.text) {
        return Fate::Silent;
    }
    let (to, text, mirror, now) = (place.clone(), post.text.clone(), post.mirror, clock::now());
    let owed = by.db.write(Commit::Post, move |tx| {
        let item = owe(tx, &to, &text, now)?;
        if item.is_some() {
            transcript_mirror::append(tx, &to, &text, mirror, now)?;
        }
        Ok(item)
    });
    match owed.await {
        Ok(Some(item)) => {
            by.deliver.due(place.route().lane()).await;
            Fate::Queued { item }
        }
        Ok(None) => Fate::Skipped { reason: DEAD },
        Err(error) => failed(error.to_string()),
    }
}

/// Every place that was named, or why it is none.
pub(crate) async fn aims(by: &Notifications, post: &Post) -> Vec<(String, Result<Aim, String>)> {
    let home = by.home.clone();
    // A panic there would be one of ours; without the directory only names are lost.
    let names = petasos_runtime::blocking(move || directory::read(&home)).await.unwrap_or_default();
    let homes = homes(by, post);
    let mut aims: Vec<(String, Result<Aim, String>)> = Vec::new();
    for (written, target) in Target::parse_list(&post.to) {
        let target = target.map_err(|bad| bad.to_string()).and_then(|target| found(target, &names));
        match target {
            Ok(target) => {
                let found = target::expand(&[target], post.origin.as_ref(), &homes);
                if found.is_empty() {
                    let error = "no platform has a home channel; /sethome in a chat makes it one";
                    aims.push((written.clone(), Err(error.into())));
                }
                let alone = found.len() == 1;
                for aim in found {
                    let name = if alone { written.clone() } else { name_of(&aim) };
                    if !aims.iter().any(|(_, known)| known.as_ref() == Ok(&aim)) {
                        aims.push((name, Ok(aim)));
                    }
                }
            }
            Err(error) => aims.push((written, Err(error))),
        }
    }
    aims
}

/// Scheduled work may have a thread of its own in a home.
fn homes(by: &Notifications, post: &Post) -> Vec<Place> {
    let mut homes = by.homes.places();
    for home in homes.iter_mut().filter(|_| post.job.id.is_some()) {
        let threads = &by.lifetime.scheduled_threads;
        let own = threads.iter().find(|(platform, _)| *platform == home.platform);
        home.thread_id = own.map(|(_, thread)| thread.clone()).or(home.thread_id.take());
    }
    homes
}

/// With the id of a chat that was named.
fn found(target: Target, names: &Directory) -> Result<Target, String> {
    let Target::Chat(place) = target else { return Ok(target) };
    if target::is_id(place.platform, &place.chat_id) {
        return Ok(Target::Chat(place));
    }
    let known = names.resolve(place.platform, &place.chat_id).map_err(|unresolved| match unresolved {
        Unresolved::Unknown => {
            format!(
                "no chat on {} is called {:?}; petasos channels lists them",
                place.platform, place.chat_id
            )
        }
        Unresolved::Several(names) => format!("{:?} could be any of {}", place.chat_id, names.join(", ")),
    })?;
    Ok(Target::Chat(Place { thread_id: place.thread_id.or(known.thread_id), ..known }))
}

fn name_of(aim: &Aim) -> String {
    match aim {
        Aim::File => Target::Local.to_string(),
        Aim::Chat(place) => place.to_string(),
        Aim::Homeless(platform) => platform.to_string(),
    }
}

pub(crate) async fn saved(
    by: &Notifications,
    post: &Post,
    save: fn(&std::path::Path, &Job, &str, Millis) -> std::io::Result<PathBuf>,
) -> Fate {
    let (home, job, text) = (by.home.clone(), post.job.clone(), post.text.clone());
    match petasos_runtime::blocking(move || save(&home, &job, &text, clock::now())).await {
        Ok(Ok(file)) => Fate::Saved { file },
        Ok(Err(error)) => failed(format!("the file cannot be written: {error}")),
        Err(_panicked) => failed("writing the file panicked".into()),
    }
}

/// Follows what is owed to its end, for as long as the caller has time.
async fn settle(by: &Notifications, posted: &mut [Posted], wait: Duration) {
    let (deadline, mut pause) = (Instant::now() + wait, FIRST_LOOK);
    loop {
        let mut open = false;
        for it in posted.iter_mut() {
            let Fate::Queued { item } = it.fate else { continue };
            match by.db.read(move |reader| reader.item(item)).await {
                Ok(found) => it.fate = fate_of(item, found),
                // It is owed all the same.
                Err(error) => tracing::debug!(%error, "the outbox cannot be read"),
            }
            open |= matches!(it.fate, Fate::Queued { .. });
        }
        if !open || Instant::now() >= deadline {
            return;
        }
        petasos_runtime::select! {
            () = by.stopper.stopped() => return,
            () = tokio::time::sleep_until(deadline.min(Instant::now() + pause)) => {}
        }
        pause = (pause * 2).min(SLOWEST_LOOK);
    }
}

fn fate_of(id: OutboxId, item: Option<Item>) -> Fate {
    let Some(item) = item else { return failed("somebody dropped it from the outbox".into()) };
    match item.state {
        State::Done => Fate::Delivered { messages: item.sent },
        State::Dead => match item.last_error {
            Some(error) if error.starts_with(DEAD) => Fate::Skipped { reason: DEAD },
            error => failed(error.unwrap_or_default()),
        },
        State::Streaming | State::Due | State::Sending => Fate::Queued { item: id },
    }
}

fn failed(error: String) -> Fate {
    Fate::Failed { error }
}
