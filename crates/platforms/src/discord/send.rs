//! The way out. One call is one try; what is tried again here was answered with a refusal that names the
//! cause, so it cannot appear twice: the replied message gone, the thread gone, a channel that holds posts.
//!
//! A message with a key is sent under a nonce that Discord enforces: while it remembers the key
//! (`KEY_MEMORY`), the same key again gives the first message back and makes no second one. A post of a forum has no
//! nonce.

use std::time::Duration;

use petasos_core::outbox::Button;
use petasos_core::{Fault, Route};
use reqwest::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::parse::interaction_id;
use super::tokens::Wants;
use super::{Discord, Error, KEY_MEMORY, wire};
use crate::upload::Upload;
use crate::{File, Part, Receipt, SendOptions};

/// Buttons side by side, rows, and the longest name of a button.
const ROW: usize = 5;
const ROWS: usize = 5;
const LABEL: usize = 80;
const LONGEST_NONCE: usize = 25;
const LONGEST_ID: usize = 20;
const POST_NAME: usize = 90;
/// Kinds of channels that hold posts: forums, and those for media.
const POSTS: [u8; 2] = [15, 16];
/// Shown to nobody but whoever asked.
const EPHEMERAL: u64 = 64;
const EXCUSE: &str = "I could not open a thread for this message, so I did not work on it. \
                      Please check that I may create threads here, and ask again.";

#[derive(Deserialize)]
struct Sent {
    id: String,
}

/// What is asked for, and what has been given up on the way.
struct Attempt<'a> {
    channel: &'a str,
    reply: Option<&'a str>,
    /// As a post of its own: the channel holds nothing else.
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
        let place = target(to)?;
        let mut attempt = Attempt { channel: place, reply: anchor(to, options), post: false };
        loop {
            let mut body = message(part, options.buttons, key);
            if let Some(reply) = attempt.reply {
                body["message_reference"] = json!({ "message_id": reply, "fail_if_not_exists": false });
            }
            let sent = if attempt.post {
                let opened = self.post(attempt.channel, part, body).await;
                opened.map(|thread| Receipt { opened: Some(thread.id), ..Receipt::default() })
            } else {
                let path = format!("/channels/{}/messages", attempt.channel);
                let sent = self.put::<Sent>(&path, &body, part.file.as_ref()).await;
                sent.map(|sent| Receipt { message_id: Some(sent.id), ..Receipt::default() })
            };
            match sent {
                Ok(receipt) => {
                    return Ok(Receipt { thread_fallback: attempt.channel != place, ..receipt });
                }
                Err(error) => attempt = attempt.without_cause_of(error, to)?,
            }
        }
    }

    async fn put<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &Value,
        file: Option<&File>,
    ) -> Result<T, Error> {
        match file {
            Some(file) => {
                let upload = Upload::open(file).await?;
                self.api.upload(path, body, upload).await.map_err(Error::of_a_file)
            }
            None => self.api.post(path, body).await,
        }
    }

    /// Asked of Discord, because what one process learns the next does not know, and only of the channel, which
    /// stands in for a thread that is gone.
    pub async fn key_memory(&self, to: &Route) -> Result<Option<Duration>, Error> {
        let Ok(channel) = id(&to.chat_id) else { return Ok(None) };
        match self.api.get::<wire::Channel>(&format!("/channels/{channel}")).await {
            Ok(channel) => Ok((!POSTS.contains(&channel.kind)).then_some(KEY_MEMORY)),
            // It will not take the message, either.
            Err(error) if error.fault() == Fault::Refused => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let path = format!("/channels/{}/messages/{}", target(to)?, id(message_id)?);
        // What is not named stays: without its text a button means nothing.
        let body = json!({ "content": part.text, "components": [], "allowed_mentions": allowed_mentions() });
        self.api.call::<Value>(Method::PATCH, &path, Some(&body)).await?;
        Ok(Receipt { message_id: Some(message_id.to_owned()), ..Receipt::default() })
    }

    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let path = format!("/channels/{}/messages/{}", target(to)?, id(message_id)?);
        done(self.api.call(Method::DELETE, &path, None).await, Error::is_message_gone)
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let path = format!("/channels/{}/typing", target(to)?);
        // Without a body some proxies ask for its length.
        done(self.api.post(&path, &json!({})).await, |_| false)
    }

    pub async fn answer_callback(&self, dedup: &str, notice: Option<&str>) -> Result<(), Error> {
        let Some(id) = interaction_id(dedup) else { return Ok(()) };
        let Some((token, wants)) = self.tokens.take(id) else { return Ok(()) };
        let answer = match (notice, wants) {
            (Some(notice), _) => told(notice),
            (None, Wants::Words) => told("Received."),
            (None, Wants::Nod) => json!({ "type": 6 }),
        };
        let path = format!("/interactions/{id}/{}/callback", token.expose());
        done(self.api.post(&path, &answer).await, Error::is_interaction_over)
    }

    /// Tells somebody that their message is not worked on.
    pub(super) async fn excuse(&self, channel: u64, message: u64) -> Result<(), Error> {
        let mut body = message_body(EXCUSE, Some(&format!("nt{message}")));
        body["message_reference"] = json!({ "message_id": message.to_string(), "fail_if_not_exists": false });
        let path = format!("/channels/{channel}/messages");
        self.limited(channel, self.api.post::<Value>(&path, &body)).await.map(drop)
    }

    /// A forum holds posts: a message there opens one, named after its first line.
    async fn post(&self, channel: &str, part: &Part, mut message: Value) -> Result<Sent, Error> {
        for field in ["nonce", "enforce_nonce", "message_reference"] {
            message.as_object_mut().map(|fields| fields.remove(field));
        }
        let line = part.text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        let name: String = line.trim_start_matches(['#', '*', '>', ' ']).chars().take(POST_NAME).collect();
        let name = if name.is_empty() { "Post".to_owned() } else { name };
        let body = json!({ "name": name, "message": message });
        let path = format!("/channels/{channel}/threads");
        self.put(&path, &body, part.file.as_ref()).await
    }
}

impl<'a> Attempt<'a> {
    /// The next try after a refusal, or the refusal if there is nothing to leave out. Each kind of refusal
    /// takes something away for good, so this ends.
    fn without_cause_of(self, error: Error, to: &'a Route) -> Result<Self, Error> {
        if self.reply.is_some() && error.is_reply_refused() {
            return Ok(Self { reply: None, ..self });
        }
        if self.channel != to.chat_id && error.is_thread_gone() {
            return Ok(Self { channel: id(&to.chat_id)?, ..self });
        }
        if !self.post && error.is_forum() {
            return Ok(Self { post: true, ..self });
        }
        // A private thread is no reason to speak in its channel, and none to think that we may not.
        Err(if self.channel == to.chat_id { error } else { error.of_a_thread() })
    }
}

/// Threads are channels: the finer address wins.
pub(super) fn target(to: &Route) -> Result<&str, Error> {
    id(to.thread_id.as_deref().unwrap_or(&to.chat_id))
}

/// Ids stand in the paths of requests: whatever is more than a number would lead elsewhere.
pub(super) fn id(text: &str) -> Result<&str, Error> {
    let number = !text.is_empty() && text.len() <= LONGEST_ID && text.bytes().all(|it| it.is_ascii_digit());
    if number { Ok(text) } else { Err(Error::NoId) }
}

fn anchor<'a>(to: &'a Route, options: &SendOptions<'_>) -> Option<&'a str> {
    to.reply_to.as_deref().filter(|_| options.reply)
}

/// `done_already` names the refusals that mean there is nothing left to do.
pub(super) fn done(outcome: Result<Value, Error>, done_already: fn(&Error) -> bool) -> Result<(), Error> {
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if done_already(&error) => Ok(()),
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

/// A model may name a person; never everybody.
fn allowed_mentions() -> Value {
    json!({ "parse": ["users"], "replied_user": true })
}

fn told(words: &str) -> Value {
    let data = json!({ "content": words, "flags": EPHEMERAL, "allowed_mentions": { "parse": [] } });
    json!({ "type": 4, "data": data })
}

fn rows(buttons: &[Button]) -> Vec<Value> {
    let label = |button: &Button| button.label.chars().take(LABEL).collect::<String>();
    let key =
        |button: &Button| json!({ "type": 2, "style": 2, "label": label(button), "custom_id": button.data });
    let row = |row: &[Button]| json!({ "type": 1, "components": row.iter().map(key).collect::<Vec<_>>() });
    buttons.chunks(ROW).take(ROWS).map(row).collect()
}

/// The key itself if it is short enough, else its FNV-1a hash: the same one every time, for ever.
fn nonce(key: &str) -> String {
    if key.chars().count() <= LONGEST_NONCE {
        return key.to_owned();
    }
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    format!("{:016x}", key.bytes().fold(0xcbf2_9ce4_8422_2325, mix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_becomes_the_same_nonce_every_time() {
        assert_eq!(nonce("out:17:2"), "out:17:2");
        assert_eq!(nonce("a"), "a");
        let long = "a key that is longer than a nonce may be";
        assert_eq!(nonce(long), nonce(long));
        assert_eq!(nonce(long).len(), 16);
        assert_ne!(nonce(long), nonce("a key that is longer than a nonce may bf"));
    }

    #[test]
    fn buttons_stand_in_rows_of_five() {
        let button = |n: usize| Button { label: "x".repeat(n), data: n.to_string() };
        let buttons: Vec<Button> = (1..=90).map(button).collect();
        let rows = rows(&buttons);
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[0]["components"].as_array().map(Vec::len), Some(5));
    }
}
