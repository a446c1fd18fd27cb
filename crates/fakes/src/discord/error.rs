//! The error response of the REST API: a status, a finer code and a sentence.

use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq)]
pub struct ServiceError {
    pub status: u16,
    /// Discord's own code; 0 is none.
    pub code: u64,
    pub message: String,
    pub errors: Value,
    /// Seconds.
    pub retry_after: Option<f64>,
    /// The rate limit covers all routes.
    pub global: bool,
}

impl ServiceError {
    pub(crate) fn new(status: u16, code: u64, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), errors: Value::Null, retry_after: None, global: false }
    }

    /// Rejects one field, in the real service's nested form.
    pub(crate) fn invalid_field(field: &str, code: &str, message: &str) -> Self {
        let errors = json!({ field: { "_errors": [{ "code": code, "message": message }] } });
        Self { errors, ..Self::new(400, 50035, "Invalid Form Body") }
    }

    pub(crate) fn rate_limited(retry_after: f64) -> Self {
        let error = Self::new(429, 0, "You are being rate limited.");
        Self { retry_after: Some(retry_after), ..error }
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, 0, "401: Unauthorized")
    }

    pub(crate) fn not_found() -> Self {
        Self::new(404, 0, "404: Not Found")
    }

    pub(crate) fn unknown_channel() -> Self {
        Self::new(404, 10003, "Unknown Channel")
    }

    pub(crate) fn unknown_message() -> Self {
        Self::new(404, 10008, "Unknown Message")
    }

    pub(crate) fn body(&self) -> Value {
        if let Some(retry_after) = self.retry_after {
            return json!({ "message": self.message, "retry_after": retry_after, "global": self.global });
        }
        let mut body = json!({ "message": self.message, "code": self.code });
        if !self.errors.is_null() {
            body["errors"] = self.errors.clone();
        }
        body
    }
}
