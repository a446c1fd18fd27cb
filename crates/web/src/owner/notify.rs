//! Sends a notification to a chat, over the control socket.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use petasos_gateway::{Handle, MirrorMode, Notification, NotificationResult, OutputJob};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::JsonBody;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NotificationRequest {
    to: String,
    text: String,
    /// Seconds.
    wait: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct NotificationResponse {
    posted: Vec<NotificationResult>,
}

pub(crate) async fn send(
    State(handle): State<Handle>,
    JsonBody(request): JsonBody<NotificationRequest>,
) -> Result<Json<NotificationResponse>, ApiError> {
    if request.text.trim().is_empty() {
        return Err(ApiError::bad_request("text is empty"));
    }
    let notification = Notification {
        to: request.to,
        text: request.text,
        job: OutputJob::default(),
        origin: None,
        mirror: MirrorMode::Assistant,
        wait: Duration::from_secs(request.wait),
    };
    // The notification is sent even if the client disconnects meanwhile.
    Ok(Json(NotificationResponse { posted: handle.post(notification).await }))
}
