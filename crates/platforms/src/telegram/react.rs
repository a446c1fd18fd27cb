//! Marks below messages. Telegram replaces all of ours at once.

use petasos_core::Route;
use serde_json::json;

use super::send::id;
use super::{Error, Telegram};
use crate::Mark;

impl Telegram {
    pub async fn react(&self, to: &Route, mark: Mark) -> Result<(), Error> {
        let Some(message) = &to.reply_to else { return Ok(()) };
        let shown: Vec<_> =
            emoji(mark).into_iter().map(|emoji| json!({ "type": "emoji", "emoji": emoji })).collect();
        let parameters = json!({ "chat_id": id(&to.chat_id), "message_id": id(message), "reaction": shown });
        self.act("setMessageReaction", &parameters, Error::is_message_gone).await
    }
}

/// Telegram takes only some; a check mark is not among them.
const fn emoji(mark: Mark) -> Option<&'static str> {
    match mark {
        Mark::Seen => Some("👀"),
        Mark::Done => Some("👍"),
        Mark::Failed => Some("👎"),
        Mark::Cleared => None,
    }
}
