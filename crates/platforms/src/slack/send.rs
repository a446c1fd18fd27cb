//! The way out. One call is one try. Where a chat belongs is found out first, if it is not known.

use petasos_core::outbox::Button;
use petasos_core::text::{Limits, Unit, split_plain};
use petasos_core::{Fault, Route};
use serde_json::{Value, json};
use tracing::debug;

use super::api::{Sort, Token};
use super::memory::Place;
use super::parse::response_url;
use super::team::{Me, Teams};
use super::wire::{Conversation, Posted, Ticket};
use super::{Error, Slack};
use crate::upload::Upload;
use crate::{File, Part, Receipt, SendOptions};

/// Longest text of one section, and most buttons of one row.
const SECTION: Limits = Limits::new(3000, Unit::Chars);
const ROW: usize = 5;
const LABEL: usize = 75;

impl Slack {
    pub async fn send(&self, to: &Route, part: &Part, options: &SendOptions<'_>) -> Result<Receipt, Error> {
        if part.is_empty() {
            return Ok(Receipt::default());
        }
        if let Some(url) = response_url(to.reply_to.as_deref()) {
            if part.file.is_some() {
                return Err(Error::NoPrivateFiles);
            }
            let mut body = json!({ "response_type": "ephemeral", "text": part.text });
            // The first part takes the place of "Running …".
            body["replace_original"] = options.reply.into();
            if !options.buttons.is_empty() {
                body["blocks"] = blocks(&part.text, options.buttons);
            }
            self.api.respond(url, &body).await?;
            return Ok(Receipt::default());
        }
        let round = self.memory().losses.round();
        let (token, place) = self.place(&to.chat_id).await?;
        let sent = match &part.file {
            Some(file) => self.share(to, &token, &place, part, file).await,
            None => self.post(to, &token, &place, part, options).await,
        };
        self.heed(round, &place.team, &sent);
        sent
    }

    async fn post(
        &self,
        to: &Route,
        token: &Token,
        place: &Place,
        part: &Part,
        options: &SendOptions<'_>,
    ) -> Result<Receipt, Error> {
        let mut parameters = json!({ "channel": place.channel, "text": part.text });
        if let Some(thread) = &to.thread_id {
            parameters["thread_ts"] = thread.as_str().into();
            if options.reply && self.config.reply_broadcast {
                parameters["reply_broadcast"] = true.into();
            }
        }
        if !options.buttons.is_empty() {
            parameters["blocks"] = blocks(&part.text, options.buttons);
        }
        let sent: Posted = self.api.post(token, "chat.postMessage", &parameters).await?;
        if let Some(thread) = &to.thread_id {
            self.memory().join(&place.channel, thread);
        }
        Ok(Receipt { message_id: Some(sent.ts), ..Receipt::default() })
    }

    /// Three steps, of which only the last is seen: ask where to, bring it there, show it in the channel.
    async fn share(
        &self,
        to: &Route,
        token: &Token,
        place: &Place,
        part: &Part,
        file: &File,
    ) -> Result<Receipt, Error> {
        let unseen = |error: Error| Error::NotShared(Box::new(error));
        let id = self.bring(token, file).await.map_err(unseen)?;
        let mut parameters =
            json!({ "channel_id": place.channel, "files": [{ "id": id, "title": file.name }] });
        if let Some(thread) = &to.thread_id {
            parameters["thread_ts"] = thread.as_str().into();
        }
        if !part.text.trim().is_empty() {
            parameters["initial_comment"] = part.text.trim().into();
        }
        let shared = self.api.post::<Value>(token, "files.completeUploadExternal", &parameters).await;
        shared.map_err(|error| if error.bars_files() { unseen(error) } else { error })?;
        if let Some(thread) = &to.thread_id {
            self.memory().join(&place.channel, thread);
        }
        // Slack does not say which message shows it.
        Ok(Receipt::default())
    }

    async fn bring(&self, token: &Token, file: &File) -> Result<String, Error> {
        let upload = Upload::open(file).await?;
        let length = upload.size.to_string();
        let query = [("filename", file.name.as_str()), ("length", length.as_str())];
        let ticket: Ticket = self.api.get(token, "files.getUploadURLExternal", &query).await?;
        self.api.bring(&ticket.upload_url, upload).await?;
        Ok(ticket.file_id)
    }

    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let round = self.memory().losses.round();
        let (token, place) = self.place(&to.chat_id).await?;
        // What is not named stays: blocks would go on showing the old text and its buttons.
        let parameters =
            json!({ "channel": place.channel, "ts": message_id, "text": part.text, "blocks": [] });
        let edited = self.api.post::<Value>(&token, "chat.update", &parameters).await;
        self.heed(round, &place.team, &edited);
        edited?;
        Ok(Receipt { message_id: Some(message_id.to_owned()), ..Receipt::default() })
    }

    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let (token, place) = self.place(&to.chat_id).await?;
        let parameters = json!({ "channel": place.channel, "ts": message_id });
        match self.api.post::<Value>(&token, "chat.delete", &parameters).await {
            Err(error) if !error.is_message_gone() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// A line below the thread, which Slack takes away with our next message there. Only threads have one.
    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let Some(thread) = &to.thread_id else { return Ok(()) };
        let (token, place) = self.place(&to.chat_id).await?;
        if self.memory().without_status.contains(&place.team) {
            return Ok(());
        }
        let status = &self.config.typing_status_text;
        let parameters = json!({ "channel_id": place.channel, "thread_ts": thread, "status": status });
        match self.api.post::<Value>(&token, "assistant.threads.setStatus", &parameters).await {
            Ok(_) => Ok(()),
            Err(error) => match error.fault() {
                Fault::Later { .. } => Err(error),
                Fault::Refused | Fault::Fatal => {
                    debug!(platform = "slack", %error, "this workspace does not show that we are thinking");
                    self.memory().without_status.insert(place.team);
                    Ok(())
                }
            },
        }
    }

    /// Where a chat is, and the token for it. A person (`U…`) is written to in the conversation of two.
    pub(super) async fn place(&self, chat: &str) -> Result<(Token, Place), Error> {
        let known = {
            let memory = self.memory();
            let place = memory.places.get(chat).cloned();
            place.and_then(|place| Some((memory.teams.get(&place.team)?.token.clone(), place)))
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let teams = self.teams().await?;
        let (me, channel) = self.find(&teams, chat).await?;
        let place = Place { team: me.team.clone(), channel };
        self.memory().places.put(chat.to_owned(), place.clone());
        Ok((me.token.clone(), place))
    }

    async fn teams(&self) -> Result<Teams, Error> {
        let known = self.memory().teams.clone();
        if known.0.is_empty() { self.sign_in().await } else { Ok(known) }
    }

    /// Asks the workspaces in turn which of them knows the chat. One that takes us no more does not stand in the way of
    /// the others.
    async fn find<'a>(&self, teams: &'a Teams, chat: &str) -> Result<(&'a Me, String), Error> {
        let person = chat.starts_with(['U', 'W']);
        if let ([only], false) = (teams.0.as_slice(), person) {
            return Ok((only, chat.to_owned()));
        }
        let (round, mut barred) = (self.memory().losses.round(), None);
        for me in &teams.0 {
            let found = if person { self.open_direct(me, chat).await } else { self.is_here(me, chat).await };
            match found {
                Ok(channel) => return Ok((me, channel)),
                Err(error) if error.is_chat_unknown() => {}
                Err(error) if error.is_revoked() => {
                    let refused: Result<(), Error> = Err(error.clone());
                    self.heed(round, &me.team, &refused);
                    barred = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let unknown = Error::Answered { error: "channel_not_found".into(), needed: None, token: Sort::Bot };
        Err(barred.unwrap_or(unknown))
    }

    async fn open_direct(&self, me: &Me, user: &str) -> Result<String, Error> {
        let parameters = json!({ "users": user });
        let opened: Conversation = self.api.post(&me.token, "conversations.open", &parameters).await?;
        Ok(opened.channel.id)
    }

    async fn is_here(&self, me: &Me, channel: &str) -> Result<String, Error> {
        let known: Conversation =
            self.api.get(&me.token, "conversations.info", &[("channel", channel)]).await?;
        Ok(known.channel.id)
    }
}

/// The text in sections, and the buttons below it.
fn blocks(text: &str, buttons: &[Button]) -> Value {
    let section = |text| json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } });
    let button = |(at, button): (usize, &Button)| {
        let label = Unit::Chars.prefix(&button.label, LABEL);
        json!({
            "type": "button", "action_id": format!("petasos_{at}"), "value": button.data,
            "text": { "type": "plain_text", "text": label },
        })
    };
    let elements: Vec<Value> = buttons.iter().enumerate().map(button).collect();
    let rows = elements.chunks(ROW).map(|row| json!({ "type": "actions", "elements": row }));
    split_plain(text, &SECTION).into_iter().map(section).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_with_buttons_becomes_sections_and_rows() {
        let buttons: Vec<Button> =
            (0..7).map(|n| Button { label: "x".repeat(90), data: n.to_string() }).collect();
        let blocks = blocks(&"word ".repeat(1000), &buttons);
        let kinds: Vec<&str> =
            blocks.as_array().expect("a list").iter().filter_map(|block| block["type"].as_str()).collect();
        assert_eq!(kinds, ["section", "section", "actions", "actions"]);
        assert_eq!(blocks[2]["elements"].as_array().map(Vec::len), Some(5));
        assert_eq!(blocks[3]["elements"][1]["action_id"], "petasos_6");
        assert_eq!(blocks[3]["elements"][1]["text"]["text"].as_str().map(str::len), Some(75));
    }
}
