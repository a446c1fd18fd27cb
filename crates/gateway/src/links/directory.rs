//! Keeps `channel_directory.json`: which chats there are, by name, on every platform that is configured.
//!
//! Owns that file. It is looked at when a platform comes up and every five minutes, and written when it has changed. What a
//! platform does not tell, because it is out or refuses, stays as it was told before, also by an earlier process: what
//! is said to a name while its platform is out is owed.
//!
//! The work is bounded, however many conversations are stored: of each platform the latest used are read once, and
//! then only those used since.

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
use crate::lifecycle::shutdown::Stopper;
use crate::links::any_changed;
use crate::links::channels::Channels;
use crate::links::supervisor::LinkHandle;
use crate::storage::database::Db;

const EVERY: Duration = Duration::from_secs(300);
/// Channels kept of one platform.
const MOST: usize = 4000;
const LONGEST_NAME: usize = 100;
/// Entries are read again from this long before the last look: the store has local times in it, and clocks are set.
const OVERLAP: Duration = Duration::from_secs(2 * 3600);

/// Platforms that are connected, and since when.
type Up = BTreeMap<&'static str, Millis>;

/// Known chats of each platform.
#[derive(Debug, Default)]
struct Known {
    /// As each platform listed them last.
    listed: BTreeMap<String, Vec<Channel>>,
    spoken: BTreeMap<&'static str, Spoken>,
    /// Contents of the file without its time.
    written: BTreeMap<String, Vec<Channel>>,
}

/// What the directory is made from, and where it lies.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) db: Db,
    pub(crate) channels: Arc<Channels>,
    pub(crate) home: PathBuf,
    pub(crate) stopper: Stopper,
}

pub(crate) async fn run(sources: Sources, mut links: Vec<LinkHandle>) {
    let mut known = known_before(&sources).await;
    let (mut seen, mut due) = (Up::new(), clock::now());
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        let up = up(&links);
        let came_up = up.iter().any(|(name, since)| seen.get(name) != Some(since));
        if came_up || clock::now() >= due || due > clock::now().after(EVERY) {
            petasos_runtime::select! {
                () = sources.stopper.stopped() => return,
                () = build(&sources, &up, &mut known) => {}
            }
            due = clock::now().after(EVERY);
        }
        seen = up;
        petasos_runtime::select! {
            () = sources.stopper.stopped() => return,
            () = any_changed(&mut links) => {}
            () = clock::sleep_until(due) => {}
        }
    }
}

fn up(links: &[LinkHandle]) -> Up {
    let since = |link: &LinkHandle| match link.link.borrow().state {
        State::Up { since, .. } => Some((link.name, since)),
        State::Connecting { .. } | State::Waiting { .. } | State::Fatal { .. } | State::Paused => None,
    };
    links.iter().filter_map(since).collect()
}

/// What the last process wrote. Chats that only the owner knows are not told: they are added anew each time.
async fn known_before(sources: &Sources) -> Known {
    let home = sources.home.clone();
    // A panic there would be one of ours; without the file the platforms tell it again.
    let file = petasos_runtime::blocking(move || directory::written(&home)).await.unwrap_or_default();
    let written = file.platforms.clone();
    let mut listed = file.platforms;
    listed.values_mut().for_each(|channels| channels.retain(|it| !it.is_alias()));
    Known { listed, written, ..Known::default() }
}

async fn build(sources: &Sources, up: &Up, known: &mut Known) {
    let mut directory = Directory { updated_at: Some(stamp::format(clock::now())), ..Directory::default() };
    for adapter in sources.channels.adapters() {
        let name = adapter.platform().as_str();
        if up.contains_key(name) {
            ask(adapter, &mut known.listed).await;
        }
        let spoken = known.spoken.entry(name).or_default();
        hear(sources, adapter, spoken).await;
        let listed = known.listed.get(name).map(Vec::as_slice).unwrap_or_default();
        directory.platforms.insert(name.to_owned(), merged(listed, spoken));
    }
    let (home, before) = (sources.home.clone(), std::mem::take(&mut known.written));
    let writing = petasos_runtime::blocking(move || {
        let named = directory.with_aliases(&directory::aliases(&home));
        let written = if named.platforms == before { Ok(()) } else { directory::write(&home, &named) };
        written.map(|()| named.platforms)
    });
    match writing.await {
        Ok(Ok(written)) => known.written = written,
        Ok(Err(_)) | Err(_) => {
            tracing::warn!("channel_directory.json could not be written; names lead where they led before");
        }
    }
}

async fn ask(adapter: &Adapter, listed: &mut BTreeMap<String, Vec<Channel>>) {
    let name = adapter.platform().as_str();
    match adapter.channels().await {
        Ok(Some(channels)) => drop(listed.insert(name.to_owned(), channels)),
        // It lists nothing: the chats that wrote to us are all there is.
        Ok(None) => drop(listed.remove(name)),
        Err(error) => tracing::warn!(platform = name, %error, "channels could not be listed"),
    }
}

/// Adds the chats that wrote since the last look.
async fn hear(sources: &Sources, adapter: &Adapter, spoken: &mut Spoken) {
    let (platform, since, now) = (adapter.platform(), spoken.looked_at, clock::now());
    let since = since.map(|at| at.min(now).before(OVERLAP));
    let origins = sources.db.read(move |reader| reader.recent_origins(platform, since, MOST)).await;
    match origins {
        Ok(origins) => {
            spoken.add(&origins);
            spoken.looked_at = Some(now);
        }
        Err(error) => tracing::warn!(%error, "the directory goes without the chats that wrote to us"),
    }
}

/// Chats with inbound messages, the latest used first, up to [`MOST`].
#[derive(Debug, Default)]
struct Spoken {
    channels: Vec<Channel>,
    looked_at: Option<Millis>,
}

impl Spoken {
    /// `origins`: the latest used first. They come before what is known.
    fn add(&mut self, origins: &[Source]) {
        let known = std::mem::take(&mut self.channels);
        let mut seen = HashSet::new();
        let channels = origins.iter().filter_map(channel).chain(known);
        let mut channels: Vec<Channel> =
            channels.filter(|it| seen.insert((it.id.clone(), it.thread_id.clone()))).collect();
        channels.truncate(MOST);
        self.channels = channels;
    }
}

/// Chats the platform lists, then other chats with inbound messages.
fn merged(listed: &[Channel], spoken: &Spoken) -> Vec<Channel> {
    let seen: HashSet<(&str, Option<&str>)> = listed.iter().map(place).collect();
    let unlisted = spoken.channels.iter().filter(|it| !seen.contains(&place(it)));
    let mut channels: Vec<Channel> = listed.iter().chain(unlisted).take(MOST).cloned().collect();
    channels.iter_mut().for_each(|it| {
        if let Some((end, _)) = it.name.char_indices().nth(LONGEST_NAME) {
            it.name.truncate(end);
        }
    });
    channels
}

fn place(channel: &Channel) -> (&str, Option<&str>) {
    (&channel.id, channel.thread_id.as_deref())
}

/// The chat of an inbound message.
fn channel(source: &Source) -> Option<Channel> {
    let id = source.chat_id.clone()?;
    let chat = source.chat_name.as_ref().or(source.user_name.as_ref()).unwrap_or(&id);
    let name = match (&source.thread_id, &source.chat_topic) {
        (None, _) => chat.clone(),
        (Some(_), Some(topic)) => format!("{chat} / {topic}"),
        (Some(thread), None) => format!("{chat} / topic {thread}"),
    };
    let (kind, thread_id) = (source.chat_type.as_str().to_owned(), source.thread_id.clone());
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
    fn keeps_the_latest_chats_and_moves_those_that_write_again_to_the_front() {
        let mut spoken = Spoken::default();
        spoken.add(&[from(3), from(2), from(1)]);
        spoken.add(&[from(4), from(1)]);
        assert_eq!(names(&spoken.channels), ["chat 4", "chat 1", "chat 3", "chat 2"]);
        let many: Vec<_> = (10..10 + MOST).map(from).collect();
        spoken.add(&many);
        assert_eq!(spoken.channels.len(), MOST);
        assert_eq!(spoken.channels[0].name, "chat 10");
    }

    #[test]
    fn lists_a_chat_once_and_under_the_name_its_platform_gives() {
        let mut spoken = Spoken::default();
        spoken.add(&[from(1), Source { chat_name: Some("x".repeat(500)), ..from(2) }]);
        let listed = [Channel { name: "listed".into(), ..channel(&from(1)).unwrap() }];
        let merged = merged(&listed, &spoken);
        assert_eq!(names(&merged), ["listed", &"x".repeat(LONGEST_NAME)]);
    }
}
