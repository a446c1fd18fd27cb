//! The way out. One call is one try; what is tried again here was answered with a refusal that names the
//! cause, so it cannot appear twice: markup not understood, thread gone, replied message gone, group moved.

use petasos_core::Route;
use petasos_core::outbox::Button;
use serde::Deserialize;
use serde_json::{Value, json};

use super::parse::{GENERAL, callback_id};
use super::{Error, Notifications, Telegram};
use crate::upload::Upload;
use crate::{Part, Receipt, SendOptions, Show};

/// Buttons side by side.
const ROW: usize = 2;
/// Largest picture that is shown as one, also at a server of one's own.
const MAX_PHOTO: u64 = 10 << 20;

#[derive(Deserialize)]
struct Sent {
    message_id: i64,
}

/// What is asked for, and what has been given up on the way.
struct Attempt<'a> {
    chat: Value,
    thread: Option<&'a str>,
    thread_refused: bool,
    reply: Option<&'a str>,
    marked: bool,
    /// As what the file goes, if there is one.
    show: Show,
}

impl Telegram {
    pub async fn send(&self, to: &Route, part: &Part, options: &SendOptions<'_>) -> Result<Receipt, Error> {
        if part.is_empty() {
            return Ok(Receipt::default());
        }
        let mut attempt = Attempt::new(to, part, options);
        loop {
            match self.try_send(&mut attempt, part, options).await {
                Ok(sent) => {
                    return Ok(Receipt {
                        message_id: Some(sent.message_id.to_string()),
                        thread_fallback: attempt.thread.is_none() && thread(to).is_some(),
                        opened: None,
                    });
                }
                Err(error) => attempt = attempt.without_cause_of(error, to)?,
            }
        }
    }

    async fn try_send(
        &self,
        attempt: &mut Attempt<'_>,
        part: &Part,
        options: &SendOptions<'_>,
    ) -> Result<Sent, Error> {
        let within = self.config.request_timeout;
        let Some(file) = &part.file else {
            return self.talk.call("sendMessage", &self.message(attempt, part, options), within).await;
        };
        let upload = Upload::open(file).await?;
        if attempt.show == Show::Photo && upload.size > MAX_PHOTO {
            attempt.show = Show::Document;
        }
        let (method, field) = method(attempt.show);
        let parameters = self.message(attempt, part, options);
        self.talk.upload(method, &parameters, field, upload, within).await
    }

    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let mut marked = part.plain.is_some();
        loop {
            let mut parameters = json!({ "chat_id": id(&to.chat_id), "message_id": id(message_id) });
            put_text(&mut parameters, "text", part, marked);
            let edited: Result<Value, Error> =
                self.talk.call("editMessageText", &parameters, self.config.request_timeout).await;
            match edited {
                Err(error) if marked && error.is_bad_markup() => marked = false,
                Err(error) if !error.is_not_modified() => return Err(error),
                Ok(_) | Err(_) => {
                    return Ok(Receipt { message_id: Some(message_id.to_owned()), ..Receipt::default() });
                }
            }
        }
    }

    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let parameters = json!({ "chat_id": id(&to.chat_id), "message_id": id(message_id) });
        self.act("deleteMessage", &parameters, Error::is_message_gone).await
    }

    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let mut parameters = json!({ "chat_id": id(&to.chat_id), "action": "typing" });
        if let Some(thread) = thread(to) {
            parameters["message_thread_id"] = id(thread);
        }
        self.act("sendChatAction", &parameters, |_| false).await
    }

    /// Telegram shows them only to somebody who is alone with us.
    pub fn drafts(&self, to: &Route) -> bool {
        is_private(to)
    }

    pub async fn draft(&self, to: &Route, number: u32, text: &str) -> Result<(), Error> {
        let mut parameters = json!({ "chat_id": id(&to.chat_id), "draft_id": number.max(1), "text": text });
        if let Some(thread) = thread(to) {
            parameters["message_thread_id"] = id(thread);
        }
        self.act("sendMessageDraft", &parameters, |_| false).await
    }

    pub async fn answer_callback(&self, dedup: &str, notice: Option<&str>) -> Result<(), Error> {
        let Some(callback) = callback_id(dedup) else {
            return Ok(());
        };
        let mut parameters = json!({ "callback_query_id": callback });
        if let Some(notice) = notice {
            parameters["text"] = notice.into();
        }
        self.act("answerCallbackQuery", &parameters, Error::is_callback_expired).await
    }

    /// `done_already` names the refusals that mean there is nothing left to do.
    pub(super) async fn act(
        &self,
        method: &'static str,
        parameters: &Value,
        done_already: fn(&Error) -> bool,
    ) -> Result<(), Error> {
        match self.talk.call::<Value>(method, parameters, self.config.request_timeout).await {
            Ok(_) => Ok(()),
            Err(error) if done_already(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn message(&self, attempt: &Attempt<'_>, part: &Part, options: &SendOptions<'_>) -> Value {
        let mut parameters = json!({ "chat_id": attempt.chat });
        match &part.file {
            Some(_) if part.text.trim().is_empty() => {}
            Some(_) => put_text(&mut parameters, "caption", part, attempt.marked),
            None => put_text(&mut parameters, "text", part, attempt.marked),
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

impl<'a> Attempt<'a> {
    fn new(to: &'a Route, part: &Part, options: &SendOptions<'_>) -> Self {
        // In a group's topic the place says enough; a private topic is held by its anchor.
        let anchored = options.reply && (thread(to).is_none() || is_private(to));
        Self {
            chat: id(&to.chat_id),
            thread: thread(to),
            thread_refused: false,
            reply: to.reply_to.as_deref().filter(|_| anchored),
            marked: part.plain.is_some(),
            show: part.file.as_ref().map_or(Show::Document, |file| file.show),
        }
    }

    /// The next try after a refusal, or the refusal if there is nothing to leave out. Each kind of refusal
    /// takes something away for good, so this ends.
    fn without_cause_of(self, error: Error, to: &Route) -> Result<Self, Error> {
        if self.marked && error.is_bad_markup() {
            return Ok(Self { marked: false, ..self });
        }
        if self.show != Show::Document && error.is_file_unfit() {
            return Ok(Self { show: Show::Document, ..self });
        }
        if self.reply.is_some() && error.is_reply_gone() {
            return Ok(Self { reply: None, ..self });
        }
        if self.thread.is_some() && !is_private(to) && error.is_thread_gone() {
            // Telegram says so of living threads, too, now and then: the same one is tried once more.
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

/// `field`: `text`, or `caption` below a file.
fn put_text(parameters: &mut Value, field: &str, part: &Part, marked: bool) {
    match &part.plain {
        Some(_) if marked => {
            parameters[field] = part.text.as_str().into();
            parameters["parse_mode"] = "MarkdownV2".into();
        }
        Some(plain) => parameters[field] = plain.as_str().into(),
        None => parameters[field] = part.text.as_str().into(),
    }
}

/// The method for a file of this kind, and its name for the file.
fn method(show: Show) -> (&'static str, &'static str) {
    match show {
        Show::Photo => ("sendPhoto", "photo"),
        Show::Voice => ("sendVoice", "voice"),
        Show::Audio => ("sendAudio", "audio"),
        Show::Video => ("sendVideo", "video"),
        Show::Document => ("sendDocument", "document"),
    }
}

/// The topic to name on the wire: the general one has no number there.
fn thread(to: &Route) -> Option<&str> {
    to.thread_id.as_deref().filter(|thread| *thread != GENERAL)
}

/// Groups and channels have negative ids, or a name.
fn is_private(to: &Route) -> bool {
    to.chat_id.parse::<i64>().is_ok_and(|id| id > 0)
}

/// Ids are numbers on the wire; a chat may also be an `@name`.
pub(super) fn id(text: &str) -> Value {
    text.parse::<i64>().map_or_else(|_| Value::from(text), Value::from)
}

fn keyboard(buttons: &[Button]) -> Vec<Vec<Value>> {
    let key = |button: &Button| json!({ "text": button.label, "callback_data": button.data });
    buttons.chunks(ROW).map(|row| row.iter().map(key).collect()).collect()
}

#[cfg(test)]
mod tests {
    use petasos_core::Platform;
    use petasos_core::message::Delivery;

    use super::*;

    #[test]
    fn a_group_that_has_moved_is_followed_once() {
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
        let first = Attempt::new(&to, &Part::plain("x"), &SendOptions::default());
        let second = first.without_cause_of(moved.clone(), &to).expect("another try");
        assert_eq!(second.chat, -1005);
        assert_eq!(second.without_cause_of(moved.clone(), &to).err(), Some(moved));
    }
}
