//! Posts a message to a chat; stops the running turn.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use petasos_core::{Inbound, Source};
use petasos_gateway::{Handle, Submitted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::{JsonBody, OwnChat, is_client_id};

const MAX_TEXT_BYTES: usize = 256 * 1024;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PostMessageRequest {
    text: String,
    /// Chosen by the client and used for deduplication, so a request may be repeated.
    id: String,
}

#[derive(Debug, Serialize)]
pub(crate) struct StopResponse {
    stopped: bool,
}

/// Responds after the commit: 202 means that the message is on disk.
pub(crate) async fn post_message(
    State(handle): State<Handle>,
    chat: OwnChat,
    JsonBody(request): JsonBody<PostMessageRequest>,
) -> Result<(StatusCode, Json<Submitted>), ApiError> {
    let submitted = handle.submit(parse_inbound(&chat, request)?).await?;
    Ok((StatusCode::ACCEPTED, Json(submitted)))
}

pub(crate) async fn stop_turn(
    State(handle): State<Handle>,
    chat: OwnChat,
) -> Result<Json<StopResponse>, ApiError> {
    let stopped = handle.stop_turn(&handle.key_of(&chat.source())).await?;
    Ok(Json(StopResponse { stopped }))
}

fn parse_inbound(chat: &OwnChat, request: PostMessageRequest) -> Result<Inbound, ApiError> {
    if request.text.trim().is_empty() {
        return Err(ApiError::bad_request("the text is empty"));
    }
    if request.text.len() > MAX_TEXT_BYTES {
        return Err(ApiError::too_large("the text is longer than 256 KiB"));
    }
    if !is_client_id(&request.id) {
        return Err(ApiError::bad_request("a message id has 1 to 64 of the characters A-Z a-z 0-9 _ -"));
    }
    // The stored row carries the id, so that the page recognises its own message.
    let source = Source { message_id: Some(request.id.clone()), ..chat.source() };
    Ok(Inbound::new(source, format!("{}:{}", chat.id, request.id), request.text))
}

#[cfg(test)]
mod tests {
    use petasos_core::Platform;

    use super::*;

    fn parse(text: &str, id: &str) -> Result<Inbound, ApiError> {
        let chat = OwnChat { platform: Platform::parse("web").unwrap(), id: "c1".into() };
        parse_inbound(&chat, PostMessageRequest { text: text.into(), id: id.into() })
    }

    #[test]
    fn repeated_post_has_same_dedup_key() {
        assert_eq!(parse("hi", "m1").unwrap().dedup, "c1:m1");
        assert_eq!(parse("hi", "m1").unwrap(), parse("hi", "m1").unwrap());
    }

    #[test]
    fn rejects_empty_oversized_and_unnamed_messages() {
        assert!(parse(" \n", "m1").is_err());
        assert!(parse("hi", "").is_err());
        assert!(parse("hi", "m:1").is_err());
        assert!(parse(&"x".repeat(MAX_TEXT_BYTES), "m1").is_ok());
        assert!(parse(&"x".repeat(MAX_TEXT_BYTES + 1), "m1").is_err());
    }
}
