//! What the Web API answers: `ok: true` with fields, or `ok: false` with the name of an error.

use serde_json::{Value, json};

pub(crate) type Answer = Result<Value, Refusal>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: Value,
}

impl Refusal {
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

    pub(crate) fn error(&self) -> String {
        self.body["error"].as_str().unwrap_or_default().to_owned()
    }
}
