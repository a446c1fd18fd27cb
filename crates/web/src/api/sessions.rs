//! Conversations by name: listed, made, read, renamed, branched, removed, and talked in.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use petasos_core::ids::RowId;
use petasos_core::transcript::{Message, Role, ToolCall};
use petasos_gateway::{
    CardQuery, NewSession, NotChanged, Place, RowState, RunRow, Said, SessionCard, Started, fresh_id,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::asked::{Content, Fields, Wanted, content, fields, is_session_id, text};
use super::keys::Owner;
use super::runs::{cut, exact};
use super::work::{self, Job, STOPPED, TRUNCATED, Verdict, names, usage};
use super::{Api, Id, Query, preview};
use crate::error::ApiError;
use crate::serve::Stop;
use crate::stream::run::{Position, RunEvent};
use crate::stream::sse::{self, Encoder};

const PAGE: usize = 50;
const LONGEST_PAGE: usize = 200;
const TITLE: usize = 200;
const PROMPT: usize = 65_536;
/// Rows of one transcript that are shown at once; `after` gets the next.
const ROWS: usize = 1000;

type Answer = Result<Json<Value>, ApiError>;

#[derive(Debug, Deserialize)]
pub(super) struct Wants {
    limit: Option<String>,
    offset: Option<String>,
    source: Option<String>,
    include_children: Option<String>,
    after: Option<String>,
}

pub(super) async fn list(State(api): State<Api>, Query(wants): Query<Wants>) -> Answer {
    let limit = number(wants.limit.as_deref(), "limit")?.unwrap_or(PAGE).clamp(1, LONGEST_PAGE);
    let offset = number(wants.offset.as_deref(), "offset")?.unwrap_or(0);
    let children =
        wants.include_children.is_some_and(|word| matches!(word.as_str(), "1" | "true" | "on" | "yes"));
    let platform = wants.source.filter(|source| !source.is_empty());
    // One more than wanted says whether there are more.
    let mut cards =
        api.handle.session_cards(CardQuery { platform, children, limit: limit + 1, offset }).await?;
    let more = cards.len() > limit;
    cards.truncate(limit);
    let data: Vec<_> = cards.iter().map(listed).collect();
    Ok(Json(json!({ "object": "list", "data": data, "limit": limit, "offset": offset, "has_more": more })))
}

pub(super) async fn create(
    State(api): State<Api>,
    owner: Owner,
    request: Request,
) -> Result<Response, ApiError> {
    let fields = fields(request).await?;
    let new = NewSession {
        id: id_of(&fields)?,
        title: title_of(&fields)?,
        model: text(&fields, "model")?,
        system_prompt: match fields.get("system_prompt") {
            None | Some(Value::Null) => None,
            Some(Value::String(words)) if words.chars().count() <= PROMPT => Some(words.clone()),
            Some(_) => {
                return Err(ApiError::invalid("invalid_system_prompt", "Invalid system prompt")
                    .param("system_prompt"));
            }
        },
    };
    let named = new.id.clone().unwrap_or_default();
    let card = api.handle.create_session(&owner.name, new).await.map_err(|error| refused(error, &named))?;
    Ok((StatusCode::CREATED, Json(wrapped(&card))).into_response())
}

pub(super) async fn show(State(api): State<Api>, Id(id): Id) -> Answer {
    Ok(Json(wrapped(&api.card(&id).await?)))
}

pub(super) async fn change(State(api): State<Api>, Id(id): Id, request: Request) -> Answer {
    let fields = fields(request).await?;
    let unknown: Vec<_> = fields
        .keys()
        .filter(|name| !["title", "end_reason"].contains(&name.as_str()))
        .map(|it| cut(it))
        .collect();
    if !unknown.is_empty() {
        let message = format!("Unsupported session fields: {}", unknown.join(", "));
        return Err(ApiError::invalid("unsupported_session_field", message));
    }
    let (title, reason) = (title_of(&fields)?, text(&fields, "end_reason")?);
    api.card(&id).await?;
    if let Some(title) = title {
        api.handle.rename_session(&id, title).await?;
    }
    if let Some(reason) = reason {
        api.handle.end_session(&id, cut(&reason)).await?;
    }
    Ok(Json(wrapped(&api.card(&id).await?)))
}

pub(super) async fn delete(State(api): State<Api>, Id(id): Id) -> Answer {
    api.handle.delete_session(&id).await.map_err(|error| refused(error, &id))?;
    Ok(Json(json!({ "object": "hermes.session.deleted", "id": id, "deleted": true })))
}

pub(super) async fn fork(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
    request: Request,
) -> Result<Response, ApiError> {
    let fields = fields(request).await?;
    let (new, title) = (id_of(&fields)?, title_of(&fields)?);
    let named = new.clone().unwrap_or_default();
    let forked = api.handle.fork_session(&owner.name, &id, new, title).await;
    let card = forked.map_err(|error| match error {
        NotChanged::Missing => refused(error, &id),
        NotChanged::Error(_) | NotChanged::Exists | NotChanged::InUse => refused(error, &named),
    })?;
    Ok((StatusCode::CREATED, Json(wrapped(&card))).into_response())
}

pub(super) async fn messages(State(api): State<Api>, Id(id): Id, Query(wants): Query<Wants>) -> Answer {
    let card = api.card(&id).await?;
    let after = number(wants.after.as_deref(), "after")?.unwrap_or(0);
    let limit = number(wants.limit.as_deref(), "limit")?.unwrap_or(ROWS).clamp(1, ROWS);
    let after = RowId(i64::try_from(after).unwrap_or(i64::MAX));
    let rows = api.handle.rows(&card.row.id, after, limit).await?;
    let more = rows.len() == limit;
    let seen = |row: &&Said| row.state != RowState::Undone;
    let data: Vec<_> = rows.iter().filter(seen).filter_map(|row| shown(&id, row)).collect();
    Ok(Json(json!({ "object": "list", "session_id": id, "data": data, "has_more": more })))
}

pub(super) async fn chat(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    Id(id): Id,
    request: Request,
) -> Result<Response, ApiError> {
    let (started, wanted, _) = say(&api, &owner, "session.chat", &id, request).await?;
    let run = api.finish(&started, &wanted, &stop).await?;
    let end = run.end.as_ref().ok_or_else(|| ApiError::agent("agent_error", STOPPED))?;
    let mut headers = names(&run, &wanted);
    let text = match work::verdict(end) {
        Verdict::Answered { text, partial } => {
            if partial {
                work::incomplete(&mut headers, true, TRUNCATED);
            }
            text
        }
        Verdict::Failed { message } => {
            work::incomplete(&mut headers, false, &message);
            return Ok((headers, ApiError::agent("agent_error", message)).into_response());
        }
        Verdict::Cancelled => return Err(ApiError::agent("agent_incomplete", STOPPED)),
    };
    let body = json!({
        "object": "hermes.session.chat.completion", "session_id": run.session,
        "message": { "role": "assistant", "content": text }, "usage": usage(end.usage),
    });
    Ok((headers, Json(body)).into_response())
}

pub(super) async fn chat_stream(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    Id(id): Id,
    request: Request,
) -> Result<Response, ApiError> {
    let (started, wanted, said) = say(&api, &owner, "session.chat.stream", &id, request).await?;
    let encoder = SessionEvents::new(&started.run, said);
    api.stream(started, &wanted, stop, encoder).await
}

async fn say(
    api: &Api,
    owner: &Owner,
    route: &'static str,
    id: &str,
    request: Request,
) -> Result<(Started, Wanted, String), ApiError> {
    let wanted = Wanted::read(request.headers())?;
    let fields = fields(request).await?;
    let missing = || ApiError::invalid("missing_message", "Missing 'message' field");
    let (name, value) = match (fields.get("message"), fields.get("input")) {
        (Some(value), _) if !value.is_null() => ("message", value),
        (_, Some(value)) => ("input", value),
        _ => return Err(missing()),
    };
    let content: Content = content(value, name)?;
    if content.is_empty() {
        return Err(missing());
    }
    let said = content.text.clone();
    let instructions = match text(&fields, "system_message")? {
        Some(words) => Some(words),
        None => text(&fields, "instructions")?,
    };
    let job = Job {
        id: fresh_id::<16>("run_"),
        route,
        place: Place::Known(id.to_owned()),
        content,
        instructions,
        history: vec![],
        answers: false,
        forget: false,
        wanted: &wanted,
        fields: &fields,
    };
    let started = api.start(owner, job).await.map_err(|error| error.or(|| not_found(id)))?;
    Ok((started, wanted, said))
}

impl Api {
    async fn card(&self, id: &str) -> Result<SessionCard, ApiError> {
        self.handle.session_card(id).await?.ok_or_else(|| not_found(id))
    }
}

fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("Session not found: {}", cut(id))).code("session_not_found")
}

fn refused(error: NotChanged, id: &str) -> ApiError {
    match error {
        NotChanged::Error(error) => error.into(),
        NotChanged::Exists => {
            ApiError::conflict("session_exists", format!("Session already exists: {}", cut(id)))
        }
        NotChanged::Missing => not_found(id),
        NotChanged::InUse => ApiError::conflict("session_in_use", format!("Session is in use: {}", cut(id))),
    }
}

fn id_of(fields: &Fields) -> Result<Option<String>, ApiError> {
    let wrong = || ApiError::invalid("invalid_session_id", "Invalid session ID").param("id");
    match fields.get("id") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(id)) if is_session_id(id) => Ok(Some(id.clone())),
        Some(_) => Err(wrong()),
    }
}

fn title_of(fields: &Fields) -> Result<Option<String>, ApiError> {
    match fields.get("title") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(title)) if (1..=TITLE).contains(&title.trim().chars().count()) => {
            Ok(Some(title.trim().to_owned()))
        }
        Some(_) => Err(ApiError::invalid("invalid_title", "Invalid title").param("title")),
    }
}

fn number(text: Option<&str>, name: &str) -> Result<Option<usize>, ApiError> {
    let wrong =
        |_| ApiError::invalid("invalid_parameter", format!("'{name}' must be a whole number")).param(name);
    text.filter(|text| !text.is_empty())
        .map(|text| text.parse::<u32>().map(|it| it as usize))
        .transpose()
        .map_err(wrong)
}

fn wrapped(card: &SessionCard) -> Value {
    json!({ "object": "hermes.session", "session": object(card) })
}

/// Never the prompt itself.
fn object(card: &SessionCard) -> Value {
    let row = &card.row;
    json!({
        "id": row.id, "source": row.platform, "user_id": null, "model": row.model, "title": row.title,
        "started_at": exact(row.started_at), "ended_at": row.ended.as_ref().map(|end| exact(end.at)),
        "end_reason": row.ended.as_ref().map(|end| end.reason.as_str()), "message_count": row.message_count,
        "tool_call_count": card.tool_calls, "input_tokens": row.usage.input, "output_tokens": row.usage.output,
        "cache_read_tokens": row.usage.cache_read, "cache_write_tokens": row.usage.cache_write,
        "reasoning_tokens": 0, "estimated_cost_usd": null, "actual_cost_usd": null,
        "api_call_count": card.answers, "parent_session_id": row.parent, "has_system_prompt": card.has_prompt,
        "has_model_config": row.model.is_some(),
    })
}

fn listed(card: &SessionCard) -> Value {
    let mut object = object(card);
    object["last_active"] = json!(exact(card.row.last_at));
    object["preview"] = json!(card.preview);
    object
}

/// `None`: words of the gateway's own.
fn shown(session: &str, row: &Said) -> Option<Value> {
    let Message { role, content, tool_calls, tool_call_id, tool_name, at, .. } = &row.message;
    let finish = match role {
        Role::Assistant if tool_calls.is_empty() => Some("stop"),
        Role::Assistant => Some("tool_calls"),
        Role::User | Role::Tool => None,
        Role::Notice | Role::Summary => return None,
    };
    let calls = (!tool_calls.is_empty()).then(|| tool_calls.iter().map(call).collect::<Vec<_>>());
    Some(json!({
        "id": row.id, "session_id": session, "role": role.as_str(), "content": content,
        "tool_call_id": tool_call_id, "tool_calls": calls, "tool_name": tool_name, "timestamp": exact(*at),
        "token_count": null, "finish_reason": finish, "reasoning": null, "reasoning_content": null,
    }))
}

fn call(call: &ToolCall) -> Value {
    json!({
        "id": call.id, "call_id": call.id, "response_item_id": format!("fc_{}", call.id), "type": "function",
        "function": { "name": call.name, "arguments": call.arguments },
    })
}

/// A run as the events of a conversation.
struct SessionEvents {
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

impl SessionEvents {
    fn new(run: &RunRow, said: String) -> Self {
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
        let calls: Vec<_> = std::mem::take(&mut self.calls).iter().map(call).collect();
        let text = std::mem::take(&mut self.text);
        self.rows.push(json!({
            "role": "assistant", "content": text, "tool_calls": calls, "finish_reason": "tool_calls",
            "reasoning": null,
        }));
    }
}

impl Encoder for SessionEvents {
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
                            "usage": usage(end.usage),
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
