//! Runs: work that belongs to the server. Accepted with a name, looked at, followed, stopped.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::Event;
use axum::response::{IntoResponse, Response};
use petasos_core::Millis;
use petasos_core::approve::{Answer, Choice, Ending, Which};
use petasos_gateway::{Approval, Place, RunRow, clock, fresh_id};
use serde_json::{Map, Value, json};

use super::asked::{Content, Fields, Talk, Wanted, content, fields, flag, is_session_id, talk, text};
use super::keys::{Owner, Scope};
use super::work::{self, Job, STOPPED, Verdict, names, usage};
use super::{Api, Id, preview};
use crate::error::ApiError;
use crate::guard;
use crate::serve::Stop;
use crate::stream::Reader;
use crate::stream::page::LAST_EVENT_ID;
use crate::stream::run::{Position, RunEvent, RunStream};
use crate::stream::sse::{self, Encoder};

/// Answers after the commit: from then on the run ends in one of its final states, whoever watches.
pub(super) async fn start(
    State(api): State<Api>,
    owner: Owner,
    request: Request,
) -> Result<Response, ApiError> {
    let wanted = Wanted::read(request.headers())?;
    let fields = fields(request).await?;
    let Input { asked, mut history, system } = input(&fields)?;
    let told = told_history(&fields)?;
    let run = fresh_id::<16>("run_");
    let place = match (text(&fields, "session_id")?, text(&fields, "previous_response_id")?) {
        (Some(id), _) if !is_session_id(&id) => {
            return Err(ApiError::invalid("invalid_session_id", "Invalid session ID").param("session_id"));
        }
        (Some(id), _) => Place::Session(id),
        (None, _) if told.is_some() => Place::Session(run.clone()),
        (None, Some(previous)) => Place::After(previous),
        (None, None) => Place::Session(run.clone()),
    };
    if let Some(told) = told {
        history.splice(0..0, told);
    }
    let previous = text(&fields, "previous_response_id")?.unwrap_or_default();
    let instructions = text(&fields, "instructions")?.or(system);
    let job = Job {
        id: run,
        route: "runs",
        place,
        content: asked,
        instructions,
        history,
        answers: true,
        forget: false,
        wanted: &wanted,
        fields: &fields,
    };
    let started = api.start(&owner, job).await.map_err(|error| error.or(|| no_previous(&previous)))?;
    let body = json!({ "run_id": started.run.id, "status": "started", "session_id": started.run.session });
    Ok((StatusCode::ACCEPTED, names(&started.run, &wanted), Json(body)).into_response())
}

pub(super) async fn status(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
) -> Result<Json<Value>, ApiError> {
    let run = api.owned(&owner, &id).await?;
    let waits = api.handle.run_waits_for(&run).await?;
    Ok(Json(api.shown(&run, waits.as_ref(), &owner)))
}

/// Everything that happened and happens, from the beginning or from the last event that the client has.
pub(super) async fn events(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    headers: HeaderMap,
    Id(id): Id,
) -> Result<Response, ApiError> {
    let run = api.owned(&owner, &id).await?;
    let from = match guard::text(&headers, &LAST_EVENT_ID) {
        None | Some("") => None,
        Some(id) => Some(Position::parse(id).ok_or_else(|| {
            ApiError::invalid("invalid_event_id", "Last-Event-ID is not the id of an event of this run")
        })?),
    };
    let encoder = RunEvents { run: run.id.clone(), owner };
    let reader = Reader::open(&api.handle, RunStream::new(run, from), stop).await?;
    Ok(sse::respond(reader, encoder, None, work::keep_alive(), HeaderMap::new()))
}

pub(super) async fn stop(State(api): State<Api>, owner: Owner, Id(id): Id) -> Result<Json<Value>, ApiError> {
    let run = api.owned(&owner, &id).await?;
    if !api.handle.stop_run(&run).await? {
        return Err(not_found(&id));
    }
    Ok(Json(json!({ "run_id": id, "status": "stopping" })))
}

/// Answers what the run waits for: the oldest question, the one that is named, or all.
pub(super) async fn approval(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
    request: Request,
) -> Result<Json<Value>, ApiError> {
    let run = api.owned(&owner, &id).await?;
    let fields = fields(request).await?;
    let choice = choice(&fields)?;
    if choice.lasts() {
        owner.may(Scope::Admin)?;
    }
    if run.end.is_some() {
        let message = format!("Run has no active approval session: {id}");
        return Err(ApiError::conflict("approval_not_active", message));
    }
    let all = flag(&fields, "all", false)? || flag(&fields, "resolve_all", false)?;
    let which = match text(&fields, "approval_id")? {
        _ if all => Which::All,
        Some(id) => Which::Id(id),
        None => Which::Oldest,
    };
    let reason = text(&fields, "reason")?.map(|reason| cut(&reason)).filter(|_| choice == Choice::Deny);
    let resolved = api.handle.answer_run(&run, Answer { which, choice, reason }).await?;
    if resolved == 0 {
        let message = format!("Run has no pending approval: {id}");
        return Err(ApiError::conflict("approval_not_pending", message));
    }
    Ok(Json(json!({
        "object": "hermes.run.approval_response", "run_id": id, "choice": choice.as_str(), "resolved": resolved,
    })))
}

fn choice(fields: &Fields) -> Result<Choice, ApiError> {
    let word = text(fields, "choice")?.unwrap_or_default().trim().to_ascii_lowercase();
    let word = match word.as_str() {
        "approve" | "approved" | "allow" => "once",
        other => other,
    };
    Choice::from_word(word).ok_or_else(|| {
        let message = "Invalid approval choice; expected one of: once, session, always, deny";
        ApiError::invalid("invalid_approval_choice", message)
    })
}

/// A question as its client sees it, with the choices that its key may make.
fn question(asked: &Approval, owner: &Owner) -> Value {
    let kinds: Vec<_> = asked.categories.iter().map(|kind| kind.key()).collect();
    let sentences: Vec<_> = asked.categories.iter().map(|kind| kind.sentence()).collect();
    let admin = owner.may(Scope::Admin).is_ok();
    let choices: Vec<_> = asked.choices.iter().copied().filter(|choice| admin || !choice.lasts()).collect();
    let names: Vec<_> = choices.iter().map(|choice| choice.as_str()).collect();
    json!({
        "approval_id": asked.id, "command": asked.command, "cwd": asked.folder, "description": sentences.join(" "),
        "pattern_key": kinds.first(), "pattern_keys": kinds, "choices": names,
        "allow_permanent": choices.contains(&Choice::Always), "smart_denied": asked.advised_against,
    })
}

impl Api {
    /// A run of this owner's; those of others are not there.
    pub(super) async fn owned(&self, owner: &Owner, id: &str) -> Result<RunRow, ApiError> {
        let run = self.handle.run(id).await?;
        run.filter(|run| run.owner == owner.name).ok_or_else(|| not_found(id))
    }

    fn shown(&self, run: &RunRow, waits: Option<&Approval>, owner: &Owner) -> Value {
        let mut shown = json!({
            "object": "hermes.run", "run_id": run.id, "created_at": exact(run.created_at),
            "session_id": run.session, "model": work::wish(run).shown_model,
        });
        let (status, last, updated) = match &run.end {
            None if let Some(asked) = waits => {
                shown["approval"] = question(asked, owner);
                ("waiting_for_approval", "approval.request", Some(asked.asked_at))
            }
            None if self.handle.is_stopping(&run.id) => ("stopping", "run.stopping", run.claimed_at),
            None if run.claimed_at.is_some() => ("running", "run.started", run.claimed_at),
            None => ("queued", "run.queued", None),
            Some(end) => {
                shown["usage"] = usage(end.usage);
                match work::verdict(end) {
                    Verdict::Answered { text, partial } => {
                        shown["output"] = json!(text);
                        shown["partial"] = json!(partial);
                        ("completed", "run.completed", Some(end.at))
                    }
                    Verdict::Failed { message } => {
                        shown["error"] = json!(message);
                        ("failed", "run.failed", Some(end.at))
                    }
                    Verdict::Cancelled => ("cancelled", "run.cancelled", Some(end.at)),
                }
            }
        };
        shown["status"] = json!(status);
        shown["last_event"] = json!(last);
        shown["updated_at"] = json!(exact(updated.unwrap_or(run.created_at)));
        shown
    }
}

pub(super) fn not_found(id: &str) -> ApiError {
    ApiError::not_found(format!("Run not found: {}", cut(id))).code("run_not_found")
}

pub(super) fn no_previous(id: &str) -> ApiError {
    ApiError::not_found(format!("Previous response not found: {}", cut(id)))
}

/// Names that a client made up are repeated, but not at any length.
pub(super) fn cut(name: &str) -> String {
    name.chars().filter(|it| !it.is_control()).take(128).collect()
}

#[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit")]
pub(super) fn exact(at: Millis) -> f64 {
    at.0 as f64 / 1000.0
}

/// What is asked now, and what was said with it.
pub(super) struct Input {
    pub(super) asked: Content,
    pub(super) history: Vec<petasos_gateway::Told>,
    pub(super) system: Option<String>,
}

/// A text, or messages of which the last is asked.
pub(super) fn input(fields: &Fields) -> Result<Input, ApiError> {
    let missing = || ApiError::bad_request("Missing 'input' field").param("input");
    let (asked, history, instructions) = match fields.get("input") {
        None | Some(Value::Null) => return Err(missing()),
        Some(value @ Value::String(_)) => (Some(content(value, "input")?), vec![], vec![]),
        Some(Value::Array(items)) => {
            if let Some(at) = items.iter().position(|item| !item.is_object()) {
                let message = "An input item must be an object with role and content";
                return Err(ApiError::invalid("invalid_input", message).param(format!("input[{at}]")));
            }
            let Talk { instructions, history, asked } = talk(items, "input")?;
            (asked, history, instructions)
        }
        Some(_) => return Err(ApiError::bad_request("'input' must be a string or array").param("input")),
    };
    let asked = asked.filter(|asked| !asked.is_empty()).ok_or_else(missing)?;
    Ok(Input { asked, history, system: Some(instructions.join("\n")).filter(|text| !text.is_empty()) })
}

/// `conversation_history`: what was said before, in the client's words.
pub(super) fn told_history(fields: &Fields) -> Result<Option<Vec<petasos_gateway::Told>>, ApiError> {
    match fields.get("conversation_history") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => {
            // The last of it is no question: it has been answered, or it would not be history.
            let mut with_end = items.clone();
            with_end.push(json!({ "role": "user", "content": "" }));
            Ok(Some(talk(&with_end, "conversation_history")?.history))
        }
        Some(_) => {
            Err(ApiError::bad_request("'conversation_history' must be an array")
                .param("conversation_history"))
        }
    }
}

/// A run as events, each with its own id.
struct RunEvents {
    run: String,
    owner: Owner,
}

impl RunEvents {
    fn event(&self, name: &str, more: Value) -> Event {
        let mut data = Map::new();
        data.insert("event".into(), json!(name));
        data.insert("run_id".into(), json!(self.run));
        data.insert("timestamp".into(), json!(exact(clock::now())));
        if let Value::Object(more) = more {
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

impl Encoder for RunEvents {
    type Event = (Position, RunEvent);

    fn encode(&mut self, (position, event): (Position, RunEvent)) -> Vec<Event> {
        let ended = matches!(event, RunEvent::Ended(_));
        let events = self.events(event).into_iter().map(|event| event.id(position.id()));
        events.chain(ended.then(|| Event::default().comment("stream closed"))).collect()
    }
}

impl RunEvents {
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
                vec![self.event("approval.request", question(&asked, &self.owner))]
            }
            RunEvent::ApprovalEnded(asked) => vec![self.answered(&asked)],
            RunEvent::Ended(end) => vec![match work::verdict(&end) {
                Verdict::Answered { text, partial } => {
                    let more = json!({ "output": text, "partial": partial, "usage": usage(end.usage) });
                    self.event("run.completed", more)
                }
                Verdict::Failed { message } => self.event("run.failed", json!({ "error": message })),
                Verdict::Cancelled => self.event("run.cancelled", json!({ "error": STOPPED })),
            }],
        }
    }
}
