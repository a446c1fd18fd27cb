//! Encodes a run as events that can be resumed by id.

use axum::response::sse::Event;
use petasos_approval::{ApprovalOutcome, Choice};
use petasos_core::RunId;
use petasos_gateway::{RunApproval, clock};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{ApprovalQuestion, fractional_seconds};
use crate::api::call_preview;
use crate::api::execution::{self, RunOutcome, STOPPED, TokenUsage};
use crate::api::keys::ApiClient;
use crate::stream::run::{RunEvent, StreamPosition};
use crate::stream::sse::{self, Encoder};

pub(super) struct RunEncoder {
    pub(super) run: RunId,
    pub(super) owner: ApiClient,
}

impl RunEncoder {
    fn event(&self, name: &str, fields: impl Serialize) -> Event {
        let mut data = Map::new();
        data.insert("event".into(), json!(name));
        data.insert("run_id".into(), json!(self.run));
        data.insert("timestamp".into(), json!(fractional_seconds(clock::now())));
        if let Value::Object(fields) = json!(fields) {
            data.extend(fields);
        }
        sse::data(&Value::Object(data))
    }

    fn approval_ended(&self, approval: &RunApproval) -> Event {
        let ended =
            |choice: Choice| json!({ "approval_id": approval.id, "choice": choice.as_str(), "resolved": 1 });
        let expired = |reason: &str| json!({ "approval_id": approval.id, "reason": reason });
        match &approval.ending {
            Some(ApprovalOutcome::Allowed { choice }) => self.event("approval.responded", ended(*choice)),
            Some(ApprovalOutcome::Denied { .. }) => self.event("approval.responded", ended(Choice::Deny)),
            Some(ApprovalOutcome::TimedOut) => self.event("approval.expired", expired("timeout")),
            Some(ApprovalOutcome::Lost | ApprovalOutcome::Answered { .. }) | None => {
                self.event("approval.expired", expired("lost"))
            }
        }
    }
}

impl Encoder for RunEncoder {
    type Event = (StreamPosition, RunEvent);

    fn encode(&mut self, (position, event): (StreamPosition, RunEvent)) -> Vec<Event> {
        let ended = matches!(event, RunEvent::Ended(_));
        let events = self.events(event).into_iter().map(|event| event.id(position.id()));
        events.chain(ended.then(|| Event::default().comment("stream closed"))).collect()
    }
}

impl RunEncoder {
    fn events(&self, event: RunEvent) -> Vec<Event> {
        match event {
            RunEvent::Text { text, restarted } => {
                let restarted = restarted.then(|| self.event("message.restarted", json!({})));
                let delta = self.event("message.delta", json!({ "delta": text }));
                restarted.into_iter().chain([delta]).collect()
            }
            RunEvent::TextComplete { .. } => vec![],
            RunEvent::ToolCalled { call } => {
                let data =
                    json!({ "tool": call.name, "tool_call_id": call.id, "preview": call_preview(&call) });
                vec![self.event("tool.started", data)]
            }
            RunEvent::ToolReturned { call, name, failed, took, .. } => {
                let data = json!({
                    "tool": name, "tool_call_id": call, "duration": took.as_secs_f64(), "error": failed,
                });
                vec![self.event("tool.completed", data)]
            }
            RunEvent::ApprovalRequested(approval) => {
                vec![self.event("approval.request", ApprovalQuestion::new(&approval, &self.owner))]
            }
            RunEvent::ApprovalEnded(approval) => vec![self.approval_ended(&approval)],
            RunEvent::Ended(end) => vec![match execution::run_outcome(&end) {
                RunOutcome::Answered { text, partial } => {
                    let data =
                        json!({ "output": text, "partial": partial, "usage": TokenUsage::from(end.usage) });
                    self.event("run.completed", data)
                }
                RunOutcome::Failed { message } => self.event("run.failed", json!({ "error": message })),
                RunOutcome::Cancelled => self.event("run.cancelled", json!({ "error": STOPPED })),
            }],
        }
    }
}
