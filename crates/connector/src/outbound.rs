//! What a gateway asks of a platform: allowed? then done, once, and answered whatever happens.

use std::sync::Arc;

use petasos_core::message::Delivery;
use petasos_core::relay::{Action, Answer};
use petasos_core::{Fault, Reached, Route};
use petasos_platforms::{Adapter, Error as PlatformError, Part, SendOptions};
use petasos_store::connector::{Chat, Gateway};
use serde_json::{Map, Value, json};

use crate::files;
use crate::shell::Shell;

/// Exactly one answer, also if what is done panics.
pub(crate) async fn answer(
    shell: Arc<Shell>,
    gateway: Arc<Gateway>,
    adapter: Arc<Adapter>,
    request: String,
    action: Value,
) -> Answer {
    let action = match Action::read(&action) {
        Ok(action) => action,
        Err(unread) => return Answer::failed(unread.to_string()),
    };
    let done = tokio::spawn(async move { perform(&shell, &gateway, &adapter, &request, action).await });
    done.await
        .unwrap_or_else(|_panicked| Answer::doubtful("the connector failed while it asked the platform"))
}

async fn perform(
    shell: &Shell,
    gateway: &Gateway,
    adapter: &Adapter,
    request: &str,
    action: Action,
) -> Answer {
    let chat = match may_speak(shell, gateway, adapter, &action).await {
        Ok(chat) => chat,
        Err(answer) => return answer,
    };
    let once = |work| shell.requests.once(&shell.db, &gateway.instance, request, work);
    match action {
        Action::Send { chat_id, content, reply_to, metadata } => {
            let to = route(adapter, chat_id, reply_to, &metadata);
            once(Box::pin(send(adapter, to, content)) as Work<'_>).await
        }
        Action::SendMedia { chat_id, media_kind, source_url, content, filename, reply_to, metadata } => {
            let to = route(adapter, chat_id, reply_to, &metadata);
            let file = files::uploaded(shell, &gateway.instance, &source_url, media_kind, filename).await;
            let part = match file {
                Ok(file) => Part { text: content, ..Part::file(file) },
                Err(why) => return Answer::failed(why),
            };
            once(Box::pin(send_part(adapter, to, part))).await
        }
        Action::Edit { chat_id, message_id, content, metadata } => {
            let to = route(adapter, chat_id, None, &metadata);
            match adapter.render(&content).as_slice() {
                [part] => sent(adapter.edit(&to, &message_id, part).await.map(|receipt| receipt.message_id)),
                _more => Answer::failed("longer than one message"),
            }
        }
        Action::Typing { chat_id, content, metadata } => {
            if content.is_some_and(|text| text.is_empty()) {
                return Answer::sent(None); // it goes by itself
            }
            sent(adapter.typing(&route(adapter, chat_id, None, &metadata)).await.map(|()| None))
        }
        Action::Delete { chat_id, message_id, metadata } => {
            sent(adapter.delete(&route(adapter, chat_id, None, &metadata), &message_id).await.map(|()| None))
        }
        Action::ChatInfo { chat_id } => {
            let name = chat.as_ref().and_then(|chat| chat.name.clone()).unwrap_or(chat_id);
            let kind = chat.map_or_else(|| "dm".to_owned(), |chat| chat.chat_type);
            let mut more = Map::new();
            more.insert("chat_info".into(), json!({ "name": name, "type": kind }));
            Answer { more, ..Answer::sent(None) }
        }
        Action::FollowUp { .. }
        | Action::React { .. }
        | Action::Prompt { .. }
        | Action::ThreadCreate { .. }
        | Action::Draft { .. } => Answer::failed(format!("unsupported op: {}", action.op())),
    }
}

type Work<'a> = std::pin::Pin<Box<dyn Future<Output = Answer> + Send + 'a>>;

/// Only where the instance was spoken to, unless it is everybody's. `Err`: what to answer.
async fn may_speak(
    shell: &Shell,
    gateway: &Gateway,
    adapter: &Adapter,
    action: &Action,
) -> Result<Option<Chat>, Answer> {
    let Some(chat) = action.chat().map(str::to_owned) else { return Ok(None) };
    let (instance, platform) = (gateway.instance.clone(), adapter.platform());
    let met = shell.db.read(move |reader| {
        let met = reader.met(&instance, platform, &chat)?;
        // In a direct message the chat is the author.
        let bound = met.is_some() || reader.instance_of_author(platform, &chat)?.as_ref() == Some(&instance);
        Ok((met, bound))
    });
    match met.await {
        Ok((met, bound)) if bound || shell.single.as_ref() == Some(&gateway.instance) => Ok(met),
        Ok(_) => Err(Answer::declined()),
        Err(error) => Err(Answer { retry_after: Some(1), ..Answer::failed(error.to_string()) }),
    }
}

fn route(
    adapter: &Adapter,
    chat_id: String,
    reply_to: Option<String>,
    metadata: &Map<String, Value>,
) -> Route {
    let thread = metadata.get("thread_id").and_then(|id| match id {
        Value::String(id) => Some(id.clone()).filter(|id| !id.is_empty()),
        Value::Number(id) => Some(id.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    });
    let platform = adapter.platform();
    Route { platform, chat_id, thread_id: thread, reply_to, delivery: Delivery::Push }
}

async fn send(adapter: &Adapter, to: Route, content: String) -> Answer {
    let mut first = None;
    for (number, part) in adapter.render(&content).iter().enumerate() {
        let options = SendOptions { reply: number == 0 && to.reply_to.is_some(), ..SendOptions::default() };
        let receipt = match adapter.send(&to, part, &options).await {
            Ok(receipt) => receipt,
            // A part of it is there.
            Err(error) if number > 0 => return Answer { ambiguous: true, ..failure(&error) },
            Err(error) => return failure(&error),
        };
        first = first.or(receipt.message_id);
    }
    Answer::sent(first)
}

async fn send_part(adapter: &Adapter, to: Route, part: Part) -> Answer {
    let options = SendOptions { reply: to.reply_to.is_some(), ..SendOptions::default() };
    sent(adapter.send(&to, &part, &options).await.map(|receipt| receipt.message_id))
}

fn sent(done: Result<Option<String>, PlatformError>) -> Answer {
    match done {
        Ok(message_id) => Answer::sent(message_id),
        Err(error) => failure(&error),
    }
}

/// In the words of the contract: definite, doubtful, or to be tried later.
fn failure(error: &PlatformError) -> Answer {
    let retry_after = match error.fault() {
        Fault::Later { after } => after.map(|after| after.as_secs().max(1)),
        Fault::Refused | Fault::Fatal => None,
    };
    Answer {
        code: Some(error.code().to_owned()),
        ambiguous: error.reached() == Reached::Maybe,
        retry_after,
        ..Answer::failed(error.to_string())
    }
}
