//! Channel directory: maintains `channel_directory.json`, the named chats of every configured platform.
//!
//! Owns that file. It is rebuilt when a platform connects and every five minutes, and written if it changed. Chats of a
//! platform that cannot be listed now stay as they were listed before, also by an earlier process, so that names keep
//! working during an outage.
//!
//! The work is bounded: per platform the most recently used chats are read once, then only those used since.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::directory::{Channel, Directory};
use petasos_core::lifecycle::stamp;
use petasos_core::link::State;
use petasos_core::{Millis, Source};
use petasos_platforms::Adapter;

use crate::clock;
use crate::home::directory;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::links::any_changed;
use crate::links::channels::Channels;
use crate::links::supervisor::LinkHandle;
use crate::storage::database::Db;

const REFRESH_INTERVAL: Duration = Duration::from_secs(300);
const MAX_CHANNELS: usize = 4000;
const MAX_NAME_CHARS: usize = 100;
/// Sessions are read again from this long before the last read, because the store has local times and clocks are set.
const OVERLAP: Duration = Duration::from_secs(2 * 3600);

type ConnectedSince = BTreeMap<&'static str, Millis>;

#[derive(Debug, Default)]
struct DirectoryState {
    listed: BTreeMap<String, Vec<Channel>>,
    active: BTreeMap<&'static str, ActiveChats>,
    written: BTreeMap<String, Vec<Channel>>,
}

#[derive(Debug)]
pub(crate) struct DirectoryBuilder {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) home: PathBuf,
    pub(crate) shutdown: ShutdownHandle,
}

pub(crate) async fn run(builder: DirectoryBuilder, mut links: Vec<LinkHandle>) {
    let mut state = restore_state(&builder).await;
    let mut seen = ConnectedSince::new();
    let mut due = clock::now();
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        let connected = connected(&links);
        let came_up = connected.iter().any(|(name, since)| seen.get(name) != Some(since));
        if came_up || clock::now() >= due || due > clock::now().after(REFRESH_INTERVAL) {
            petasos_runtime::select! {
                () = builder.shutdown.stopped() => return,
                () = build(&builder, &connected, &mut state) => {}
            }
            due = clock::now().after(REFRESH_INTERVAL);
        }
        seen = connected;
        petasos_runtime::select! {
            () = builder.shutdown.stopped() => return,
            () = any_changed(&mut links) => {}
            () = clock::sleep_until(due) => {}
        }
    }
}

fn connected(links: &[LinkHandle]) -> ConnectedSince {
    let since = |link: &LinkHandle| match link.link.borrow().state {
        State::Up { since, .. } => Some((link.name, since)),
        State::Connecting { .. } | State::Waiting { .. } | State::Fatal { .. } | State::Paused => None,
    };
    links.iter().filter_map(since).collect()
}

/// Starts from the file of the previous process, without the owner's aliases, which are added on every write.
async fn restore_state(builder: &DirectoryBuilder) -> DirectoryState {
    let home = builder.home.clone();
    // Without the file the platforms list their chats again.
    let file = petasos_runtime::blocking(move || directory::written(&home)).await.unwrap_or_default();
    let written = file.platforms.clone();
    let mut listed = file.platforms;
    listed.values_mut().for_each(|channels| channels.retain(|it| !it.is_alias()));
    DirectoryState { listed, written, ..DirectoryState::default() }
}

async fn build(builder: &DirectoryBuilder, connected: &ConnectedSince, state: &mut DirectoryState) {
    let mut directory = Directory { updated_at: Some(stamp::format(clock::now())), ..Directory::default() };
    for adapter in builder.channels.adapters() {
        let name = adapter.platform().as_str();
        if connected.contains_key(name) {
            list_channels(adapter, &mut state.listed).await;
        }
        let active = state.active.entry(name).or_default();
        read_active_chats(builder, adapter, active).await;
        let listed = state.listed.get(name).map(Vec::as_slice).unwrap_or_default();
        directory.platforms.insert(name.to_owned(), merge(listed, active));
    }
    let home = builder.home.clone();
    let before = std::mem::take(&mut state.written);
    let writing = petasos_runtime::blocking(move || {
        let named = directory.with_aliases(&directory::aliases(&home));
        let written = if named.platforms == before { Ok(()) } else { directory::write(&home, &named) };
        written.map(|()| named.platforms)
    });
    match writing.await {
        Ok(Ok(written)) => state.written = written,
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("cannot write channel_directory.json; names resolve as before");
        }
    }
}

async fn list_channels(adapter: &Adapter, listed: &mut BTreeMap<String, Vec<Channel>>) {
    let name = adapter.platform().as_str();
    match adapter.channels().await {
        Ok(Some(channels)) => drop(listed.insert(name.to_owned(), channels)),
        // The platform lists no chats; only those that wrote are known.
        Ok(None) => drop(listed.remove(name)),
        Err(error) => tracing::warn!(platform = name, %error, "cannot list channels"),
    }
}

async fn read_active_chats(builder: &DirectoryBuilder, adapter: &Adapter, active: &mut ActiveChats) {
    let platform = adapter.platform();
    let since = active.read_at;
    let now = clock::now();
    let since = since.map(|at| at.min(now).before(OVERLAP));
    let origins = builder.db.read(move |reader| reader.recent_origins(platform, since, MAX_CHANNELS)).await;
    match origins {
        Ok(origins) => {
            active.add(&origins);
            active.read_at = Some(now);
        }
        Err(error) => tracing::warn!(%error, "cannot read the chats that wrote"),
    }
}

/// Chats with inbound messages, most recently used first, up to [`MAX_CHANNELS`].
#[derive(Debug, Default)]
struct ActiveChats {
    channels: Vec<Channel>,
    read_at: Option<Millis>,
}

impl ActiveChats {
    /// `origins`: most recently used first; more recent than the known chats.
    fn add(&mut self, origins: &[Source]) {
        let state = std::mem::take(&mut self.channels);
        let mut seen = HashSet::new();
        let channels = origins.iter().filter_map(channel).chain(state);
        let mut channels: Vec<Channel> =
            channels.filter(|it| seen.insert((it.id.clone(), it.thread_id.clone()))).collect();
        channels.truncate(MAX_CHANNELS);
        self.channels = channels;
    }
}

fn merge(listed: &[Channel], active: &ActiveChats) -> Vec<Channel> {
    let seen: HashSet<(&str, Option<&str>)> = listed.iter().map(chat_and_thread).collect();
    let unlisted = active.channels.iter().filter(|it| !seen.contains(&chat_and_thread(it)));
    let mut channels: Vec<Channel> = listed.iter().chain(unlisted).take(MAX_CHANNELS).cloned().collect();
    channels.iter_mut().for_each(|it| {
        if let Some((end, _)) = it.name.char_indices().nth(MAX_NAME_CHARS) {
            it.name.truncate(end);
        }
    });
    channels
}

fn chat_and_thread(channel: &Channel) -> (&str, Option<&str>) {
    (&channel.id, channel.thread_id.as_deref())
}

fn channel(source: &Source) -> Option<Channel> {
    let id = source.chat_id.clone()?;
    let chat = source.chat_name.as_ref().or(source.user_name.as_ref()).unwrap_or(&id);
    let name = match (&source.thread_id, &source.chat_topic) {
        (None, _) => chat.clone(),
        (Some(_), Some(topic)) => format!("{chat} / {topic}"),
        (Some(thread), None) => format!("{chat} / topic {thread}"),
    };
    let kind = source.chat_type.as_str().to_owned();
    let thread_id = source.thread_id.clone();
    Some(Channel { id, name, kind, guild: None, thread_id })
}

#[cfg(test)]
mod tests {
    use petasos_core::Platform;
    use petasos_core::message::ChatType;

    use super::*;

    fn from(chat: usize) -> Source {
        let platform = Platform::parse("telegram").unwrap();
        Source {
            chat_name: Some(format!("chat {chat}")),
            ..Source::new(platform, ChatType::Dm, chat.to_string())
        }
    }

    fn names(channels: &[Channel]) -> Vec<&str> {
        channels.iter().map(|it| it.name.as_str()).collect()
    }

    #[test]
    fn keeps_latest_chats_most_recently_used_first() {
        let mut active = ActiveChats::default();
        active.add(&[from(3), from(2), from(1)]);
        active.add(&[from(4), from(1)]);
        assert_eq!(names(&active.channels), ["chat 4", "chat 1", "chat 3", "chat 2"]);
        let many: Vec<_> = (10..10 + MAX_CHANNELS).map(from).collect();
        active.add(&many);
        assert_eq!(active.channels.len(), MAX_CHANNELS);
        assert_eq!(active.channels[0].name, "chat 10");
    }

    #[test]
    fn lists_each_chat_once_by_the_platforms_name() {
        let mut active = ActiveChats::default();
        active.add(&[from(1), Source { chat_name: Some("x".repeat(500)), ..from(2) }]);
        let listed = [Channel { name: "listed".into(), ..channel(&from(1)).unwrap() }];
        let merged = merge(&listed, &active);
        assert_eq!(names(&merged), ["listed", &"x".repeat(MAX_NAME_CHARS)]);
    }
}
