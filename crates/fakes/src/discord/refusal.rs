//! What the REST API answers: a result, or a refusal with a status, a code of its own and a sentence.

use serde_json::{Value, json};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    /// Discord's own number, finer than the status; 0 is none.
    pub(crate) code: u64,
    pub(crate) message: String,
    pub(crate) errors: Value,
    /// Seconds.
    pub(crate) retry_after: Option<f64>,
    /// The limit is for all routes together.
    pub(crate) global: bool,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: u64, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), errors: Value::Null, retry_after: None, global: false }
    }

    /// A field that does not hold, in the real service's nested form.
    pub(crate) fn form(field: &str, code: &str, message: &str) -> Self {
        let errors = json!({ field: { "_errors": [{ "code": code, "message": message }] } });
        Self { errors, ..Self::new(400, 50035, "Invalid Form Body") }
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
