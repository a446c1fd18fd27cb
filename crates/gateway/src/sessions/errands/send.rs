//! The `send_message` tool: sends to another chat. Only home channels and chats of the owner's directory can be reached.

use std::time::Duration;

use petasos_agent::SessionCtx;
use petasos_core::directory::Directory;
use petasos_core::target::{ChatAddress, Destination};
use serde_json::json;

use super::ErrandResult;
use crate::background::notifications::output::OutputJob;
use crate::background::notifications::{self, MirrorMode, Notification, Notifications};
use crate::home::directory;

/// How long the tool waits for delivery; later the message stays in the outbox.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(20);
const MAX_LISTED: usize = 300;

pub(super) async fn list_chats(by: &Notifications) -> ErrandResult {
    let directory = load_directory(by).await;
    let homes: Vec<_> = by.homes.places().iter().map(ToString::to_string).collect();
    let there = |platform: &str| by.channels.adapters().any(|it| it.platform().as_str() == platform);
    let chats: Vec<_> = directory
        .platforms
        .iter()
        .filter(|(platform, _)| there(platform))
        .flat_map(|(platform, chats)| {
            chats.iter().map(move |chat| {
                json!({"target": format!("{platform}:{}", chat.id), "name": chat.label(), "type": chat.kind})
            })
        })
        .take(MAX_LISTED)
        .collect();
    Ok(json!({"home_channels": homes, "chats": chats}))
}

pub(super) async fn run(by: &Notifications, ctx: &SessionCtx, to: String, text: String) -> ErrandResult {
    let origin = ChatAddress::of(&ctx.source);
    let post = Notification {
        to,
        text,
        job: OutputJob::default(),
        origin: origin.clone(),
        mirror: MirrorMode::Assistant,
        wait: DELIVERY_TIMEOUT,
    };
    let reach = ReachableChats::of(by).await;
    for (target, aim) in notifications::resolve_destinations(by, &post).await {
        match aim {
            Ok(Destination::Chat(place)) if Some(&place) == origin.as_ref() => {
                return Err("This is the chat you are in: just answer.".to_owned());
            }
            Ok(Destination::Chat(place)) if reach.allows(&place) => {}
            Ok(Destination::Chat(_)) => {
                return Err(format!(
                    "{target} is neither a home channel nor a chat of the directory. Use action list to see the chats that can be reached."
                ));
            }
            Ok(Destination::File) => return Err(format!("{target} is not a chat.")),
            Ok(Destination::NoHomeChannel(platform)) => {
                return Err(format!("{platform} has no home channel."));
            }
            Err(error) => return Err(error),
        }
    }
    let posted = by.send(post).await;
    let failed = posted.iter().all(|it| {
        matches!(
            it.outcome,
            notifications::NotificationOutcome::Failed { .. }
                | notifications::NotificationOutcome::Skipped { .. }
        )
    });
    match serde_json::to_value(&posted) {
        Ok(results) if failed => Err(format!("Nothing was sent: {results}")),
        Ok(results) => Ok(json!({"success": true, "results": results})),
        Err(error) => Err(error.to_string()),
    }
}

async fn load_directory(by: &Notifications) -> Directory {
    let home = by.home.clone();
    // After a panic only the home channels are known.
    petasos_runtime::blocking(move || directory::read(&home)).await.unwrap_or_default()
}

/// The chats that people other than the owner may send to.
pub(super) struct ReachableChats {
    homes: Vec<ChatAddress>,
    directory: Directory,
}

impl ReachableChats {
    pub(super) async fn of(by: &Notifications) -> Self {
        Self { homes: by.homes.places(), directory: load_directory(by).await }
    }

    /// A listed chat includes its threads.
    pub(super) fn allows(&self, place: &ChatAddress) -> bool {
        let chats = self.directory.platforms.get(place.platform.as_str());
        let listed = chats.is_some_and(|chats| chats.iter().any(|chat| chat.id == place.chat_id));
        listed || self.homes.contains(place)
    }
}
