//! The error response of the Bot API: a code and an English sentence.

use serde_json::{Value, json};

pub(crate) type MethodResult = Result<Value, ServiceError>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceError {
    pub code: u16,
    pub description: String,
    pub retry_after: Option<u64>,
}

impl ServiceError {
    /// A 400 in the words of the real service.
    pub(crate) fn bad_request(why: impl std::fmt::Display) -> Self {
        Self { code: 400, description: format!("Bad Request: {why}"), retry_after: None }
    }

    pub(crate) fn conflict() -> Self {
        let description = "Conflict: terminated by other getUpdates request; \
                           make sure that only one bot instance is running";
        Self { code: 409, description: description.into(), retry_after: None }
    }

    pub(crate) fn webhook_active() -> Self {
        let description = "Conflict: can't use getUpdates method while webhook is active; \
                           use deleteWebhook to delete the webhook first";
        Self { code: 409, description: description.into(), retry_after: None }
    }

    pub(crate) fn not_found() -> Self {
        Self { code: 404, description: "Not Found".into(), retry_after: None }
    }

    pub(crate) fn unauthorized() -> Self {
        Self { code: 401, description: "Unauthorized".into(), retry_after: None }
    }

    pub(crate) fn body(&self) -> Value {
        let mut body = json!({"ok": false, "error_code": self.code, "description": self.description});
        if let Some(seconds) = self.retry_after {
            body["parameters"] = json!({"retry_after": seconds});
        }
        body
    }
}
