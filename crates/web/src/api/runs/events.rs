//! A run as events, each with its own id.

use axum::response::sse::Event;
use petasos_approval::{Choice, Ending};
use petasos_gateway::{Approval, clock};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::keys::Owner;
use super::super::preview;
use super::super::work::{self, STOPPED, TokenUsage, Verdict};
use super::{ApprovalQuestion, exact};
use crate::stream::run::{Position, RunEvent};
use crate::stream::sse::{self, Encoder};

pub(super) struct RunEncoder {
    pub(super) run: String,
    pub(super) owner: Owner,
}

impl RunEncoder {
    fn event(&self, name: &str, more: impl Serialize) -> Event {
        let mut data = Map::new();
        data.insert("event".into(), json!(name));
        data.insert("run_id".into(), json!(self.run));
        data.insert("timestamp".into(), json!(exact(clock::now())));
        if let Value::Object(more) = json!(more) {
            data.extend(more);
        }
        sse::data(&Value::Object(data))
    }

    fn answered(&self, asked: &Approval) -> Event {
        let ended =
            |choice: Choice| json!({ "approval_id": asked.id, "choice": choice.as_str(), "resolved": 1 });
        let over = |reason: &str| json!({ "approval_id": asked.id, "reason": reason });
        match &asked.ending {
            Some(Ending::Allowed { choice }) => self.event("approval.responded", ended(*choice)),
            Some(Ending::Denied { .. }) => self.event("approval.responded", ended(Choice::Deny)),
            Some(Ending::TimedOut) => self.event("approval.expired", over("timeout")),
            Some(Ending::Lost | Ending::Said { .. }) | None => self.event("approval.expired", over("lost")),
        }
    }
}

impl Encoder for RunEncoder {
    type Event = (Position, RunEvent);

    fn encode(&mut self, (position, event): (Position, RunEvent)) -> Vec<Event> {
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
                let more = json!({ "tool": call.name, "tool_call_id": call.id, "preview": preview(&call) });
                vec![self.event("tool.started", more)]
            }
            RunEvent::ToolReturned { call, name, failed, took, .. } => {
                let more = json!({
                    "tool": name, "tool_call_id": call, "duration": took.as_secs_f64(), "error": failed,
                });
                vec![self.event("tool.completed", more)]
            }
            RunEvent::ApprovalRequested(asked) => {
                vec![self.event("approval.request", ApprovalQuestion::new(&asked, &self.owner))]
            }
            RunEvent::ApprovalEnded(asked) => vec![self.answered(&asked)],
            RunEvent::Ended(end) => vec![match work::verdict(&end) {
                Verdict::Answered { text, partial } => {
                    let more =
                        json!({ "output": text, "partial": partial, "usage": TokenUsage::from(end.usage) });
                    self.event("run.completed", more)
                }
                Verdict::Failed { message } => self.event("run.failed", json!({ "error": message })),
                Verdict::Cancelled => self.event("run.cancelled", json!({ "error": STOPPED })),
            }],
        }
    }
}
