//! The error response of the Web API: `ok: false` with the name of an error.

use serde_json::{Value, json};

pub(crate) type MethodResult = Result<Value, ServiceError>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceError {
    pub status: u16,
    pub retry_after: Option<u64>,
    pub body: Value,
}

impl ServiceError {
    pub(crate) fn new(error: &str) -> Self {
        Self::body(json!({ "ok": false, "error": error }))
    }

    pub(crate) fn body(body: Value) -> Self {
        Self { status: 200, retry_after: None, body }
    }

    pub(crate) fn too_many(seconds: u64) -> Self {
        let body = json!({ "ok": false, "error": "ratelimited" });
        Self { status: 429, retry_after: Some(seconds), body }
    }

    /// The name of the error, or nothing if the response is not JSON.
    #[must_use]
    pub fn name(&self) -> &str {
        self.body["error"].as_str().unwrap_or_default()
    }
}
