//! Marks below messages.
//!
//! A message that a thread of its own was opened for is the thread's first, and lies in the channel above it.

use petasos_core::Route;
use reqwest::Method;
use serde_json::Value;

use super::send::{done, id, target};
use super::{Discord, Error, wire};
use crate::Mark;

const EYES: &str = "👀";

impl Discord {
    pub async fn react(&self, to: &Route, mark: Mark) -> Result<(), Error> {
        let Some((channel, message)) = self.marked(to).await? else { return Ok(()) };
        let emoji = match mark {
            Mark::Seen => return self.mark(Method::PUT, &channel, &message, EYES).await,
            Mark::Done => Some("✅"),
            Mark::Failed => Some("❌"),
            Mark::Cleared => None,
        };
        self.mark(Method::DELETE, &channel, &message, EYES).await?;
        match emoji {
            Some(emoji) => self.mark(Method::PUT, &channel, &message, emoji).await,
            None => Ok(()),
        }
    }

    async fn mark(&self, method: Method, channel: &str, message: &str, emoji: &str) -> Result<(), Error> {
        let path = format!("/channels/{channel}/messages/{message}/reactions/{}/@me", encoded(emoji));
        let marked: Result<Value, Error> = self.api.call(method, &path, None).await;
        done(marked, Error::is_nothing_to_mark)
    }

    /// The message in question, and its channel.
    async fn marked(&self, to: &Route) -> Result<Option<(String, String)>, Error> {
        if let Some(message) = &to.reply_to {
            return Ok(Some((target(to)?.to_owned(), id(message)?.to_owned())));
        }
        let Some(thread) = &to.thread_id else { return Ok(None) };
        let told: wire::Channel = self.api.get(&format!("/channels/{}", id(thread)?)).await?;
        Ok(told.parent_id.map(|parent| (parent.to_string(), thread.clone())))
    }
}

fn encoded(emoji: &str) -> String {
    emoji.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
