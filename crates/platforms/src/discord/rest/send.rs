//! Sending. One call is one attempt; a retry here follows only a refusal that names its cause (missing reply
//! target or thread, forum channel), so no message can appear twice.
//!
//! An idempotency key is sent as an enforced nonce: within `IDEMPOTENCY_WINDOW`, the same key returns the
//! first message and creates no second one. Forum posts have no nonce.

use std::time::Duration;

use petasos_core::outbox::Button;
use petasos_core::{Fault, Route};
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::tokens::ReplyKind;
use crate::discord::inbound::parse::interaction_id;
use crate::discord::{Discord, Error, IDEMPOTENCY_WINDOW, wire};
use crate::upload::Upload;
use crate::{OutgoingFile, Part, Receipt, SendOptions};

const BUTTONS_PER_ROW: usize = 5;
const MAX_ROWS: usize = 5;
const MAX_LABEL: usize = 80;
const MAX_NONCE: usize = 25;
const MAX_ID: usize = 20;
const MAX_POST_NAME: usize = 90;
/// Forum and media channels.
const FORUM_KINDS: [u8; 2] = [15, 16];
/// Visible to the author of the interaction only.
const EPHEMERAL: u64 = 64;
const THREAD_FAILED: &str = "I could not open a thread for this message, so I did not work on it. \
                      Please check that I may create threads here, and ask again.";

#[derive(Deserialize)]
struct SentMessage {
    id: String,
}

/// The message, without the parts that Discord has refused.
struct SendAttempt<'a> {
    channel: &'a str,
    reply: Option<&'a str>,
    /// Create a forum post.
    post: bool,
}

impl Discord {
    pub async fn send(
        &self,
        to: &Route,
        part: &Part,
        options: &SendOptions<'_>,
        key: Option<&str>,
    ) -> Result<Receipt, Error> {
        if part.is_empty() {
            return Ok(Receipt::default());
        }
        let channel = target_channel(to)?;
        let mut attempt = SendAttempt { channel, reply: anchor(to, options), post: false };
        loop {
            let mut body = message(part, options.buttons, key);
            if let Some(reply) = attempt.reply {
                body["message_reference"] = json!({ "message_id": reply, "fail_if_not_exists": false });
            }
            let sent = if attempt.post {
                let opened = self.open_post(attempt.channel, part, body).await;
                opened.map(|thread| Receipt { opened: Some(thread.id), ..Receipt::default() })
            } else {
                let path = format!("/channels/{}/messages", attempt.channel);
                let sent = self.post_message::<SentMessage>(&path, &body, part.file.as_ref()).await;
                sent.map(|sent| Receipt { message_id: Some(sent.id), ..Receipt::default() })
            };
            match sent {
                Ok(receipt) => {
                    return Ok(Receipt { thread_fallback: attempt.channel != channel, ..receipt });
                }
                Err(error) => attempt = attempt.after_refusal(error, to)?,
            }
        }
    }

    async fn post_message<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        file: Option<&OutgoingFile>,
    ) -> Result<T, Error> {
        match file {
            Some(file) => {
                let upload = Upload::open(file).await?;
                self.api.upload(path, body, upload).await.map_err(Error::for_file)
            }
            None => self.api.post(path, body).await,
        }
    }

    /// Asks Discord for the kind of the channel, since the answer must not depend on what this process has
    /// learned. Always the channel, which replaces a missing thread.
    pub async fn idempotency_window(&self, to: &Route) -> Result<Option<Duration>, Error> {
        let Ok(channel) = valid_id(&to.chat_id) else { return Ok(None) };
        match self.api.get::<wire::DiscordChannel>(&format!("/channels/{channel}")).await {
            Ok(channel) => Ok((!FORUM_KINDS.contains(&channel.kind)).then_some(IDEMPOTENCY_WINDOW)),
            // It will refuse the message, too.
            Err(error) if error.fault() == Fault::Refused => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let path = format!("/channels/{}/messages/{}", target_channel(to)?, valid_id(message_id)?);
        // Omitted fields stay: buttons would outlive their text.
        let body = json!({ "content": part.text, "components": [], "allowed_mentions": allowed_mentions() });
        self.api.call::<Value>(Method::PATCH, &path, Some(&body)).await?;
        Ok(Receipt { message_id: Some(message_id.to_owned()), ..Receipt::default() })
    }

    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let path = format!("/channels/{}/messages/{}", target_channel(to)?, valid_id(message_id)?);
        ignore_errors(self.api.call(Method::DELETE, &path, None).await, Error::is_message_gone)
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let path = format!("/channels/{}/typing", target_channel(to)?);
        // Some proxies require a content length.
        ignore_errors(self.api.post(&path, &json!({})).await, |_| false)
    }

    pub async fn answer_callback(&self, dedup: &str, notice: Option<&str>) -> Result<(), Error> {
        let Some(id) = interaction_id(dedup) else { return Ok(()) };
        let Some((token, reply_kind)) = self.tokens.take(id) else { return Ok(()) };
        let answer = match (notice, reply_kind) {
            (Some(notice), _) => ephemeral_reply(notice),
            (None, ReplyKind::Message) => ephemeral_reply("Received."),
            (None, ReplyKind::Acknowledge) => json!({ "type": 6 }),
        };
        let path = format!("/interactions/{id}/{}/callback", token.expose());
        ignore_errors(self.api.post(&path, &answer).await, Error::is_interaction_over)
    }

    pub(in crate::discord) async fn notify_thread_failed(
        &self,
        channel: u64,
        message: u64,
    ) -> Result<(), Error> {
        let mut body = message_body(THREAD_FAILED, Some(&format!("nt{message}")));
        body["message_reference"] = json!({ "message_id": message.to_string(), "fail_if_not_exists": false });
        let path = format!("/channels/{channel}/messages");
        self.limited(channel, self.api.post::<Value>(&path, &body)).await.map(drop)
    }

    /// Creates a forum post named after the first line.
    async fn open_post(&self, channel: &str, part: &Part, mut message: Value) -> Result<SentMessage, Error> {
        for field in ["nonce", "enforce_nonce", "message_reference"] {
            message.as_object_mut().map(|fields| fields.remove(field));
        }
        let line = part.text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let name: String =
            line.trim_start_matches(['#', '*', '>', ' ']).chars().take(MAX_POST_NAME).collect();
        let name = if name.is_empty() { "Post".to_owned() } else { name };
        let body = json!({ "name": name, "message": message });
        let path = format!("/channels/{channel}/threads");
        self.post_message(&path, &body, part.file.as_ref()).await
    }
}

impl<'a> SendAttempt<'a> {
    /// The next attempt after a refusal, or the refusal. Every step removes something for good, so the loop
    /// ends.
    fn after_refusal(self, error: Error, to: &'a Route) -> Result<Self, Error> {
        if self.reply.is_some() && error.is_reply_refused() {
            return Ok(Self { reply: None, ..self });
        }
        if self.channel != to.chat_id && error.is_thread_gone() {
            return Ok(Self { channel: valid_id(&to.chat_id)?, ..self });
        }
        if !self.post && error.is_forum() {
            return Ok(Self { post: true, ..self });
        }
        // A forbidden thread must not redirect to its channel, nor mark the channel as dead.
        Err(if self.channel == to.chat_id { error } else { error.for_thread() })
    }
}

/// Threads are channels; the thread takes precedence.
pub(in crate::discord) fn target_channel(to: &Route) -> Result<&str, Error> {
    valid_id(to.thread_id.as_deref().unwrap_or(&to.chat_id))
}

/// Ids are path segments, so only digits are safe.
pub(in crate::discord) fn valid_id(text: &str) -> Result<&str, Error> {
    let number = !text.is_empty() && text.len() <= MAX_ID && text.bytes().all(|it| it.is_ascii_digit());
    if number { Ok(text) } else { Err(Error::InvalidId) }
}

fn anchor<'a>(to: &'a Route, options: &SendOptions<'_>) -> Option<&'a str> {
    to.reply_to.as_deref().filter(|_| options.reply)
}

/// `is_done` selects refusals that mean there is nothing left to do.
pub(in crate::discord) fn ignore_errors(
    outcome: Result<Value, Error>,
    is_done: fn(&Error) -> bool,
) -> Result<(), Error> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if is_done(&error) => Ok(()),
        Err(error) => Err(error),
    }
}

fn message(part: &Part, buttons: &[Button], key: Option<&str>) -> Value {
    let mut body = message_body(&part.text, key);
    if !buttons.is_empty() {
        body["components"] = rows(buttons).into();
    }
    body
}

fn message_body(text: &str, key: Option<&str>) -> Value {
    let mut body = json!({ "content": text, "allowed_mentions": allowed_mentions() });
    if let Some(key) = key {
        body["nonce"] = nonce(key).into();
        body["enforce_nonce"] = true.into();
    }
    body
}

/// User mentions notify; `@everyone` does not.
fn allowed_mentions() -> Value {
    json!({ "parse": ["users"], "replied_user": true })
}

fn ephemeral_reply(words: &str) -> Value {
    let data = json!({ "content": words, "flags": EPHEMERAL, "allowed_mentions": { "parse": [] } });
    json!({ "type": 4, "data": data })
}

fn rows(buttons: &[Button]) -> Vec<Value> {
    let label = |button: &Button| button.label.chars().take(MAX_LABEL).collect::<String>();
    let key =
        |button: &Button| json!({ "type": 2, "style": 2, "label": label(button), "custom_id": button.data });
    let row = |row: &[Button]| json!({ "type": 1, "components": row.iter().map(key).collect::<Vec<_>>() });
    buttons.chunks(BUTTONS_PER_ROW).take(MAX_ROWS).map(row).collect()
}

/// The key if it is short enough, else its FNV-1a hash, which is stable across versions.
fn nonce(key: &str) -> String {
    if key.chars().count() <= MAX_NONCE {
        return key.to_owned();
    }
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", key.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derives_a_stable_nonce_from_the_key() {
        assert_eq!(nonce("out:17:2"), "out:17:2");
        assert_eq!(nonce("a"), "a");
        let long = "a key that is longer than a nonce may be";
        assert_eq!(nonce(long), nonce(long));
        assert_eq!(nonce(long).len(), 16);
        assert_ne!(nonce(long), nonce("a key that is longer than a nonce may bf"));
    }

    #[test]
    fn arranges_buttons_in_rows_of_five() {
        let button = |n: usize| Button { label: "x".repeat(n), data: n.to_string() };
        let buttons: Vec<Button> = (1..=90).map(button).collect();
        let rows = rows(&buttons);
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[0]["components"].as_array().map(Vec::len), Some(5));
    }
}
