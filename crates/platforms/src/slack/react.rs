//! Marks below messages that are addressed to us.
//!
//! Which those are is known only while we remember them. What comes in place of the first mark therefore comes
//! only where that one was: Slack says whether it was there, also to a process that began after it.

use petasos_core::{Fault, Route};
use serde_json::{Value, json};
use tracing::debug;

use super::api::Token;
use super::memory::{Place, key};
use super::parse::response_url;
use super::{Error, Slack};
use crate::Mark;

const EYES: &str = "eyes";

impl Slack {
    pub async fn react(&self, to: &Route, mark: Mark) -> Result<(), Error> {
        let Some(message) = to.reply_to.as_deref().filter(|it| response_url(Some(it)).is_none()) else {
            return Ok(());
        };
        if mark == Mark::Seen && self.memory().calls.get(&key(&to.chat_id, message)).is_none() {
            return Ok(());
        }
        let (token, place) = self.place(&to.chat_id).await?;
        if self.memory().without_marks.contains(&place.team) {
            return Ok(());
        }
        match self.mark(&token, &place, message, mark).await {
            // We may not, in this workspace: it is not asked again.
            Err(error) if error.fault() == Fault::Fatal => {
                debug!(platform = "slack", %error, "this workspace takes no marks from us");
                self.memory().without_marks.insert(place.team);
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn mark(&self, token: &Token, place: &Place, message: &str, mark: Mark) -> Result<(), Error> {
        let sign = |name: &str| json!({ "channel": place.channel, "timestamp": message, "name": name });
        let instead = match mark {
            Mark::Seen => return self.put(token, &sign(EYES)).await,
            Mark::Done => Some("white_check_mark"),
            Mark::Failed => Some("x"),
            Mark::Cleared => None,
        };
        match self.api.post::<Value>(token, "reactions.remove", &sign(EYES)).await {
            Ok(_) => {}
            Err(error) if error.is_not_marked() || error.is_message_gone() => return Ok(()),
            Err(error) => return Err(error),
        }
        match instead {
            Some(name) => self.put(token, &sign(name)).await,
            None => Ok(()),
        }
    }

    async fn put(&self, token: &Token, sign: &Value) -> Result<(), Error> {
        match self.api.post::<Value>(token, "reactions.add", sign).await {
            Err(error) if !error.is_marked() && !error.is_message_gone() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
