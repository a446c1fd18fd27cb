//! Keeps `channel_directory.json`: which chats there are, by name, on every platform that is configured.
//!
//! Owns that file. It is written when a platform comes up and every five minutes; what a platform does not tell, because
//! it is out or refuses, stays as it was told before, also by an earlier process: what is said to a name while its
//! platform is out is owed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use petasos_core::directory::{Channel, Directory};
use petasos_core::lifecycle::stamp;
use petasos_core::link::State;
use petasos_core::{Millis, Source};
use petasos_platforms::Adapter;

use crate::clock;
use crate::home::directory;
use crate::links::any_changed;
use crate::session::Shell;
use crate::supervise::LinkHandle;

const EVERY: Duration = Duration::from_secs(300);
/// Channels kept of one platform.
const MOST: usize = 4000;
const LONGEST_NAME: usize = 100;

/// Platforms that are connected, and since when.
type Up = BTreeMap<&'static str, Millis>;
/// What each platform said last.
type Told = BTreeMap<String, Vec<Channel>>;

pub(crate) async fn run(shell: Arc<Shell>, mut links: Vec<LinkHandle>) {
    let mut told = told_before(&shell).await;
    let (mut known, mut due) = (Up::new(), clock::now());
    loop {
        links.iter_mut().for_each(|link| link.link.mark_unchanged());
        let up = up(&links);
        let came_up = up.iter().any(|(name, since)| known.get(name) != Some(since));
        if came_up || clock::now() >= due || due > clock::now().after(EVERY) {
            tokio::select! {
                () = shell.stopper.stopped() => return,
                () = build(&shell, &up, &mut told) => {}
            }
            due = clock::now().after(EVERY);
        }
        known = up;
        tokio::select! {
            () = shell.stopper.stopped() => return,
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
async fn told_before(shell: &Shell) -> Told {
    let home = shell.home.clone();
    // A panic there would be one of ours; without the file the platforms tell it again.
    let written = tokio::task::spawn_blocking(move || directory::written(&home)).await.unwrap_or_default();
    let mut told = written.platforms;
    told.values_mut().for_each(|channels| channels.retain(|it| !it.is_alias()));
    told
}

async fn build(shell: &Arc<Shell>, up: &Up, told: &mut Told) {
    let spoken = shell.db.read(|reader| reader.entries()).await.unwrap_or_else(|error| {
        tracing::warn!(%error, "the directory goes without the chats that wrote to us");
        vec![]
    });
    let origins: Vec<Source> = spoken.into_iter().filter_map(|entry| entry.origin).collect();
    let mut directory = Directory { updated_at: Some(stamp::format(clock::now())), ..Directory::default() };
    for adapter in shell.channels.adapters() {
        let name = adapter.platform().as_str();
        if up.contains_key(name) {
            ask(adapter, told).await;
        }
        let mut channels = told.get(name).cloned().unwrap_or_default();
        for source in origins.iter().filter(|source| source.platform == adapter.platform()) {
            add(&mut channels, source);
        }
        channels.truncate(MOST);
        channels.iter_mut().for_each(|it| it.name = it.name.chars().take(LONGEST_NAME).collect());
        directory.platforms.insert(name.to_owned(), channels);
    }
    let home = shell.home.clone();
    let written = tokio::task::spawn_blocking(move || {
        let named = directory.with_aliases(&directory::aliases(&home));
        directory::write(&home, &named)
    });
    if !matches!(written.await, Ok(Ok(()))) {
        tracing::warn!("channel_directory.json could not be written; names lead where they led before");
    }
}

async fn ask(adapter: &Adapter, told: &mut Told) {
    let name = adapter.platform().as_str();
    match adapter.channels().await {
        Ok(Some(listed)) => drop(told.insert(name.to_owned(), listed)),
        // It lists nothing: the chats that wrote to us are all there is.
        Ok(None) => drop(told.remove(name)),
        Err(error) => tracing::warn!(platform = name, %error, "channels could not be listed"),
    }
}

/// A chat that somebody wrote from, unless it is listed already.
fn add(channels: &mut Vec<Channel>, source: &Source) {
    let Some(id) = source.chat_id.clone() else { return };
    if channels.iter().any(|it| it.id == id && it.thread_id == source.thread_id) {
        return;
    }
    let chat = source.chat_name.as_ref().or(source.user_name.as_ref()).unwrap_or(&id);
    let name = match (&source.thread_id, &source.chat_topic) {
        (None, _) => chat.clone(),
        (Some(_), Some(topic)) => format!("{chat} / {topic}"),
        (Some(thread), None) => format!("{chat} / topic {thread}"),
    };
    let (kind, thread_id) = (source.chat_type.as_str().to_owned(), source.thread_id.clone());
    channels.push(Channel { id, name, kind, guild: None, thread_id });
}
