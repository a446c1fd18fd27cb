//! Performs gateway requests on platforms: checks the permission, performs each request once, always answers.

use std::sync::Arc;

use petasos_core::message::Delivery;
use petasos_core::{Fault, InstanceId, LaneId, Reached, Route, SessionKey};
use petasos_gateway::shell::Db;
use petasos_platforms::{Adapter, Error as PlatformError, Kind, Part, SendOptions};
use petasos_relay::{Action, Answer, REFUSED};
use petasos_store::connector::{GatewayCredentials, InstanceChat};
use serde_json::{Map, Value, json};

use super::requests::{RequestTable, message_name};
use super::vault;
use crate::http::files::MediaFiles;

/// Handles of the requests of all gateways.
#[derive(Debug)]
pub(crate) struct ActionHandles {
    pub(crate) db: Db,
    pub(crate) requests: RequestTable,
    pub(crate) media: Arc<MediaFiles>,
    pub(crate) single: Option<InstanceId>,
}

/// Answers exactly once, also after a panic.
pub(crate) async fn handle(
    handles: Arc<ActionHandles>,
    gateway: Arc<GatewayCredentials>,
    adapter: Arc<Adapter>,
    request: String,
    action: Value,
) -> Answer {
    let action = match Action::read(&action) {
        Ok(action) => action,
        Err(unread) => return Answer::failed(unread.to_string()),
    };
    let done = petasos_runtime::spawn(async move {
        petasos_runtime::annotate(&request);
        let request = ActionRequest { handles: &handles, gateway: &gateway, adapter: &adapter, id: &request };
        match request.perform(action).await {
            Ok(answer) | Err(answer) => answer,
        }
    });
    done.await
        .unwrap_or_else(|_panicked| Answer::doubtful("the connector failed while it called the platform"))
}

type Work<'a> = std::pin::Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

#[derive(Clone, Copy)]
struct ActionRequest<'a> {
    handles: &'a ActionHandles,
    gateway: &'a GatewayCredentials,
    adapter: &'a Adapter,
    id: &'a str,
}

impl ActionRequest<'_> {
    /// `Err`: the platform was not called.
    async fn perform(self, action: Action) -> Result<Answer, Answer> {
        let Self { handles, gateway, adapter, id: _ } = self;
        let db = &handles.db;
        let chat = self.authorise_chat(&action).await?;
        let thread = action.thread();
        let to = |chat_id, reply_to| route(adapter, chat_id, thread, reply_to);
        Ok(match action {
            Action::Send { chat_id, content, reply_to, metadata: _ } => {
                let reply_to = vault::resolve_reply(db, gateway, adapter, &chat_id, reply_to).await?;
                let work = Box::pin(send(adapter, to(chat_id.clone(), reply_to), content));
                self.run_once(chat_id, work).await
            }
            Action::SendMedia {
                chat_id,
                media_kind,
                source_url,
                content,
                filename,
                reply_to,
                metadata: _,
            } => {
                let reply_to = vault::resolve_reply(db, gateway, adapter, &chat_id, reply_to).await?;
                let file = handles.media.open_upload(&gateway.instance, &source_url, media_kind, filename);
                let part = Part { text: content, ..Part::file(file.await.map_err(Answer::refused)?) };
                let work = Box::pin(send_part(adapter, to(chat_id.clone(), reply_to), part));
                self.run_once(chat_id, work).await
            }
            Action::FollowUp { session_key, kind, content, metadata: _ } => {
                let to = vault::follow_up_route(db, gateway, adapter, SessionKey(session_key), kind).await?;
                self.run_once(to.chat_id.clone(), Box::pin(send(adapter, to, content))).await
            }
            Action::Edit { chat_id, message_id, content, metadata: _ } => {
                self.authorise_change(&chat_id, &message_id).await?;
                match adapter.render(&content).as_slice() {
                    [part] => {
                        let edited = adapter.edit(&to(chat_id, None), &message_id, part).await;
                        to_answer(edited.map(|receipt| receipt.message_id))
                    }
                    _more => {
                        let code = Some(Kind::TooLong.name().to_owned());
                        return Err(Answer { code, ..Answer::failed("longer than one message") });
                    }
                }
            }
            Action::Typing { chat_id, content, metadata: _ } => {
                if content.is_some_and(|text| text.is_empty()) {
                    return Ok(Answer::sent(None));
                }
                to_answer(adapter.typing(&to(chat_id, None)).await.map(|()| None))
            }
            Action::Delete { chat_id, message_id, metadata: _ } => {
                self.authorise_change(&chat_id, &message_id).await?;
                to_answer(adapter.delete(&to(chat_id, None), &message_id).await.map(|()| None))
            }
            Action::ChatInfo { chat_id } => {
                let name = chat.as_ref().and_then(|chat| chat.name.clone()).unwrap_or(chat_id);
                let kind = chat.map_or_else(|| "dm".to_owned(), |chat| chat.chat_type);
                let mut more = Map::new();
                more.insert("chat_info".into(), json!({ "name": name, "type": kind }));
                Answer { more, ..Answer::sent(None) }
            }
            Action::React { .. }
            | Action::Prompt { .. }
            | Action::ThreadCreate { .. }
            | Action::Draft { .. } => {
                return Err(Answer::failed(format!("unsupported op: {}", action.op())));
            }
        })
    }

    async fn run_once(self, chat: String, work: Work<'_>) -> Answer {
        let lane = LaneId { platform: self.adapter.platform(), chat };
        self.handles.requests.run_once(&self.gateway.instance, self.id, &lane, work).await
    }

    /// Restricts an instance to chats that were routed to it, unless it is the single instance. `Err`: the answer.
    async fn authorise_chat(self, action: &Action) -> Result<Option<InstanceChat>, Answer> {
        let Some(chat) = action.chat().map(str::to_owned) else { return Ok(None) };
        let instance = self.gateway.instance.clone();
        let platform = self.adapter.platform();
        let thread = action.thread().filter(|_| self.adapter.capabilities().threads_are_separate);
        let known_chat = self.handles.db.read(move |reader| {
            let known_chat = reader.known_chat(&instance, platform, &chat)?;
            // In a direct message the chat is the author.
            let bound = known_chat.is_some()
                || reader.instance_of_direct(platform, &chat)?.as_ref() == Some(&instance);
            let there = match &thread {
                Some(thread) => reader.knows_thread(&instance, platform, &chat, thread)?,
                None => true,
            };
            Ok((known_chat, bound && there))
        });
        match known_chat.await {
            Ok((known_chat, bound)) if bound || self.is_of_single_instance() => Ok(known_chat),
            Ok(_) => Err(Answer::declined()),
            Err(error) => Err(vault::retry_later(&error)),
        }
    }

    /// Restricts edits and deletions to messages of the same instance. `Err`: the answer.
    async fn authorise_change(self, chat: &str, message: &str) -> Result<(), Answer> {
        if self.is_of_single_instance() {
            return Ok(());
        }
        let instance = self.gateway.instance.clone();
        let lane = LaneId { platform: self.adapter.platform(), chat: chat.to_owned() };
        let message = message_name(&lane, message);
        match self.handles.db.read(move |reader| reader.is_own_message(&instance, &message)).await {
            Ok(true) => Ok(()),
            Ok(false) => {
                let code = Some(Kind::NotFound.name().to_owned());
                Err(Answer { code, ..Answer::failed("message not found") })
            }
            Err(error) => Err(vault::retry_later(&error)),
        }
    }

    /// The single instance may write to every chat.
    fn is_of_single_instance(self) -> bool {
        self.handles.single.as_ref() == Some(&self.gateway.instance)
    }
}

fn route(adapter: &Adapter, chat_id: String, thread_id: Option<String>, reply_to: Option<String>) -> Route {
    Route { platform: adapter.platform(), chat_id, thread_id, reply_to, delivery: Delivery::Push }
}

async fn send(adapter: &Adapter, to: Route, content: String) -> Answer {
    let mut first = None;
    for (number, part) in adapter.render(&content).iter().enumerate() {
        let options = SendOptions { reply: number == 0 && to.reply_to.is_some(), ..SendOptions::default() };
        let receipt = match adapter.send(&to, part, &options).await {
            Ok(receipt) => receipt,
            Err(error) if number > 0 => return Answer { ambiguous: true, ..failure(&error) },
            Err(error) => return failure(&error),
        };
        first = first.or(receipt.message_id);
    }
    Answer::sent(first)
}

async fn send_part(adapter: &Adapter, to: Route, part: Part) -> Answer {
    let options = SendOptions { reply: to.reply_to.is_some(), ..SendOptions::default() };
    to_answer(adapter.send(&to, &part, &options).await.map(|receipt| receipt.message_id))
}

fn to_answer(done: Result<Option<String>, PlatformError>) -> Answer {
    match done {
        Ok(message_id) => Answer::sent(message_id),
        Err(error) => failure(&error),
    }
}

fn failure(error: &PlatformError) -> Answer {
    let (code, retry_after) = match (error.fault(), error.kind()) {
        (Fault::Refused, Kind::RateLimited | Kind::Transient | Kind::Unknown) => (REFUSED, None),
        (Fault::Refused, kind) => (kind.name(), None),
        (Fault::Later { after }, kind) => (retryable(kind).name(), after.map(|after| after.as_secs().max(1))),
        // Needs a fix by the operator; retrying is right until then.
        (Fault::Fatal, _) => (Kind::Transient.name(), None),
    };
    Answer {
        code: Some(code.to_owned()),
        ambiguous: error.reached() != Reached::No,
        retry_after,
        ..Answer::failed(error.to_string())
    }
}

/// Maps to kinds that a gateway retries.
const fn retryable(kind: Kind) -> Kind {
    match kind {
        Kind::RateLimited | Kind::Transient => kind,
        Kind::TooLong
        | Kind::BadFormat
        | Kind::Forbidden
        | Kind::Declined
        | Kind::NoFiles
        | Kind::ChatNotFound
        | Kind::NotFound
        | Kind::Unknown => Kind::Unknown,
    }
}
