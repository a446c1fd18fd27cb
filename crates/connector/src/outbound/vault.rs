//! Credential vault. Platform permissions, such as response URLs, stay here; a gateway gets a name for each, valid for
//! its own instance and chat until the permission expires. A permission supplied by a gateway is refused.

use std::time::Duration;

use petasos_core::message::{Delivery, Inbound};
use petasos_core::{InstanceId, Millis, Route, Secret, SessionKey};
use petasos_gateway::shell::Db;
use petasos_gateway::{Commit, Error, clock};
use petasos_platforms::Adapter;
use petasos_relay::Answer;
use petasos_store::connector::{GatewayCredentials, InstanceChat, Permission};

/// Longest validity on any platform: Slack, half an hour.
const VALIDITY: Duration = Duration::from_secs(1800);
const PREFIX: &str = "way-";
const EXPIRED: &str = "the permission to reply here has expired";

/// Replaces the permission in a message with its name.
pub(crate) async fn seal(
    db: &Db,
    adapter: &Adapter,
    (instance, chat): (&InstanceId, &InstanceChat),
    event: &mut Inbound,
    now: Millis,
) -> Result<(), Error> {
    let Some(value) = event.source.message_id.clone() else { return Ok(()) };
    let Some(kind) = adapter.credential_kind(&value) else { return Ok(()) };
    let id = format!("{PREFIX}{}", clock::random_hex::<16>());
    let permission = Permission {
        id: id.clone(),
        instance: instance.clone(),
        platform: chat.platform,
        chat_id: chat.chat_id.clone(),
        session_key: chat.session_key.clone(),
        kind: kind.to_owned(),
        value: Secret::new(value),
        expires_at: now.after(VALIDITY),
    };
    event.source.message_id = Some(id);
    db.write(Commit::Connector, move |tx| tx.put_permission(&permission)).await
}

/// Resolves the name in `reply_to`; other ids pass unchanged. `Err`: the answer for the gateway.
pub(crate) async fn resolve_reply(
    db: &Db,
    gateway: &GatewayCredentials,
    adapter: &Adapter,
    chat: &str,
    reply_to: Option<String>,
) -> Result<Option<String>, Answer> {
    let Some(reply_to) = reply_to else { return Ok(None) };
    if adapter.credential_kind(&reply_to).is_some() {
        return Err(Answer::declined());
    }
    if !reply_to.starts_with(PREFIX) {
        return Ok(Some(reply_to));
    }
    let instance = gateway.instance.clone();
    let platform = adapter.platform();
    let chat = chat.to_owned();
    let now = clock::now();
    let found = db.read(move |reader| reader.permission(&reply_to, &instance, platform, &chat, now));
    match found.await {
        Ok(Some(value)) => Ok(Some(value.expose().to_owned())),
        Ok(None) => Err(Answer::refused(EXPIRED)),
        Err(error) => Err(retry_later(&error)),
    }
}

/// The route of a follow-up. `Err`: the answer for the gateway.
pub(crate) async fn follow_up_route(
    db: &Db,
    gateway: &GatewayCredentials,
    adapter: &Adapter,
    session_key: SessionKey,
    kind: String,
) -> Result<Route, Answer> {
    let instance = gateway.instance.clone();
    let now = clock::now();
    let found = db.read(move |reader| reader.permission_of(&instance, &session_key, &kind, now));
    match found.await {
        Ok(Some((chat_id, value))) if adapter.credential_kind(value.expose()).is_some() => Ok(Route {
            platform: adapter.platform(),
            chat_id,
            thread_id: None,
            reply_to: Some(value.expose().to_owned()),
            delivery: Delivery::Push,
        }),
        Ok(Some(_) | None) => Err(Answer::refused(EXPIRED)),
        Err(error) => Err(retry_later(&error)),
    }
}

pub(crate) fn retry_later(error: &Error) -> Answer {
    Answer { retry_after: Some(1), ..Answer::failed(error.to_string()) }
}
