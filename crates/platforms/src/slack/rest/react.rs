//! Status reactions on messages that address the bot.
//!
//! Addressed messages are remembered only for a while. A later reaction is therefore set only where the first
//! one was removed; this also works after a restart.

use petasos_core::{Fault, Route};
use serde_json::{Value, json};
use tracing::debug;

use super::api::Token;
use crate::StatusReaction;
use crate::slack::inbound::parse::response_url;
use crate::slack::state::{ChatLocation, message_key};
use crate::slack::{Error, Slack};

const EYES: &str = "eyes";

impl Slack {
    pub async fn react(&self, to: &Route, mark: StatusReaction) -> Result<(), Error> {
        let Some(message) = to.reply_to.as_deref().filter(|it| response_url(Some(it)).is_none()) else {
            return Ok(());
        };
        let is_addressed = || self.state().addressed.get(&message_key(&to.chat_id, message)).is_some();
        if mark == StatusReaction::Seen && !is_addressed() {
            return Ok(());
        }
        let (token, chat) = self.locate(&to.chat_id).await?;
        if self.state().reactions_refused.contains(&chat.team) {
            return Ok(());
        }
        match self.set_reaction(&token, &chat, message, mark).await {
            Err(error) if error.fault() == Fault::Fatal => {
                debug!(platform = "slack", %error, "status reactions not permitted in this workspace");
                self.state().reactions_refused.insert(chat.team);
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn set_reaction(
        &self,
        token: &Token,
        chat: &ChatLocation,
        message: &str,
        mark: StatusReaction,
    ) -> Result<(), Error> {
        let target = |name: &str| json!({ "channel": chat.channel, "timestamp": message, "name": name });
        let replacement = match mark {
            StatusReaction::Seen => return self.add_reaction(token, &target(EYES)).await,
            StatusReaction::Done => Some("white_check_mark"),
            StatusReaction::Failed => Some("x"),
            StatusReaction::Cleared => None,
        };
        match self.api.post::<Value>(token, "reactions.remove", &target(EYES)).await {
            Ok(_) => {}
            Err(error) if error.is_reaction_gone() || error.is_message_gone() => return Ok(()),
            Err(error) => return Err(error),
        }
        match replacement {
            Some(name) => self.add_reaction(token, &target(name)).await,
            None => Ok(()),
        }
    }

    async fn add_reaction(&self, token: &Token, target: &Value) -> Result<(), Error> {
        match self.api.post::<Value>(token, "reactions.add", target).await {
            Err(error) if !error.is_already_reacted() && !error.is_message_gone() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}
