//! Saying something in a chat from this machine, over the control socket.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use petasos_gateway::{Handle, Job, Mirror, Post, Posted};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::ApiError;
use crate::extract::Body;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wanted {
    to: String,
    text: String,
    /// Seconds.
    wait: u64,
}

#[derive(Debug, Serialize)]
pub(crate) struct Answer {
    posted: Vec<Posted>,
}

pub(crate) async fn post(
    State(handle): State<Handle>,
    Body(wanted): Body<Wanted>,
) -> Result<Json<Answer>, ApiError> {
    if wanted.text.trim().is_empty() {
        return Err(ApiError::bad_request("text is empty"));
    }
    let post = Post {
        to: wanted.to,
        text: wanted.text,
        job: Job::default(),
        origin: None,
        mirror: Mirror::Own,
        wait: Duration::from_secs(wanted.wait),
    };
    // A client that hangs up meanwhile has asked all the same: the gateway says it in every place.
    Ok(Json(Answer { posted: handle.post(post).await }))
}
