//! Encodes a run as the events of a session chat.

use axum::response::sse::Event;
use petasos_core::transcript::ToolCall;
use petasos_core::{RunId, SessionId};
use petasos_gateway::RunRow;
use serde_json::{Map, Value, json};

use super::objects::FunctionCall;
use crate::api::call_preview;
use crate::api::endpoints::runs::fractional_seconds;
use crate::api::execution::{self, RunOutcome, STOPPED, TokenUsage};
use crate::stream::run::{RunEvent, StreamPosition};
use crate::stream::sse::{self, Encoder};

pub(super) struct SessionEncoder {
    run: RunId,
    session: SessionId,
    message: String,
    user_text: String,
    number: u64,
    rows: Vec<Value>,
    /// Tool calls of the last answer.
    calls: Vec<ToolCall>,
    text: String,
}

impl SessionEncoder {
    pub(super) fn new(run: &RunRow, user_text: String) -> Self {
        let message = format!("msg_{}", run.id.as_str().trim_start_matches("run_"));
        let session = run.session.clone();
        let run = run.id.clone();
        Self { run, session, message, user_text, number: 0, rows: vec![], calls: vec![], text: String::new() }
    }

    fn event(&mut self, name: &'static str, data: Value) -> Event {
        self.number += 1;
        let mut all = Map::new();
        if let Value::Object(data) = data {
            all.extend(data);
        }
        all.insert("session_id".into(), json!(self.session));
        all.insert("run_id".into(), json!(self.run));
        all.insert("seq".into(), json!(self.number));
        all.insert("ts".into(), json!(fractional_seconds(petasos_gateway::clock::now())));
        sse::named(name, &Value::Object(all))
    }

    /// Adds the row of an answer with tool calls once the first result arrives.
    fn close_calls(&mut self) {
        if self.calls.is_empty() {
            return;
        }
        let calls: Vec<_> = std::mem::take(&mut self.calls).iter().map(FunctionCall::from).collect();
        let text = std::mem::take(&mut self.text);
        self.rows.push(json!({
            "role": "assistant", "content": text, "tool_calls": calls, "finish_reason": "tool_calls",
            "reasoning": null,
        }));
    }
}

impl Encoder for SessionEncoder {
    type Event = (StreamPosition, RunEvent);

    fn open(&mut self) -> Vec<Event> {
        let user_text = json!({ "user_message": { "role": "user", "content": self.user_text } });
        let message_started = json!({ "message": { "id": self.message, "role": "assistant" } });
        vec![self.event("run.started", user_text), self.event("message.started", message_started)]
    }

    fn encode(&mut self, (_, event): (StreamPosition, RunEvent)) -> Vec<Event> {
        let message = self.message.clone();
        match event {
            RunEvent::Text { text, restarted } => {
                let data = json!({ "message_id": message, "delta": text, "restarted": restarted });
                vec![self.event("assistant.delta", data)]
            }
            RunEvent::TextComplete { text } => {
                self.text = text;
                vec![]
            }
            RunEvent::ToolCalled { call } => {
                let args: Value = serde_json::from_str(&call.arguments).unwrap_or(Value::Null);
                let data = json!({
                    "message_id": message, "tool_name": call.name, "tool_call_id": call.id,
                    "preview": call_preview(&call), "args": args,
                });
                self.calls.push(call);
                vec![self.event("tool.started", data)]
            }
            RunEvent::ToolReturned { call, name, content, .. } => {
                self.close_calls();
                self.rows.push(
                    json!({ "role": "tool", "content": content, "tool_call_id": call, "tool_name": name }),
                );
                let data = json!({
                    "message_id": message, "tool_name": name, "tool_call_id": call, "preview": null, "args": null,
                });
                vec![self.event("tool.completed", data)]
            }
            // This endpoint has no approvals.
            RunEvent::ApprovalRequested(_) | RunEvent::ApprovalEnded(_) => vec![],
            RunEvent::Ended(end) => {
                let mut frames = Vec::new();
                match execution::run_outcome(&end) {
                    RunOutcome::Answered { text, partial } => {
                        self.rows.push(json!({
                            "role": "assistant", "content": text, "finish_reason": if partial { "length" } else { "stop" },
                            "reasoning": null,
                        }));
                        let user_text = json!({
                            "message_id": message, "content": text, "completed": !partial, "partial": partial,
                            "interrupted": false,
                        });
                        frames.push(self.event("assistant.completed", user_text));
                        let done = json!({
                            "message_id": message, "completed": !partial, "messages": self.rows,
                            "usage": TokenUsage::from(end.usage),
                        });
                        frames.push(self.event("run.completed", done));
                    }
                    RunOutcome::Failed { message } => {
                        frames.push(self.event("error", json!({ "message": message })))
                    }
                    RunOutcome::Cancelled => {
                        frames.push(self.event("error", json!({ "message": STOPPED, "interrupted": true })));
                    }
                }
                frames.push(self.event("done", json!({})));
                frames
            }
        }
    }
}
