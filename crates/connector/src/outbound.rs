//! What a gateway asks of a platform: allowed? then done, once, and answered whatever happens.

use std::sync::Arc;

use petasos_core::message::Delivery;
use petasos_core::{Fault, Reached, Route};
use petasos_platforms::{Adapter, Error as PlatformError, Kind, Part, SendOptions};
use petasos_relay::{Action, Answer, REFUSED};
use petasos_store::connector::{Chat, Gateway};
use serde_json::{Map, Value, json};

use crate::shell::Shell;
use crate::{files, vault};

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
    let done = petasos_runtime::spawn(async move {
        petasos_runtime::annotate(&request);
        perform(&shell, &gateway, &adapter, &request, action).await
    });
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
    match done(shell, gateway, adapter, request, action).await {
        Ok(answer) | Err(answer) => answer,
    }
}

/// `Err`: nothing was asked of the platform.
async fn done(
    shell: &Shell,
    gateway: &Gateway,
    adapter: &Adapter,
    request: &str,
    action: Action,
) -> Result<Answer, Answer> {
    let chat = may_speak(shell, gateway, adapter, &action).await?;
    let platform = adapter.platform();
    let once = |chat: String, work| async move {
        let place = format!("{platform}:{chat}");
        shell.requests.once(&shell.db, &gateway.instance, request, &place, work).await
    };
    let thread = action.thread();
    let to = |chat_id, reply_to| route(adapter, chat_id, thread, reply_to);
    Ok(match action {
        Action::Send { chat_id, content, reply_to, metadata: _ } => {
            let reply_to = vault::unlock(shell, gateway, adapter, &chat_id, reply_to).await?;
            let work = Box::pin(send(adapter, to(chat_id.clone(), reply_to), content)) as Work<'_>;
            once(chat_id, work).await
        }
        Action::SendMedia { chat_id, media_kind, source_url, content, filename, reply_to, metadata: _ } => {
            let reply_to = vault::unlock(shell, gateway, adapter, &chat_id, reply_to).await?;
            let file = files::uploaded(shell, &gateway.instance, &source_url, media_kind, filename).await;
            let part = Part { text: content, ..Part::file(file.map_err(Answer::refused)?) };
            once(chat_id.clone(), Box::pin(send_part(adapter, to(chat_id, reply_to), part))).await
        }
        Action::FollowUp { session_key, kind, content, metadata: _ } => {
            let to = vault::follow(shell, gateway, adapter, session_key, kind).await?;
            once(to.chat_id.clone(), Box::pin(send(adapter, to, content))).await
        }
        Action::Edit { chat_id, message_id, content, metadata: _ } => {
            may_change(shell, gateway, adapter, &chat_id, &message_id).await?;
            match adapter.render(&content).as_slice() {
                [part] => {
                    let edited = adapter.edit(&to(chat_id, None), &message_id, part).await;
                    sent(edited.map(|receipt| receipt.message_id))
                }
                _more => {
                    let code = Some(Kind::TooLong.name().to_owned());
                    return Err(Answer { code, ..Answer::failed("longer than one message") });
                }
            }
        }
        Action::Typing { chat_id, content, metadata: _ } => {
            if content.is_some_and(|text| text.is_empty()) {
                return Ok(Answer::sent(None)); // it goes by itself
            }
            sent(adapter.typing(&to(chat_id, None)).await.map(|()| None))
        }
        Action::Delete { chat_id, message_id, metadata: _ } => {
            may_change(shell, gateway, adapter, &chat_id, &message_id).await?;
            sent(adapter.delete(&to(chat_id, None), &message_id).await.map(|()| None))
        }
        Action::ChatInfo { chat_id } => {
            let name = chat.as_ref().and_then(|chat| chat.name.clone()).unwrap_or(chat_id);
            let kind = chat.map_or_else(|| "dm".to_owned(), |chat| chat.chat_type);
            let mut more = Map::new();
            more.insert("chat_info".into(), json!({ "name": name, "type": kind }));
            Answer { more, ..Answer::sent(None) }
        }
        Action::React { .. } | Action::Prompt { .. } | Action::ThreadCreate { .. } | Action::Draft { .. } => {
            return Err(Answer::failed(format!("unsupported op: {}", action.op())));
        }
    })
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
    let thread = action.thread().filter(|_| adapter.capabilities().threads_stand_alone);
    let met = shell.db.read(move |reader| {
        let met = reader.met(&instance, platform, &chat)?;
        // In a direct message the chat is the author.
        let bound = met.is_some() || reader.instance_of_direct(platform, &chat)?.as_ref() == Some(&instance);
        let there = match &thread {
            Some(thread) => reader.met_in(&instance, platform, &chat, thread)?,
            None => true,
        };
        Ok((met, bound && there))
    });
    match met.await {
        Ok((met, bound)) if bound || shell.single.as_ref() == Some(&gateway.instance) => Ok(met),
        Ok(_) => Err(Answer::declined()),
        Err(error) => Err(vault::later(&error)),
    }
}

/// Where several instances speak with one voice, each changes only what it said itself. `Err`: what to answer.
async fn may_change(
    shell: &Shell,
    gateway: &Gateway,
    adapter: &Adapter,
    chat: &str,
    message: &str,
) -> Result<(), Answer> {
    if shell.single.as_ref() == Some(&gateway.instance) {
        return Ok(());
    }
    let (instance, message) = (gateway.instance.clone(), format!("{}:{chat}:{message}", adapter.platform()));
    match shell.db.read(move |reader| reader.wrote(&instance, &message)).await {
        Ok(true) => Ok(()),
        Ok(false) => {
            let code = Some(Kind::NotFound.name().to_owned());
            Err(Answer { code, ..Answer::failed("message not found") })
        }
        Err(error) => Err(vault::later(&error)),
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
    let (code, retry_after) = match (error.fault(), error.kind()) {
        // It can be said no finer.
        (Fault::Refused, Kind::RateLimited | Kind::Transient | Kind::Unknown) => (REFUSED, None),
        (Fault::Refused, kind) => (kind.name(), None),
        (Fault::Later { after }, kind) => (postponed(kind).name(), after.map(|after| after.as_secs().max(1))),
        // A person has to mend something here: until then, and no longer, nothing works.
        (Fault::Fatal, _) => (Kind::Transient.name(), None),
    };
    Answer {
        code: Some(code.to_owned()),
        ambiguous: error.reached() != Reached::No,
        retry_after,
        ..Answer::failed(error.to_string())
    }
}

/// The kinds that a gateway tries again.
const fn postponed(kind: Kind) -> Kind {
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
