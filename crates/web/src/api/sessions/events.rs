//! A run as the events of a conversation.

use axum::response::sse::Event;
use petasos_core::transcript::ToolCall;
use petasos_gateway::RunRow;
use serde_json::{Map, Value, json};

use super::super::preview;
use super::super::runs::exact;
use super::super::work::{self, STOPPED, TokenUsage, Verdict};
use super::shapes::FunctionCall;
use crate::stream::run::{Position, RunEvent};
use crate::stream::sse::{self, Encoder};

pub(super) struct SessionEncoder {
    run: String,
    session: String,
    message: String,
    said: String,
    number: u64,
    /// This turn's rows, as far as they have come.
    rows: Vec<Value>,
    /// Calls of the answer that was said last.
    calls: Vec<ToolCall>,
    text: String,
}

impl SessionEncoder {
    pub(super) fn new(run: &RunRow, said: String) -> Self {
        let message = format!("msg_{}", run.id.trim_start_matches("run_"));
        let (session, run) = (run.session.to_string(), run.id.clone());
        Self { run, session, message, said, number: 0, rows: vec![], calls: vec![], text: String::new() }
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
        all.insert("ts".into(), json!(exact(petasos_gateway::clock::now())));
        sse::named(name, &Value::Object(all))
    }

    /// The answer that asked for tools becomes a row once its first result is there.
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
    type Event = (Position, RunEvent);

    fn open(&mut self) -> Vec<Event> {
        let said = json!({ "user_message": { "role": "user", "content": self.said } });
        let begun = json!({ "message": { "id": self.message, "role": "assistant" } });
        vec![self.event("run.started", said), self.event("message.started", begun)]
    }

    fn encode(&mut self, (_, event): (Position, RunEvent)) -> Vec<Event> {
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
                    "preview": preview(&call), "args": args,
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
            // Nobody is asked here.
            RunEvent::ApprovalRequested(_) | RunEvent::ApprovalEnded(_) => vec![],
            RunEvent::Ended(end) => {
                let mut frames = Vec::new();
                match work::verdict(&end) {
                    Verdict::Answered { text, partial } => {
                        self.rows.push(json!({
                            "role": "assistant", "content": text, "finish_reason": if partial { "length" } else { "stop" },
                            "reasoning": null,
                        }));
                        let said = json!({
                            "message_id": message, "content": text, "completed": !partial, "partial": partial,
                            "interrupted": false,
                        });
                        frames.push(self.event("assistant.completed", said));
                        let done = json!({
                            "message_id": message, "completed": !partial, "messages": self.rows,
                            "usage": TokenUsage::from(end.usage),
                        });
                        frames.push(self.event("run.completed", done));
                    }
                    Verdict::Failed { message } => {
                        frames.push(self.event("error", json!({ "message": message })))
                    }
                    Verdict::Cancelled => {
                        frames.push(self.event("error", json!({ "message": STOPPED, "interrupted": true })));
                    }
                }
                frames.push(self.event("done", json!({})));
                frames
            }
        }
    }
}
