//! Responses: an answer with everything that led to it, which can be fetched again and gone on from.

use axum::Json;
use axum::extract::{Request, State};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use petasos_core::ids::RowId;
use petasos_core::transcript::{Role, ToolCall};
use petasos_gateway::{Place, RunEnd, RunRow, Said, fresh_id};
use serde_json::{Value, json};

use super::asked::{Fields, Wanted, fields, flag, short_hash, text};
use super::keys::Owner;
use super::runs::{Input, cut, input, no_previous, told_history};
use super::work::{self, Job, STOPPED, TRUNCATED, Verdict, names, seconds, usage};
use super::{Api, Id};
use crate::error::ApiError;
use crate::serve::Stop;
use crate::stream::run::{Position, RunEvent};
use crate::stream::sse::{self, Encoder};

/// Rows that one response shows; a run has fewer steps than that.
const ROWS: usize = 1000;

pub(super) async fn create(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    request: Request,
) -> Result<Response, ApiError> {
    let mut wanted = Wanted::read(request.headers())?;
    let fields = fields(request).await?;
    let (streamed, background) = (flag(&fields, "stream", false)?, flag(&fields, "background", false)?);
    let previous = text(&fields, "previous_response_id")?;
    let place = place(&fields, &owner, previous.as_deref())?;
    let Input { asked, mut history, system } = input(&fields)?;
    if let Some(told) = told_history(&fields)? {
        history.splice(0..0, told);
    }
    wanted.detached |= background;
    let job = Job {
        id: fresh_id::<14>("resp_"),
        route: "responses",
        place,
        content: asked,
        instructions: text(&fields, "instructions")?.or(system),
        history,
        answers: false,
        forget: !flag(&fields, "store", true)?,
        wanted: &wanted,
        fields: &fields,
    };
    let previous = previous.unwrap_or_default();
    let started = api.start(&owner, job).await.map_err(|error| error.or(|| no_previous(&previous)))?;
    if streamed {
        let encoder = ResponseEvents::new(&started.run);
        return api.stream(started, &wanted, stop, encoder).await;
    }
    if background {
        let headers = names(&started.run, &wanted);
        return Ok((headers, Json(api.response(&started.run).await?)).into_response());
    }
    let run = api.finish(&started, &wanted, &stop).await?;
    whole(&api, &run, &wanted).await
}

async fn whole(api: &Api, run: &RunRow, wanted: &Wanted) -> Result<Response, ApiError> {
    let end = run.end.as_ref().ok_or_else(|| ApiError::agent("agent_error", STOPPED))?;
    let mut headers = names(run, wanted);
    match work::verdict(end) {
        Verdict::Answered { partial, .. } => {
            if partial {
                work::incomplete(&mut headers, true, TRUNCATED);
            }
            Ok((headers, Json(api.response(run).await?)).into_response())
        }
        Verdict::Failed { message } => {
            work::incomplete(&mut headers, false, &message);
            Ok((headers, ApiError::agent("agent_error", message)).into_response())
        }
        Verdict::Cancelled => Ok((headers, ApiError::agent("agent_incomplete", STOPPED)).into_response()),
    }
}

pub(super) async fn show(State(api): State<Api>, owner: Owner, Id(id): Id) -> Result<Json<Value>, ApiError> {
    let run = api.kept(&owner, &id).await?;
    Ok(Json(api.response(&run).await?))
}

pub(super) async fn delete(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
) -> Result<Json<Value>, ApiError> {
    let run = api.kept(&owner, &id).await?;
    if !api.handle.hide_run(&run.id).await? {
        return Err(not_found(&id));
    }
    Ok(Json(json!({ "id": id, "object": "response", "deleted": true })))
}

pub(super) async fn cancel(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
) -> Result<Json<Value>, ApiError> {
    let run = api.kept(&owner, &id).await?;
    api.handle.stop_run(&run).await?;
    let run = api.handle.run_ended(&id).await?.ok_or_else(|| not_found(&id))?;
    Ok(Json(api.response(&run).await?))
}

fn place(fields: &Fields, owner: &Owner, previous: Option<&str>) -> Result<Place, ApiError> {
    let conversation = match fields.get("conversation") {
        None | Some(Value::Null) => None,
        Some(Value::String(name)) => Some(name.clone()).filter(|name| !name.is_empty()),
        Some(object) => match object.get("id").and_then(Value::as_str) {
            Some(id) => Some(id.to_owned()),
            None => {
                return Err(ApiError::bad_request("'conversation' must be a string or have an id")
                    .param("conversation"));
            }
        },
    };
    let fresh = || Place::Session(fresh_id::<8>("api-"));
    Ok(match (conversation, previous) {
        (Some(_), Some(_)) => {
            return Err(ApiError::bad_request("Cannot use both 'conversation' and 'previous_response_id'"));
        }
        _ if fields.get("conversation_history").is_some_and(Value::is_array) => fresh(),
        (Some(name), None) => Place::Named(format!("conv-{}", short_hash(&[&owner.name, &name]))),
        (None, Some(previous)) => Place::After(previous.to_owned()),
        (None, None) => fresh(),
    })
}

fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("Response not found: {}", cut(id)))
}

impl Api {
    /// A response of this owner's that is to be kept.
    async fn kept(&self, owner: &Owner, id: &str) -> Result<RunRow, ApiError> {
        let run = self.handle.run(id).await?.filter(|run| id.starts_with("resp_") && !run.hidden);
        run.filter(|run| run.owner == owner.name).ok_or_else(|| not_found(id))
    }

    /// As it stands now.
    async fn response(&self, run: &RunRow) -> Result<Value, ApiError> {
        let read = self.handle.run_rows(&run.id, RowId(0), ROWS).await?;
        let Some((run, rows, _)) = read else { return Err(not_found(&run.id)) };
        let question = |row: &Said| row.message.platform_message_id.as_ref() == Some(&run.id);
        let begin = rows.iter().position(question).map_or(rows.len(), |at| at + 1);
        let mut output = Vec::new();
        for row in &rows[begin..] {
            self::output(&run, row, &mut output);
        }
        Ok(envelope(&run, run.end.as_ref(), output))
    }
}

fn output(run: &RunRow, row: &Said, output: &mut Vec<Value>) {
    match row.message.role {
        Role::Assistant => {
            let text = match run.end.as_ref().and_then(|end| end.said.as_deref()) {
                // With the pictures that it names.
                Some(said) if run.last_row == Some(row.id) => said,
                Some(_) | None => row.message.content.as_str(),
            };
            let text = unstopped(run, text);
            if !text.trim().is_empty() {
                output.push(message(&item_id(&run.id, output.len()), text));
            }
            output.extend(row.message.tool_calls.iter().map(|call| called(call, "completed")));
        }
        Role::Tool => {
            let call = row.message.tool_call_id.as_deref().unwrap_or_default();
            output.push(returned(call, &row.message.content));
        }
        Role::User | Role::Notice | Role::Summary => {}
    }
}

/// What a run said before it was stopped, without the remark that it was.
fn unstopped<'a>(run: &RunRow, text: &'a str) -> &'a str {
    let stopped = run.end.as_ref().is_some_and(|end| work::verdict(end) == Verdict::Cancelled);
    match stopped {
        true if text == "(stopped before an answer)" => "",
        true => text.strip_suffix("\n\n(stopped)").unwrap_or(text),
        false => text,
    }
}

fn item_id(run: &str, at: usize) -> String {
    format!("msg_{}{at:02x}", run.trim_start_matches("resp_"))
}

fn message(id: &str, text: &str) -> Value {
    json!({
        "id": id, "type": "message", "status": "completed", "role": "assistant",
        "content": [{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }],
    })
}

fn called(call: &ToolCall, status: &str) -> Value {
    json!({
        "id": format!("fc_{}", call.id), "type": "function_call", "status": status, "name": call.name,
        "arguments": call.arguments, "call_id": call.id,
    })
}

fn returned(call: &str, content: &str) -> Value {
    json!({
        "id": format!("fco_{call}"), "type": "function_call_output", "status": "completed", "call_id": call,
        "output": content,
    })
}

fn envelope(run: &RunRow, end: Option<&RunEnd>, output: Vec<Value>) -> Value {
    let wish = work::wish(run);
    let mut body = json!({
        "id": run.id, "object": "response", "created_at": seconds(run.created_at), "model": wish.shown_model,
        "output": output, "error": null, "incomplete_details": null, "instructions": wish.instructions,
        "metadata": {}, "parallel_tool_calls": true, "tools": [], "tool_choice": "auto", "temperature": null,
        "top_p": null, "usage": null, "session_id": run.session,
    });
    let Some(end) = end else {
        body["status"] = json!(if run.claimed_at.is_some() { "in_progress" } else { "queued" });
        return body;
    };
    body["usage"] = usage(end.usage);
    body["usage"]["input_tokens_details"] = json!({ "cached_tokens": end.usage.cache_read });
    body["usage"]["output_tokens_details"] = json!({ "reasoning_tokens": 0 });
    let status = match work::verdict(end) {
        Verdict::Answered { partial: false, .. } => "completed",
        Verdict::Answered { partial: true, .. } => {
            body["incomplete_details"] = json!({ "reason": "max_output_tokens" });
            "incomplete"
        }
        Verdict::Failed { message } => {
            body["error"] = json!({ "code": "server_error", "message": message });
            "failed"
        }
        Verdict::Cancelled => {
            body["incomplete_details"] = json!({ "reason": "interrupted" });
            "incomplete"
        }
    };
    body["status"] = json!(status);
    body
}

/// A run as the events of a response.
struct ResponseEvents {
    run: RunRow,
    number: u64,
    output: Vec<Value>,
    /// The message that is being said, and its text so far.
    open: Option<(String, String)>,
}

impl ResponseEvents {
    fn new(run: &RunRow) -> Self {
        Self { run: run.clone(), number: 0, output: vec![], open: None }
    }

    fn event(&mut self, kind: &'static str, mut data: Value) -> Event {
        data["type"] = json!(kind);
        data["sequence_number"] = json!(self.number);
        self.number += 1;
        sse::named(kind, &data)
    }

    /// An item that is there at once.
    fn item(&mut self, begun: Value, done: Value) -> Vec<Event> {
        let at = self.output.len();
        self.output.push(done.clone());
        vec![
            self.event("response.output_item.added", json!({ "output_index": at, "item": begun })),
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
            let part = json!({ "type": "output_text", "text": "", "annotations": [], "logprobs": [] });
            let data = json!({ "item_id": id, "output_index": at, "content_index": 0, "part": part });
            frames.push(self.event("response.content_part.added", data));
            self.open = Some((id, String::new()));
        }
        let Some((id, said)) = &mut self.open else { return frames };
        if restarted {
            said.clear();
        }
        said.push_str(&text);
        let data =
            json!({ "item_id": id, "output_index": at, "content_index": 0, "delta": text, "logprobs": [] });
        frames.push(self.event("response.output_text.delta", data));
        frames
    }

    fn close(&mut self, text: Option<String>) -> Vec<Event> {
        let Some((id, said)) = self.open.take() else { return vec![] };
        let (text, at) = (text.unwrap_or(said), self.output.len());
        let item = message(&id, &text);
        let place = json!({ "item_id": id, "output_index": at, "content_index": 0 });
        let (mut done, mut part) = (place.clone(), place);
        done["text"] = json!(text);
        done["logprobs"] = json!([]);
        part["part"] = item["content"][0].clone();
        self.output.push(item.clone());
        vec![
            self.event("response.output_text.done", done),
            self.event("response.content_part.done", part),
            self.event("response.output_item.done", json!({ "output_index": at, "item": item })),
        ]
    }

    fn snapshot(&self, end: Option<&RunEnd>) -> Value {
        let mut body = envelope(&self.run, end, self.output.clone());
        if end.is_none() {
            body["status"] = json!("in_progress");
        }
        json!({ "response": body })
    }
}

impl Encoder for ResponseEvents {
    type Event = (Position, RunEvent);

    fn open(&mut self) -> Vec<Event> {
        let data = self.snapshot(None);
        vec![self.event("response.created", data.clone()), self.event("response.in_progress", data)]
    }

    fn encode(&mut self, (_, event): (Position, RunEvent)) -> Vec<Event> {
        match event {
            RunEvent::Text { text, restarted } => self.delta(text, restarted),
            RunEvent::TextComplete { text } => self.close(Some(text)),
            RunEvent::ToolCalled { call } => {
                self.item(called(&call, "in_progress"), called(&call, "completed"))
            }
            RunEvent::ToolReturned { call, content, .. } => {
                let item = returned(&call, &content);
                self.item(item.clone(), item)
            }
            // Nobody is asked here.
            RunEvent::ApprovalRequested(_) | RunEvent::ApprovalEnded(_) => vec![],
            RunEvent::Ended(end) => {
                let mut frames = self.close(None);
                let kind = match work::verdict(&end) {
                    Verdict::Answered { partial: false, .. } => "response.completed",
                    Verdict::Answered { partial: true, .. } | Verdict::Cancelled => "response.incomplete",
                    Verdict::Failed { .. } => "response.failed",
                };
                let data = self.snapshot(Some(&end));
                frames.push(self.event(kind, data));
                frames
            }
        }
    }
}
