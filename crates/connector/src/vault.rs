//! Permissions of platforms stay here. A gateway is given a name for each, which leads to it for its own instance, in the
//! chat that it came from, as long as the platform honours it; what it brings itself is never taken for one.

use std::time::Duration;

use petasos_core::message::{Delivery, Inbound};
use petasos_core::{Millis, Route, Secret};
use petasos_gateway::{Commit, Error, clock};
use petasos_platforms::Adapter;
use petasos_relay::Answer;
use petasos_store::connector::{Gateway, Permission};

use crate::shell::Shell;

/// The longest that any platform honours one: Slack, half an hour.
const GOOD_FOR: Duration = Duration::from_secs(1800);
/// What a name begins with.
const NAME: &str = "way-";
const CLOSED: &str = "that way back is closed";

/// Takes the permission out of a message, if it has one, and leaves its name there.
pub(crate) async fn lock_up(
    shell: &Shell,
    instance: &str,
    session_key: &str,
    event: &mut Inbound,
    now: Millis,
) -> Result<(), Error> {
    let Some(adapter) = shell.adapters.of(event.source.platform) else { return Ok(()) };
    let Some(value) = event.source.message_id.clone() else { return Ok(()) };
    let Some(kind) = adapter.permission(&value) else { return Ok(()) };
    let id = format!("{NAME}{}", crate::files::fresh());
    let permission = Permission {
        id: id.clone(),
        instance: instance.to_owned(),
        platform: event.source.platform,
        chat_id: Route::back_to(&event.source, Delivery::Push).chat_id,
        session_key: session_key.to_owned(),
        kind: kind.to_owned(),
        value: Secret::new(value),
        expires_at: now.after(GOOD_FOR),
    };
    event.source.message_id = Some(id);
    shell.db.write(Commit::Connector, move |tx| tx.lock_up(&permission)).await
}

/// What a gateway answers: a message, or what a name of ours leads to. `Err`: what to tell it.
pub(crate) async fn unlock(
    shell: &Shell,
    gateway: &Gateway,
    adapter: &Adapter,
    chat: &str,
    reply_to: Option<String>,
) -> Result<Option<String>, Answer> {
    let Some(reply_to) = reply_to else { return Ok(None) };
    if adapter.permission(&reply_to).is_some() {
        return Err(Answer::declined());
    }
    if !reply_to.starts_with(NAME) {
        return Ok(Some(reply_to));
    }
    let (instance, platform) = (gateway.instance.clone(), adapter.platform());
    let (chat, now) = (chat.to_owned(), clock::now());
    let found = shell.db.read(move |reader| reader.permission(&reply_to, &instance, platform, &chat, now));
    match found.await {
        Ok(Some(value)) => Ok(Some(value.expose().to_owned())),
        Ok(None) => Err(Answer::refused(CLOSED)),
        Err(error) => Err(later(&error)),
    }
}

/// Where a follow-up of this conversation goes. `Err`: what to tell the gateway.
pub(crate) async fn follow(
    shell: &Shell,
    gateway: &Gateway,
    adapter: &Adapter,
    session_key: String,
    kind: String,
) -> Result<Route, Answer> {
    let (instance, now) = (gateway.instance.clone(), clock::now());
    let found = shell.db.read(move |reader| reader.permission_of(&instance, &session_key, &kind, now));
    match found.await {
        Ok(Some((chat_id, value))) if adapter.permission(value.expose()).is_some() => Ok(Route {
            platform: adapter.platform(),
            chat_id,
            thread_id: None,
            reply_to: Some(value.expose().to_owned()),
            delivery: Delivery::Push,
        }),
        Ok(Some(_) | None) => Err(Answer::refused(CLOSED)),
        Err(error) => Err(later(&error)),
    }
}

pub(crate) fn later(error: &Error) -> Answer {
    Answer { retry_after: Some(1), ..Answer::failed(error.to_string()) }
}
