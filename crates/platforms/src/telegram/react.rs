//! Status reactions. Telegram replaces all of the bot's reactions at once.

use petasos_core::Route;
use serde_json::json;

use super::send::id;
use super::{Error, Telegram};
use crate::StatusReaction;

impl Telegram {
    pub async fn react(&self, to: &Route, mark: StatusReaction) -> Result<(), Error> {
        let Some(message) = &to.reply_to else { return Ok(()) };
        let shown: Vec<_> =
            emoji(mark).into_iter().map(|emoji| json!({ "type": "emoji", "emoji": emoji })).collect();
        let parameters = json!({ "chat_id": id(&to.chat_id), "message_id": id(message), "reaction": shown });
        self.call_ignoring("setMessageReaction", &parameters, Error::is_message_gone).await
    }
}

/// Telegram allows a fixed set of emoji, without a check mark.
const fn emoji(mark: StatusReaction) -> Option<&'static str> {
    match mark {
        StatusReaction::Seen => Some("👀"),
        StatusReaction::Done => Some("👍"),
        StatusReaction::Failed => Some("👎"),
        StatusReaction::Cleared => None,
    }
}
