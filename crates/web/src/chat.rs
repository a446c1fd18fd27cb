//! Saying something, and interrupting the answer.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use petasos_core::{Inbound, Source};
use petasos_gateway::{Handle, Submitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::{Body, Chat, is_id};

const TEXT_LIMIT: usize = 256 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Said {
    text: String,
    /// Made by the client. The same one again is the same message: a lost answer can be asked for again.
    id: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct Stopped {
    /// A turn was running.
    stopped: bool,
}

/// Answers after the commit: 202 means the message is on disk.
pub(crate) async fn say(
    State(handle): State<Handle>,
    chat: Chat,
    Body(said): Body<Said>,
) -> Result<(StatusCode, Json<Submitted>), ApiError> {
    let submitted = handle.submit(inbound(&chat, said)?).await?;
    Ok((StatusCode::ACCEPTED, Json(submitted)))
}

pub(crate) async fn stop(State(handle): State<Handle>, chat: Chat) -> Result<Json<Stopped>, ApiError> {
    let stopped = handle.stop_turn(&handle.key_of(&chat.source())).await?;
    Ok(Json(Stopped { stopped }))
}

fn inbound(chat: &Chat, said: Said) -> Result<Inbound, ApiError> {
    if said.text.trim().is_empty() {
        return Err(ApiError::bad_request("the text is empty"));
    }
    if said.text.len() > TEXT_LIMIT {
        return Err(ApiError::too_large("the text is longer than 256 KiB"));
    }
    if !is_id(&said.id) {
        return Err(ApiError::bad_request("a message id has 1 to 64 of the characters A-Z a-z 0-9 _ -"));
    }
    // The row that comes of it carries the id, so the page knows its own message again.
    let source = Source { message_id: Some(said.id.clone()), ..chat.source() };
    Ok(Inbound::new(source, format!("{}:{}", chat.id, said.id), said.text))
}

#[cfg(test)]
mod tests {
    use petasos_core::Platform;

    use super::*;

    fn parse(text: &str, id: &str) -> Result<Inbound, ApiError> {
        let chat = Chat { platform: Platform::parse("web").unwrap(), id: "c1".into() };
        inbound(&chat, Said { text: text.into(), id: id.into() })
    }

    #[test]
    fn a_repeated_post_has_the_same_identity() {
        assert_eq!(parse("hi", "m1").unwrap().dedup, "c1:m1");
        assert_eq!(parse("hi", "m1").unwrap(), parse("hi", "m1").unwrap());
    }

    #[test]
    fn empty_oversized_and_unnamed_messages_are_refused() {
        assert!(parse(" \n", "m1").is_err());
        assert!(parse("hi", "").is_err());
        assert!(parse("hi", "m:1").is_err());
        assert!(parse(&"x".repeat(TEXT_LIMIT), "m1").is_ok());
        assert!(parse(&"x".repeat(TEXT_LIMIT + 1), "m1").is_err());
    }
}
