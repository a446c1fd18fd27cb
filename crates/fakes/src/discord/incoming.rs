//! User actions: messages, and the JSON of users and ids.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

pub const BOT_ID: u64 = 900;
pub const BOT_NAME: &str = "petasos";
pub const APPLICATION_ID: u64 = 901;

/// The epoch of Discord ids, in Unix milliseconds.
const EPOCH: u64 = 1_420_070_400_000;

/// A message from a user. The bot receives it over its socket and finds it over REST.
#[derive(Debug, Clone)]
pub struct Incoming {
    pub(crate) channel: u64,
    pub(crate) user: u64,
    pub(crate) content: String,
    pub(crate) mentions: Vec<Value>,
    pub(crate) bot: bool,
    pub(crate) kind: u64,
    pub(crate) reply_to: Option<u64>,
    pub(crate) attachments: Vec<Value>,
    pub(crate) ago: Duration,
}

impl Incoming {
    pub fn text(channel: u64, user: u64, content: impl Into<String>) -> Self {
        Self {
            channel,
            user,
            content: content.into(),
            mentions: Vec::new(),
            bot: false,
            kind: 0,
            reply_to: None,
            attachments: Vec::new(),
            ago: Duration::ZERO,
        }
    }

    /// Mentions the bot, in the text and in the list.
    #[must_use]
    pub fn mentioning_bot(mut self) -> Self {
        self.content = format!("<@{BOT_ID}> {}", self.content);
        self.mentions.push(person(BOT_ID, true));
        self
    }

    #[must_use]
    pub fn mentioning(mut self, user: u64) -> Self {
        self.content = format!("<@{user}> {}", self.content);
        self.mentions.push(person(user, false));
        self
    }

    #[must_use]
    pub fn from_bot(mut self) -> Self {
        self.bot = true;
        self
    }

    /// Sets the message type: 0 is an ordinary message, 19 a reply, 6 a pin notice.
    #[must_use]
    pub fn kind(mut self, kind: u64) -> Self {
        self.kind = kind;
        self
    }

    #[must_use]
    pub fn reply_to(mut self, message: u64) -> Self {
        self.reply_to = Some(message);
        self.kind = 19;
        self
    }

    #[must_use]
    pub fn attach(mut self, name: &str, content_type: &str) -> Self {
        let url = format!("https://cdn.invalid/{name}");
        let id = (self.attachments.len() + 1).to_string();
        self.attachments
            .push(json!({ "id": id, "filename": name, "content_type": content_type, "url": url }));
        self
    }

    /// Attaches a file at an address that `add_file` returned.
    #[must_use]
    pub fn attach_at(mut self, name: &str, content_type: &str, size: usize, url: &str) -> Self {
        let id = (self.attachments.len() + 1).to_string();
        self.attachments.push(
            json!({ "id": id, "filename": name, "content_type": content_type, "size": size, "url": url }),
        );
        self
    }

    /// Dates the message back.
    #[must_use]
    pub fn ago(mut self, ago: Duration) -> Self {
        self.ago = ago;
        self
    }
}

pub(crate) fn person(id: u64, bot: bool) -> Value {
    let name = if id == BOT_ID { BOT_NAME.to_owned() } else { format!("user{id}") };
    json!({
        "id": id.to_string(), "username": name, "global_name": name, "bot": bot,
        "discriminator": "0", "avatar": null,
    })
}

/// The id of something created `ago`; `nth` distinguishes ids of one millisecond.
pub(crate) fn snowflake(ago: Duration, nth: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let at = u64::try_from(now.saturating_sub(ago).as_millis()).unwrap_or(u64::MAX);
    (at.saturating_sub(EPOCH) << 22) | (nth & 0x3f_ffff)
}
