//! Sending. One call is one attempt. An unknown chat is looked up first.

use petasos_core::outbox::Button;
use petasos_core::text::{Limits, Unit, split_plain};
use petasos_core::{Fault, Route};
use serde_json::{Value, json};
use tracing::debug;

use super::api::{Token, TokenKind};
use crate::slack::inbound::parse::response_url;
use crate::slack::state::ChatLocation;
use crate::slack::wire::{ConversationInfo, PostedMessage, UploadTicket};
use crate::slack::workspaces::{WorkspaceBot, Workspaces};
use crate::slack::{Error, Slack};
use crate::upload::Upload;
use crate::{OutgoingFile, Part, Receipt, SendOptions};

const SECTION_LIMITS: Limits = Limits::new(3000, Unit::Chars);
const BUTTONS_PER_ROW: usize = 5;
const MAX_LABEL: usize = 75;

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
            // The first part replaces "Running …".
            body["replace_original"] = options.reply.into();
            if !options.buttons.is_empty() {
                body["blocks"] = blocks(&part.text, options.buttons);
            }
            self.api.post_response(url, &body).await?;
            return Ok(Receipt::default());
        }
        let link = self.state().outages.link();
        let (token, chat) = self.locate(&to.chat_id).await?;
        let result = match &part.file {
            Some(file) => self.share_file(to, &token, &chat, part, file).await,
            None => self.post_message(to, &token, &chat, part, options).await,
        };
        self.record_result(link, &chat.team, &result);
        result
    }

    async fn post_message(
        &self,
        to: &Route,
        token: &Token,
        chat: &ChatLocation,
        part: &Part,
        options: &SendOptions<'_>,
    ) -> Result<Receipt, Error> {
        let mut parameters = json!({ "channel": chat.channel, "text": part.text });
        if let Some(thread) = &to.thread_id {
            parameters["thread_ts"] = thread.as_str().into();
            if options.reply && self.config.reply_broadcast {
                parameters["reply_broadcast"] = true.into();
            }
        }
        if !options.buttons.is_empty() {
            parameters["blocks"] = blocks(&part.text, options.buttons);
        }
        let sent: PostedMessage = self.api.post(token, "chat.postMessage", &parameters).await?;
        if let Some(thread) = &to.thread_id {
            self.state().add_thread(&chat.channel, thread);
        }
        Ok(Receipt { message_id: Some(sent.ts), ..Receipt::default() })
    }

    /// Gets an upload URL, uploads, and shares the file in the channel. Only the last step is visible.
    async fn share_file(
        &self,
        to: &Route,
        token: &Token,
        chat: &ChatLocation,
        part: &Part,
        file: &OutgoingFile,
    ) -> Result<Receipt, Error> {
        let not_shared = |error: Error| Error::FileNotShared(Box::new(error));
        let id = self.upload_file(token, file).await.map_err(not_shared)?;
        let mut parameters =
            json!({ "channel_id": chat.channel, "files": [{ "id": id, "title": file.name }] });
        if let Some(thread) = &to.thread_id {
            parameters["thread_ts"] = thread.as_str().into();
        }
        if !part.text.trim().is_empty() {
            parameters["initial_comment"] = part.text.trim().into();
        }
        let shared = self.api.post::<Value>(token, "files.completeUploadExternal", &parameters).await;
        shared.map_err(|error| if error.forbids_files() { not_shared(error) } else { error })?;
        if let Some(thread) = &to.thread_id {
            self.state().add_thread(&chat.channel, thread);
        }
        // Slack does not return the id of the message.
        Ok(Receipt::default())
    }

    async fn upload_file(&self, token: &Token, file: &OutgoingFile) -> Result<String, Error> {
        let upload = Upload::open(file).await?;
        let length = upload.size.to_string();
        let query = [("filename", file.name.as_str()), ("length", length.as_str())];
        let ticket: UploadTicket = self.api.get(token, "files.getUploadURLExternal", &query).await?;
        self.api.upload(&ticket.upload_url, upload).await?;
        Ok(ticket.file_id)
    }

    pub async fn edit(&self, to: &Route, message_id: &str, part: &Part) -> Result<Receipt, Error> {
        let link = self.state().outages.link();
        let (token, chat) = self.locate(&to.chat_id).await?;
        // Without `blocks`, Slack would keep the old blocks with the old text and its buttons.
        let parameters =
            json!({ "channel": chat.channel, "ts": message_id, "text": part.text, "blocks": [] });
        let result = self.api.post::<Value>(&token, "chat.update", &parameters).await;
        self.record_result(link, &chat.team, &result);
        result?;
        Ok(Receipt { message_id: Some(message_id.to_owned()), ..Receipt::default() })
    }

    pub async fn delete(&self, to: &Route, message_id: &str) -> Result<(), Error> {
        let (token, chat) = self.locate(&to.chat_id).await?;
        let parameters = json!({ "channel": chat.channel, "ts": message_id });
        match self.api.post::<Value>(&token, "chat.delete", &parameters).await {
            Err(error) if !error.is_message_gone() => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// The status of a thread, which the bot's next message removes. Outside threads there is none.
    pub async fn typing(&self, to: &Route) -> Result<(), Error> {
        let Some(thread) = &to.thread_id else { return Ok(()) };
        let (token, chat) = self.locate(&to.chat_id).await?;
        if self.state().typing_refused.contains(&chat.team) {
            return Ok(());
        }
        let status = &self.config.typing_status_text;
        let parameters = json!({ "channel_id": chat.channel, "thread_ts": thread, "status": status });
        match self.api.post::<Value>(&token, "assistant.threads.setStatus", &parameters).await {
            Ok(_) => Ok(()),
            Err(error) => match error.fault() {
                Fault::Later { .. } => Err(error),
                Fault::Refused | Fault::Fatal => {
                    debug!(platform = "slack", %error, "typing indicator not permitted in this workspace");
                    self.state().typing_refused.insert(chat.team);
                    Ok(())
                }
            },
        }
    }

    /// A user id (`U…`) stands for the direct conversation with that user.
    pub(super) async fn locate(&self, chat: &str) -> Result<(Token, ChatLocation), Error> {
        let known = {
            let state = self.state();
            let location = state.chats.get(chat).cloned();
            location
                .and_then(|location| Some((state.workspaces.get(&location.team)?.token.clone(), location)))
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let workspaces = self.workspaces().await?;
        let (bot, channel) = self.find_workspace(&workspaces, chat).await?;
        let location = ChatLocation { team: bot.team.clone(), channel };
        self.state().chats.insert(chat.to_owned(), location.clone());
        Ok((bot.token.clone(), location))
    }

    async fn workspaces(&self) -> Result<Workspaces, Error> {
        let known = self.state().workspaces.clone();
        if known.0.is_empty() { self.sign_in().await } else { Ok(known) }
    }

    /// Tries the workspaces in turn. A lost workspace does not hide the others.
    async fn find_workspace<'a>(
        &self,
        workspaces: &'a Workspaces,
        chat: &str,
    ) -> Result<(&'a WorkspaceBot, String), Error> {
        let is_user = chat.starts_with(['U', 'W']);
        if let ([only], false) = (workspaces.0.as_slice(), is_user) {
            return Ok((only, chat.to_owned()));
        }
        let link = self.state().outages.link();
        let mut lost = None;
        for bot in &workspaces.0 {
            let found = if is_user {
                self.open_direct_message(bot, chat).await
            } else {
                self.look_up_channel(bot, chat).await
            };
            match found {
                Ok(channel) => return Ok((bot, channel)),
                Err(error) if error.is_chat_unknown() => {}
                Err(error) if error.is_token_refused() => {
                    let refused: Result<(), Error> = Err(error.clone());
                    self.record_result(link, &bot.team, &refused);
                    lost = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        let unknown =
            Error::Answered { error: "channel_not_found".into(), needed: None, token: TokenKind::Bot };
        Err(lost.unwrap_or(unknown))
    }

    async fn open_direct_message(&self, bot: &WorkspaceBot, user: &str) -> Result<String, Error> {
        let parameters = json!({ "users": user });
        let opened: ConversationInfo = self.api.post(&bot.token, "conversations.open", &parameters).await?;
        Ok(opened.channel.id)
    }

    async fn look_up_channel(&self, bot: &WorkspaceBot, channel: &str) -> Result<String, Error> {
        let query = [("channel", channel)];
        let found: ConversationInfo = self.api.get(&bot.token, "conversations.info", &query).await?;
        Ok(found.channel.id)
    }
}

fn blocks(text: &str, buttons: &[Button]) -> Value {
    let section = |text| json!({ "type": "section", "text": { "type": "mrkdwn", "text": text } });
    let button = |(index, button): (usize, &Button)| {
        let label = Unit::Chars.prefix(&button.label, MAX_LABEL);
        json!({
            "type": "button", "action_id": format!("petasos_{index}"), "value": button.data,
            "text": { "type": "plain_text", "text": label },
        })
    };
    let elements: Vec<Value> = buttons.iter().enumerate().map(button).collect();
    let rows = elements.chunks(BUTTONS_PER_ROW).map(|row| json!({ "type": "actions", "elements": row }));
    split_plain(text, &SECTION_LIMITS).into_iter().map(section).chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_long_texts_and_buttons_into_sections_and_rows() {
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
