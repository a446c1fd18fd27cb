//! The shapes of what is asked and answered, as JSON schemas.

use serde_json::{Value, json};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Object,
    List,
    Health,
    Error,
    ChatRequest,
    Completion,
    ResponseRequest,
    Response,
    RunRequest,
    RunStarted,
    Run,
    ApprovalRequest,
    SessionRequest,
    SessionChange,
    SessionFork,
    SayRequest,
    Session,
    Deleted,
    JobRequest,
    JobChange,
    FireRequest,
    Fired,
}

impl Shape {
    pub(super) const ALL: [Self; 22] = [
        Self::Object,
        Self::List,
        Self::Health,
        Self::Error,
        Self::ChatRequest,
        Self::Completion,
        Self::ResponseRequest,
        Self::Response,
        Self::RunRequest,
        Self::RunStarted,
        Self::Run,
        Self::ApprovalRequest,
        Self::SessionRequest,
        Self::SessionChange,
        Self::SessionFork,
        Self::SayRequest,
        Self::Session,
        Self::Deleted,
        Self::JobRequest,
        Self::JobChange,
        Self::FireRequest,
        Self::Fired,
    ];

    pub(super) fn name(self) -> String {
        format!("{self:?}")
    }

    pub(super) fn reference(self) -> Value {
        json!({ "$ref": format!("#/components/schemas/{}", self.name()) })
    }

    pub(super) fn schema(self) -> Value {
        match self {
            Self::Object => json!({ "type": "object" }),
            Self::List => object(
                &["object", "data"],
                json!({ "object": constant("list"), "data": list(json!({ "type": "object" })) }),
            ),
            Self::Health => object(
                &["status", "platform", "version"],
                json!({ "status": constant("ok"), "platform": text(), "version": text() }),
            ),
            // Jobs have a plain text where the others have an object.
            Self::Error => object(
                &["error"],
                json!({ "error": { "anyOf": [text(), object(&["message", "type"], json!({
                "message": text(), "type": text(), "param": maybe_text(), "code": maybe_text(),
            }))] } }),
            ),
            Self::ChatRequest => object(
                &["messages"],
                json!({
                    "model": maybe_text(), "stream": maybe_flag(),
                    "messages": { "type": "array", "minItems": 1, "items": said() },
                }),
            ),
            Self::Completion => object(
                &["id", "object", "created", "model", "choices", "usage"],
                json!({
                    "id": text(), "object": constant("chat.completion"), "created": whole(), "model": text(),
                    "choices": list(json!({ "type": "object" })), "usage": json!({ "type": "object" }),
                }),
            ),
            Self::ResponseRequest => object(
                &["input"],
                json!({
                    "input": input(), "instructions": maybe_text(), "model": maybe_text(), "stream": maybe_flag(),
                    "store": maybe_flag(), "background": maybe_flag(), "previous_response_id": maybe_text(),
                    "conversation": { "anyOf": [maybe_text(), object(&["id"], json!({ "id": text() }))] },
                    "conversation_history": { "type": ["array", "null"], "items": said() },
                }),
            ),
            Self::Response => object(
                &["id", "object", "status", "created_at", "model", "output"],
                json!({
                    "id": text(), "object": constant("response"), "created_at": whole(), "model": text(),
                    "status": { "enum": ["queued", "in_progress", "completed", "incomplete", "failed"] },
                    "output": list(json!({ "type": "object" })),
                }),
            ),
            Self::RunRequest => object(
                &["input"],
                json!({
                    "input": input(), "instructions": maybe_text(), "model": maybe_text(), "session_id": maybe_text(),
                    "previous_response_id": maybe_text(),
                    "conversation_history": { "type": ["array", "null"], "items": said() },
                }),
            ),
            Self::RunStarted => object(&["run_id", "status"], json!({ "run_id": text(), "status": text() })),
            Self::Run => object(
                &["object", "run_id", "status", "created_at", "updated_at", "session_id"],
                json!({
                    "object": constant("hermes.run"), "run_id": text(), "session_id": text(),
                    "status": { "enum": ["queued", "running", "waiting_for_approval", "stopping", "completed", "failed", "cancelled"] },
                }),
            ),
            Self::ApprovalRequest => object(
                &["choice"],
                json!({
                    "choice": { "enum": ["once", "session", "always", "deny"] }, "approval_id": maybe_text(),
                    "all": maybe_flag(), "reason": maybe_text(),
                }),
            ),
            Self::SessionRequest => object(
                &[],
                json!({
                    "id": maybe_text(), "title": maybe_text(), "model": maybe_text(), "system_prompt": maybe_text(),
                }),
            ),
            Self::SessionChange => {
                let fields = json!({ "title": maybe_text(), "end_reason": maybe_text() });
                json!({ "type": "object", "additionalProperties": false, "properties": fields })
            }
            Self::SessionFork => object(&[], json!({ "id": maybe_text(), "title": maybe_text() })),
            Self::SayRequest => object(
                &["message"],
                json!({
                    "message": { "anyOf": [text(), list(part())] }, "system_message": maybe_text(), "instructions": maybe_text(),
                }),
            ),
            Self::Session => object(
                &["object", "session"],
                json!({
                    "object": constant("hermes.session"), "session": object(&["id", "source", "message_count"], json!({ "id": text() })),
                }),
            ),
            Self::Deleted => {
                object(&["id", "deleted"], json!({ "id": text(), "deleted": { "const": true } }))
            }
            Self::JobRequest => object(
                &["name", "schedule"],
                json!({
                    "name": { "type": "string", "minLength": 1, "maxLength": 200 }, "schedule": text(), "prompt": maybe_text(),
                    "deliver": maybe_text(), "repeat": { "type": ["integer", "null"], "minimum": 1 },
                }),
            ),
            Self::FireRequest => object(&["job_id"], json!({ "job_id": text() })),
            Self::Fired => {
                object(&["status", "job_id"], json!({ "status": constant("accepted"), "job_id": text() }))
            }
            Self::JobChange => object(
                &[],
                json!({
                    "name": maybe_text(), "schedule": maybe_text(), "prompt": maybe_text(), "deliver": maybe_text(),
                    "repeat": { "type": ["integer", "null"], "minimum": 1 }, "enabled": { "type": ["boolean", "null"] },
                }),
            ),
        }
    }
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

fn list(items: Value) -> Value {
    json!({ "type": "array", "items": items })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn whole() -> Value {
    json!({ "type": "integer" })
}

fn maybe_text() -> Value {
    json!({ "type": ["string", "null"] })
}

fn maybe_flag() -> Value {
    json!({ "type": ["boolean", "null"] })
}

fn constant(value: &str) -> Value {
    json!({ "const": value })
}

fn said() -> Value {
    object(
        &["role", "content"],
        json!({
            "role": { "enum": ["system", "developer", "user", "assistant"] },
            "content": { "anyOf": [text(), list(part())] },
        }),
    )
}

fn input() -> Value {
    json!({ "anyOf": [{ "type": "string", "minLength": 1 }, { "type": "array", "minItems": 1, "items": said() }] })
}

fn part() -> Value {
    let words = object(
        &["type", "text"],
        json!({ "type": { "enum": ["text", "input_text", "output_text"] }, "text": text() }),
    );
    let picture = object(
        &["type", "image_url"],
        json!({
            "type": { "const": "image_url" },
            "image_url": object(&["url"], json!({ "url": { "type": "string", "pattern": "^data:image/" } })),
        }),
    );
    json!({ "anyOf": [words, picture] })
}
