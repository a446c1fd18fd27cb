//! Sending. One call is one attempt; a retry here follows only a refusal that names its cause (bad markup,
//! missing thread or reply target, migrated group), so no message can appear twice.

use petasos_core::Route;
use petasos_core::outbox::Button;
use serde::Deserialize;
use serde_json::{Value, json};

use super::parse::{GENERAL, callback_id};
use super::{Error, Notifications, Telegram};
use crate::upload::Upload;
use crate::{MediaKind, Part, Receipt, SendOptions};

const BUTTONS_PER_ROW: usize = 2;
/// Larger photos are sent as documents.
const MAX_PHOTO: u64 = 10 << 20;

#[derive(Deserialize)]
struct SentMessage {
    message_id: i64,
}

/// The message, without the parts that Telegram has refused.
struct SendAttempt<'a> {
    chat: Value,
    thread: Option<&'a str>,
    thread_refused: bool,
    reply: Option<&'a str>,
    formatted: bool,
    show: MediaKind,
}

impl Telegram {
    pub async fn send(&self, to: &Route, part: &Part, options: &SendOptions<'_>) -> Result<Receipt, Error> {
        if part.is_empty() {
            return Ok(Receipt::default());
        }
        let mut attempt = SendAttempt::new(to, part, options);
        loop {
            match self.try_send(&mut attempt, part, options).await {
                Ok(sent) => {
                    return Ok(Receipt {
                        message_id: Some(sent.message_id.to_string()),
                        thread_fallback: attempt.thread.is_none() && thread(to).is_some(),
                        opened: None,
                    });
                }
                Err(error) => attempt = attempt.after_refusal(error, to)?,
            }
        }
    }

    async fn try_send(
        &self,
        attempt: &mut SendAttempt<'_>,
        part: &Part,
        options: &SendOptions<'_>,
    ) -> Result<SentMessage, Error> {
        let within = self.config.request_timeout;
        let Some(file) = &part.file else {
            return self.api.call("sendMessage", &self.parameters(attempt, part, options), within).await;
        };
        let upload = Upload::open(file).await?;
        if attempt.show == MediaKind::Photo && upload.size > MAX_PHOTO {
            attempt.show = MediaKind::Document;
        }
        let (method, field) = upload_method(attempt.show);
        let parameters = self.parameters(attempt, part, options);
        self.api.upload(method, &parameters, field, upload, within).await
    }

    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let mut formatted = part.plain.is_some();
        loop {
            let mut parameters = json!({ "chat_id": id(&to.chat_id), "message_id": id(message_id) });
            set_text(&mut parameters, "text", part, formatted);
            let edited: Result<Value, Error> =
                self.api.call("editMessageText", &parameters, self.config.request_timeout).await;
            match edited {
                Err(error) if formatted && error.is_bad_markup() => formatted = false,
                Err(error) if !error.is_not_modified() => return Err(error),
                Ok(_) | Err(_) => {
                    return Ok(Receipt { message_id: Some(message_id.to_owned()), ..Receipt::default() });
                }
            }
        }
    }

    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let parameters = json!({ "chat_id": id(&to.chat_id), "message_id": id(message_id) });
        self.call_ignoring("deleteMessage", &parameters, Error::is_message_gone).await
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let mut parameters = json!({ "chat_id": id(&to.chat_id), "action": "typing" });
        if let Some(thread) = thread(to) {
            parameters["message_thread_id"] = id(thread);
        }
        self.call_ignoring("sendChatAction", &parameters, |_| false).await
    }

    /// Telegram shows drafts in private chats only.
    pub fn supports_drafts(&self, to: &Route) -> bool {
        is_private(to)
    }

    pub async fn draft(&self, to: &Route, number: u32, text: &str) -> Result<(), Error> {
        let mut parameters = json!({ "chat_id": id(&to.chat_id), "draft_id": number.max(1), "text": text });
        if let Some(thread) = thread(to) {
            parameters["message_thread_id"] = id(thread);
        }
        self.call_ignoring("sendMessageDraft", &parameters, |_| false).await
    }

    pub async fn answer_callback(&self, dedup: &str, notice: Option<&str>) -> Result<(), Error> {
        let Some(callback) = callback_id(dedup) else {
            return Ok(());
        };
        let mut parameters = json!({ "callback_query_id": callback });
        if let Some(notice) = notice {
            parameters["text"] = notice.into();
        }
        self.call_ignoring("answerCallbackQuery", &parameters, Error::is_callback_expired).await
    }

    /// `is_done` selects refusals that mean there is nothing left to do.
    pub(super) async fn call_ignoring(
        &self,
        method: &'static str,
        parameters: &Value,
        is_done: fn(&Error) -> bool,
    ) -> Result<(), Error> {
        match self.api.call::<Value>(method, parameters, self.config.request_timeout).await {
            Ok(_) => Ok(()),
            Err(error) if is_done(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn parameters(&self, attempt: &SendAttempt<'_>, part: &Part, options: &SendOptions<'_>) -> Value {
        let mut parameters = json!({ "chat_id": attempt.chat });
        match &part.file {
            Some(_) if part.text.trim().is_empty() => {}
            Some(_) => set_text(&mut parameters, "caption", part, attempt.formatted),
            None => set_text(&mut parameters, "text", part, attempt.formatted),
        }
        if let Some(thread) = attempt.thread {
            parameters["message_thread_id"] = id(thread);
        }
        if let Some(reply) = attempt.reply {
            parameters["reply_parameters"] =
                json!({ "message_id": id(reply), "allow_sending_without_reply": true });
        }
        if options.silent && self.config.notifications == Notifications::Important {
            parameters["disable_notification"] = true.into();
        }
        if !options.buttons.is_empty() {
            parameters["reply_markup"] = json!({ "inline_keyboard": keyboard(options.buttons) });
        }
        parameters
    }
}

impl<'a> SendAttempt<'a> {
    fn new(to: &'a Route, part: &Part, options: &SendOptions<'_>) -> Self {
        // In a group's topic no reply is needed; private topics need the reply as an anchor.
        let anchored = options.reply && (thread(to).is_none() || is_private(to));
        Self {
            chat: id(&to.chat_id),
            thread: thread(to),
            thread_refused: false,
            reply: to.reply_to.as_deref().filter(|_| anchored),
            formatted: part.plain.is_some(),
            show: part.file.as_ref().map_or(MediaKind::Document, |file| file.show),
        }
    }

    /// The next attempt after a refusal, or the refusal. Every step removes something for good, so the loop
    /// ends.
    fn after_refusal(self, error: Error, to: &Route) -> Result<Self, Error> {
        if self.formatted && error.is_bad_markup() {
            return Ok(Self { formatted: false, ..self });
        }
        if self.show != MediaKind::Document && error.is_file_unfit() {
            return Ok(Self { show: MediaKind::Document, ..self });
        }
        if self.reply.is_some() && error.is_reply_gone() {
            return Ok(Self { reply: None, ..self });
        }
        if self.thread.is_some() && !is_private(to) && error.is_thread_gone() {
            // Telegram occasionally reports an existing thread as missing, so it is retried once.
            let thread = self.thread.filter(|_| !self.thread_refused);
            return Ok(Self { thread, thread_refused: true, ..self });
        }
        match error {
            Error::Answered { migrated_to: Some(chat), .. } if self.chat != chat => {
                Ok(Self { chat: chat.into(), ..self })
            }
            error => Err(error),
        }
    }
}

/// `field`: `text`, or `caption` with a file.
fn set_text(parameters: &mut Value, field: &str, part: &Part, formatted: bool) {
    match &part.plain {
        Some(_) if formatted => {
            parameters[field] = part.text.as_str().into();
            parameters["parse_mode"] = "MarkdownV2".into();
        }
        Some(plain) => parameters[field] = plain.as_str().into(),
        None => parameters[field] = part.text.as_str().into(),
    }
}

/// The method and form field for this kind of file.
fn upload_method(show: MediaKind) -> (&'static str, &'static str) {
    match show {
        MediaKind::Photo => ("sendPhoto", "photo"),
        MediaKind::Voice => ("sendVoice", "voice"),
        MediaKind::Audio => ("sendAudio", "audio"),
        MediaKind::Video => ("sendVideo", "video"),
        MediaKind::Document => ("sendDocument", "document"),
    }
}

/// The topic id on the wire; the general topic has none.
fn thread(to: &Route) -> Option<&str> {
    to.thread_id.as_deref().filter(|thread| *thread != GENERAL)
}

/// Groups and channels have negative ids or an `@name`.
fn is_private(to: &Route) -> bool {
    to.chat_id.parse::<i64>().is_ok_and(|id| id > 0)
}

/// A number on the wire, or an `@name`.
pub(super) fn id(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from)
}

fn keyboard(buttons: &[Button]) -> Vec<Vec<Value>> {
    let key = |button: &Button| json!({ "text": button.label, "callback_data": button.data });
    buttons.chunks(BUTTONS_PER_ROW).map(|row| row.iter().map(key).collect()).collect()
}

#[cfg(test)]
mod tests {
    use petasos_core::Platform;
    use petasos_core::message::Delivery;

    use super::*;

    #[test]
    fn follows_a_migrated_group_once() {
        let to = Route {
            platform: Platform::parse("telegram").expect("known"),
            chat_id: "-5".into(),
            thread_id: None,
            reply_to: None,
            delivery: Delivery::Push,
        };
        let moved = Error::Answered {
            code: 400,
            description: "Bad Request: group chat was upgraded to a supergroup chat".into(),
            retry_after: None,
            migrated_to: Some(-1005),
        };
        let first = SendAttempt::new(&to, &Part::plain("x"), &SendOptions::default());
        let second = first.after_refusal(moved.clone(), &to).expect("another try");
        assert_eq!(second.chat, -1005);
        assert_eq!(second.after_refusal(moved.clone(), &to).err(), Some(moved));
    }
}
