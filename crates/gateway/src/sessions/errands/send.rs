//! `send_message`: words for a chat other than the one that asks. Only where the owner's directory or a home channel leads.

use std::time::Duration;

use petasos_agent::SessionCtx;
use petasos_core::directory::Directory;
use petasos_core::target::{Aim, Place};
use serde_json::json;

use super::Outcome;
use crate::background::notifications::output::Job;
use crate::background::notifications::{self, Mirror, Notifications, Post};
use crate::home::directory;

/// How long a tool waits for the platform; what is not there by then is still owed.
const WAIT: Duration = Duration::from_secs(20);
/// Places that are listed.
const LISTED: usize = 300;

pub(super) async fn places(by: &Notifications) -> Outcome {
    let known = known(by).await;
    let homes: Vec<_> = by.homes.places().iter().map(ToString::to_string).collect();
    let there = |platform: &str| by.channels.adapters().any(|it| it.platform().as_str() == platform);
    let chats: Vec<_> = known
        .platforms
        .iter()
        .filter(|(platform, _)| there(platform))
        .flat_map(|(platform, chats)| {
            chats.iter().map(move |chat| {
                json!({"target": format!("{platform}:{}", chat.id), "name": chat.label(), "type": chat.kind})
            })
        })
        .take(LISTED)
        .collect();
    Ok(json!({"home_channels": homes, "chats": chats}))
}

pub(super) async fn run(by: &Notifications, ctx: &SessionCtx, to: String, text: String) -> Outcome {
    let origin = Place::of(&ctx.source);
    let post =
        Post { to, text, job: Job::default(), origin: origin.clone(), mirror: Mirror::Own, wait: WAIT };
    let reach = Reach::of(by).await;
    for (target, aim) in notifications::aims(by, &post).await {
        match aim {
            Ok(Aim::Chat(place)) if Some(&place) == origin.as_ref() => {
                return Err("This is the chat you are in: just answer.".to_owned());
            }
            Ok(Aim::Chat(place)) if reach.allows(&place) => {}
            Ok(Aim::Chat(_)) => {
                return Err(format!(
                    "{target} is neither a home channel nor a chat of the directory. Use action list to see what can be reached."
                ));
            }
            Ok(Aim::File) => return Err(format!("{target} is no chat.")),
            Ok(Aim::Homeless(platform)) => return Err(format!("{platform} has no home channel.")),
            Err(error) => return Err(error),
        }
    }
    let posted = by.everywhere(post).await;
    let failed = posted.iter().all(|it| {
        matches!(it.fate, notifications::Fate::Failed { .. } | notifications::Fate::Skipped { .. })
    });
    match serde_json::to_value(&posted) {
        Ok(results) if failed => Err(format!("Nothing was sent: {results}")),
        Ok(results) => Ok(json!({"success": true, "results": results})),
        Err(error) => Err(error.to_string()),
    }
}

async fn known(by: &Notifications) -> Directory {
    let home = by.home.clone();
    // A panic there would be one of ours; then only the home channels are known.
    petasos_runtime::blocking(move || directory::read(&home)).await.unwrap_or_default()
}

/// Where somebody other than the owner may have something said.
pub(super) struct Reach {
    homes: Vec<Place>,
    known: Directory,
}

impl Reach {
    pub(super) async fn of(by: &Notifications) -> Self {
        Self { homes: by.homes.places(), known: known(by).await }
    }

    /// A thread of a chat that is listed is listed.
    pub(super) fn allows(&self, place: &Place) -> bool {
        let chats = self.known.platforms.get(place.platform.as_str());
        let listed = chats.is_some_and(|chats| chats.iter().any(|chat| chat.id == place.chat_id));
        listed || self.homes.contains(place)
    }
}
