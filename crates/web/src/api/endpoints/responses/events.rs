//! Encodes a run as the events of a response.

use axum::response::sse::Event;
use petasos_gateway::{RunEnd, RunRow};
use serde_json::{Value, json};

use super::{OutputItem, OutputText, ResponseObject, ResponseStatus, item_id};
use crate::api::execution::{self, RunOutcome};
use crate::stream::run::{RunEvent, StreamPosition};
use crate::stream::sse::{self, Encoder};

pub(super) struct ResponseEncoder {
    run: RunRow,
    number: u64,
    output: Vec<OutputItem>,
    /// Id and text of the message in progress.
    open: Option<(String, String)>,
}

impl ResponseEncoder {
    pub(super) fn new(run: &RunRow) -> Self {
        Self { run: run.clone(), number: 0, output: vec![], open: None }
    }

    fn event(&mut self, kind: &'static str, mut data: Value) -> Event {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.number);
        self.number += 1;
        sse::named(kind, &data)
    }

    /// An item without deltas.
    fn item(&mut self, added: OutputItem, done: OutputItem) -> Vec<Event> {
        let at = self.output.len();
        self.output.push(done.clone());
        vec![
            self.event("response.output_item.added", json!({ "output_index": at, "item": added })),
            self.event("response.output_item.done", json!({ "output_index": at, "item": done })),
        ]
    }

    fn delta(&mut self, text: String, restarted: bool) -> Vec<Event> {
        let mut frames = Vec::new();
        let at = self.output.len();
        if self.open.is_none() {
            let id = item_id(&self.run.id, at);
            let item = json!({ "id": id, "type": "message", "status": "in_progress", "role": "assistant", "content": [] });
            frames
                .push(self.event("response.output_item.added", json!({ "output_index": at, "item": item })));
            let data =
                json!({ "item_id": id, "output_index": at, "content_index": 0, "part": OutputText::new("") });
            frames.push(self.event("response.content_part.added", data));
            self.open = Some((id, String::new()));
        }
        let Some((id, text_so_far)) = &mut self.open else { return frames };
        if restarted {
            text_so_far.clear();
        }
        text_so_far.push_str(&text);
        let data =
            json!({ "item_id": id, "output_index": at, "content_index": 0, "delta": text, "logprobs": [] });
        frames.push(self.event("response.output_text.delta", data));
        frames
    }

    fn close(&mut self, text: Option<String>) -> Vec<Event> {
        let Some((id, text_so_far)) = self.open.take() else { return vec![] };
        let text = text.unwrap_or(text_so_far);
        let at = self.output.len();
        let item = OutputItem::message(id.clone(), &text);
        let mut done = json!({ "item_id": id, "output_index": at, "content_index": 0 });
        let mut part = done.clone();
        done["text"] = json!(text);
        done["logprobs"] = json!([]);
        part["part"] = json!(OutputText::new(&text));
        self.output.push(item.clone());
        vec![
            self.event("response.output_text.done", done),
            self.event("response.content_part.done", part),
            self.event("response.output_item.done", json!({ "output_index": at, "item": item })),
        ]
    }

    fn snapshot(&self, end: Option<&RunEnd>) -> Value {
        let mut response = ResponseObject::new(&self.run, end, self.output.clone());
        if end.is_none() {
            response.status = ResponseStatus::InProgress;
        }
        json!({ "response": response })
    }
}

impl Encoder for ResponseEncoder {
    type Event = (StreamPosition, RunEvent);

    fn open(&mut self) -> Vec<Event> {
        let data = self.snapshot(None);
        vec![self.event("response.created", data.clone()), self.event("response.in_progress", data)]
    }

    fn encode(&mut self, (_, event): (StreamPosition, RunEvent)) -> Vec<Event> {
        match event {
            RunEvent::Text { text, restarted } => self.delta(text, restarted),
            RunEvent::TextComplete { text } => self.close(Some(text)),
            RunEvent::ToolCalled { call } => self.item(
                OutputItem::called(&call, ResponseStatus::InProgress),
                OutputItem::called(&call, ResponseStatus::Completed),
            ),
            RunEvent::ToolReturned { call, content, .. } => {
                let item = OutputItem::returned(&call, &content);
                self.item(item.clone(), item)
            }
            // This endpoint has no approvals.
            RunEvent::ApprovalRequested(_) | RunEvent::ApprovalEnded(_) => vec![],
            RunEvent::Ended(end) => {
                let mut frames = self.close(None);
                let kind = match execution::run_outcome(&end) {
                    RunOutcome::Answered { partial: false, .. } => "response.completed",
                    RunOutcome::Answered { partial: true, .. } | RunOutcome::Cancelled => {
                        "response.incomplete"
                    }
                    RunOutcome::Failed { .. } => "response.failed",
                };
                let data = self.snapshot(Some(&end));
                frames.push(self.event(kind, data));
                frames
            }
        }
    }
}
