//! Parses bytes as the bodies of requests.

use serde::de::DeserializeOwned;

use super::endpoints::{chat_completions, responses, runs, sessions};

fn reads<T: DeserializeOwned>(bytes: &[u8]) -> bool {
    serde_json::from_slice::<T>(bytes).is_ok()
}

/// Whether any route accepts them.
pub fn api_body(bytes: &[u8]) -> bool {
    let read = [
        reads::<chat_completions::ChatCompletionRequest>(bytes),
        reads::<responses::ResponseRequest>(bytes),
        reads::<runs::RunRequest>(bytes),
        reads::<sessions::NewSessionRequest>(bytes),
        reads::<crate::jobs::JobRequest>(bytes),
        reads::<crate::chat::write::PostMessageRequest>(bytes),
    ];
    read.contains(&true)
}
