//! Status reactions.
//!
//! A message that a thread was created from lies in the thread's parent channel.

use petasos_core::Route;
use reqwest::Method;
use serde_json::Value;

use super::send::{ignore_errors, target_channel, valid_id};
use crate::StatusReaction;
use crate::discord::{Discord, Error, wire};

const EYES: &str = "👀";

impl Discord {
    pub async fn react(&self, to: &Route, mark: StatusReaction) -> Result<(), Error> {
        let Some((channel, message)) = self.reaction_target(to).await? else { return Ok(()) };
        let emoji = match mark {
            StatusReaction::Seen => return self.set_reaction(Method::PUT, &channel, &message, EYES).await,
            StatusReaction::Done => Some("✅"),
            StatusReaction::Failed => Some("❌"),
            StatusReaction::Cleared => None,
        };
        self.set_reaction(Method::DELETE, &channel, &message, EYES).await?;
        match emoji {
            Some(emoji) => self.set_reaction(Method::PUT, &channel, &message, emoji).await,
            None => Ok(()),
        }
    }

    async fn set_reaction(
        &self,
        method: Method,
        channel: &str,
        message: &str,
        emoji: &str,
    ) -> Result<(), Error> {
        let path = format!("/channels/{channel}/messages/{message}/reactions/{}/@me", encoded(emoji));
        let marked: Result<Value, Error> = self.api.call(method, &path, None).await;
        ignore_errors(marked, Error::is_reaction_gone)
    }

    /// Channel and id of the message.
    async fn reaction_target(&self, to: &Route) -> Result<Option<(String, String)>, Error> {
        if let Some(message) = &to.reply_to {
            return Ok(Some((target_channel(to)?.to_owned(), valid_id(message)?.to_owned())));
        }
        let Some(thread) = &to.thread_id else { return Ok(None) };
        let channel: wire::DiscordChannel = self.api.get(&format!("/channels/{}", valid_id(thread)?)).await?;
        Ok(channel.parent_id.map(|parent| (parent.to_string(), thread.clone())))
    }
}

fn encoded(emoji: &str) -> String {
    emoji.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
