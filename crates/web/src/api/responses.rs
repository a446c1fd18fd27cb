//! Responses: an answer with everything that led to it, which can be fetched again and gone on from.

mod events;

use axum::Json;
use axum::extract::State;
use petasos_core::ids::RowId;
use petasos_core::transcript::{Role, ToolCall, Usage};
use petasos_gateway::{Place, RunEnd, RunRow, Said, fresh_id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Api;
use super::content::{AgentInput, Asked, Message, flag, text};
use super::keys::Owner;
use super::reply::{Named, Reply};
use super::request::{Body, Id, Payload, RunHeaders, short_hash};
use super::runs::{cut, no_previous};
use super::work::{self, NewRun, TokenUsage, Verdict, names, seconds};
use crate::error::ApiError;
use crate::serve::Stop;
use events::ResponseEncoder;

const ROUTE: &str = "responses";
/// Rows that one response shows; a run has fewer steps than that.
const ROWS: usize = 1000;

#[derive(Deserialize, JsonSchema)]
pub(super) struct ResponseRequest {
    #[schemars(with = "AgentInput")]
    input: Option<AgentInput>,
    #[serde(default, deserialize_with = "text")]
    instructions: Option<String>,
    #[serde(default, deserialize_with = "text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    stream: Option<bool>,
    /// `false`: it cannot be fetched afterwards.
    #[serde(default, deserialize_with = "flag")]
    store: Option<bool>,
    #[serde(default, deserialize_with = "flag")]
    background: Option<bool>,
    #[serde(default, deserialize_with = "text")]
    previous_response_id: Option<String>,
    conversation: Option<Conversation>,
    /// What was said before, in the client's words.
    conversation_history: Option<Vec<Message>>,
}

impl Payload for ResponseRequest {}

/// A conversation by its name.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
enum Conversation {
    Name(String),
    Object { id: String },
}

impl Conversation {
    fn name(self) -> Option<String> {
        match self {
            Self::Name(name) => Some(name).filter(|name| !name.is_empty()),
            Self::Object { id } => Some(id),
        }
    }
}

/// An answer with everything that led to it.
#[derive(Serialize, JsonSchema)]
pub(super) struct ResponseObject {
    id: String,
    #[schemars(extend("const" = "response"))]
    object: &'static str,
    created_at: u64,
    status: ResponseStatus,
    model: String,
    output: Vec<OutputItem>,
    error: Option<ResponseFailure>,
    incomplete_details: Option<IncompleteDetails>,
    instructions: Option<String>,
    metadata: NoMembers,
    parallel_tool_calls: bool,
    tools: [(); 0],
    tool_choice: &'static str,
    temperature: (),
    top_p: (),
    usage: Option<ResponseUsage>,
    session_id: String,
}

#[derive(Clone, Copy, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum ResponseStatus {
    Queued,
    InProgress,
    Completed,
    Incomplete,
    Failed,
}

#[derive(Clone, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
enum OutputItem {
    Message { id: String, status: ResponseStatus, role: &'static str, content: Vec<OutputText> },
    FunctionCall { id: String, status: ResponseStatus, name: String, arguments: String, call_id: String },
    FunctionCallOutput { id: String, status: ResponseStatus, call_id: String, output: String },
}

#[derive(Clone, Serialize, JsonSchema)]
struct OutputText {
    #[schemars(extend("const" = "output_text"))]
    r#type: &'static str,
    text: String,
    annotations: [(); 0],
    logprobs: [(); 0],
}

#[derive(Serialize, JsonSchema)]
struct ResponseFailure {
    code: &'static str,
    message: String,
}

#[derive(Serialize, JsonSchema)]
struct IncompleteDetails {
    reason: &'static str,
}

#[derive(Serialize, JsonSchema)]
struct NoMembers {}

#[derive(Serialize, JsonSchema)]
struct ResponseUsage {
    #[serde(flatten)]
    tokens: TokenUsage,
    input_tokens_details: InputTokens,
    output_tokens_details: OutputTokens,
}

#[derive(Serialize, JsonSchema)]
struct InputTokens {
    cached_tokens: u64,
}

#[derive(Serialize, JsonSchema)]
struct OutputTokens {
    reasoning_tokens: u64,
}

impl From<Usage> for ResponseUsage {
    fn from(usage: Usage) -> Self {
        Self {
            tokens: usage.into(),
            input_tokens_details: InputTokens { cached_tokens: usage.cache_read },
            output_tokens_details: OutputTokens { reasoning_tokens: 0 },
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct ResponseDeleted {
    id: String,
    #[schemars(extend("const" = "response"))]
    object: &'static str,
    #[schemars(extend("const" = true))]
    deleted: bool,
}

pub(super) async fn create(
    State(api): State<Api>,
    owner: Owner,
    stop: Stop,
    mut headers: RunHeaders,
    body: Body<ResponseRequest>,
) -> Result<Reply<ResponseObject>, ApiError> {
    let wanted = body.value;
    let not_found = no_previous(wanted.previous_response_id.as_deref());
    let conversation = wanted.conversation.and_then(Conversation::name);
    let starts_over = wanted.conversation_history.is_some();
    let place = place(conversation, wanted.previous_response_id, starts_over, &owner)?;
    let asked = Asked::new(wanted.input, wanted.conversation_history)?;
    let background = wanted.background.unwrap_or(false);
    headers.detached |= background;
    let run = NewRun {
        model: wanted.model,
        instructions: wanted.instructions.or(asked.instructions),
        history: asked.history,
        forget: !wanted.store.unwrap_or(true),
        not_found,
        ..NewRun::new(fresh_id::<14>("resp_"), place, asked.content)
    };
    let started = api.start(&owner, run, headers.idempotency_key(ROUTE, &body.fields)).await?;
    if wanted.stream.unwrap_or(false) {
        let encoder = ResponseEncoder::new(&started.run);
        return Ok(Reply::Stream(api.stream(started, &headers, stop, encoder).await?));
    }
    let (names, run) = match background {
        true => (names(&started.run, &headers), started.run),
        false => {
            let run = api.finish(&started, &headers, &stop).await?;
            (work::answer(&run, &headers)?.0, run)
        }
    };
    Ok(Reply::Whole(Named(names, Json(api.response(&run).await?))))
}

pub(super) async fn show(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
) -> Result<Json<ResponseObject>, ApiError> {
    let run = api.kept(&owner, &id).await?;
    Ok(Json(api.response(&run).await?))
}

pub(super) async fn delete(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
) -> Result<Json<ResponseDeleted>, ApiError> {
    let run = api.kept(&owner, &id).await?;
    if !api.handle.hide_run(&run.id).await? {
        return Err(not_found(&id));
    }
    Ok(Json(ResponseDeleted { id, object: "response", deleted: true }))
}

pub(super) async fn cancel(
    State(api): State<Api>,
    owner: Owner,
    Id(id): Id,
) -> Result<Json<ResponseObject>, ApiError> {
    let run = api.kept(&owner, &id).await?;
    api.handle.stop_run(&run).await?;
    let run = api.handle.run_ended(&id).await?.ok_or_else(|| not_found(&id))?;
    Ok(Json(api.response(&run).await?))
}

/// Where the response belongs. A client that sends the history itself starts over.
fn place(
    conversation: Option<String>,
    previous: Option<String>,
    starts_over: bool,
    owner: &Owner,
) -> Result<Place, ApiError> {
    let fresh = || Place::Session(fresh_id::<8>("api-"));
    match (conversation, previous) {
        (Some(_), Some(_)) => {
            Err(ApiError::bad_request("Cannot use both 'conversation' and 'previous_response_id'"))
        }
        _ if starts_over => Ok(fresh()),
        (Some(name), None) => Ok(Place::Named(format!("conv-{}", short_hash(&[&owner.name, &name])))),
        (None, Some(previous)) => Ok(Place::After(previous)),
        (None, None) => Ok(fresh()),
    }
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
    async fn response(&self, run: &RunRow) -> Result<ResponseObject, ApiError> {
        let read = self.handle.run_rows(&run.id, RowId(0), ROWS).await?;
        let Some((run, rows, _)) = read else { return Err(not_found(&run.id)) };
        let question = |row: &Said| row.message.platform_message_id.as_ref() == Some(&run.id);
        let begin = rows.iter().position(question).map_or(rows.len(), |at| at + 1);
        let mut output = Vec::new();
        for row in &rows[begin..] {
            self::output(&run, row, &mut output);
        }
        Ok(ResponseObject::new(&run, run.end.as_ref(), output))
    }
}

fn output(run: &RunRow, row: &Said, output: &mut Vec<OutputItem>) {
    match row.message.role {
        Role::Assistant => {
            let text = match run.end.as_ref().and_then(|end| end.said.as_deref()) {
                // With the pictures that it names.
                Some(said) if run.last_row == Some(row.id) => said,
                Some(_) | None => row.message.content.as_str(),
            };
            let text = unstopped(run, text);
            if !text.trim().is_empty() {
                output.push(OutputItem::message(item_id(&run.id, output.len()), text));
            }
            let calls = row.message.tool_calls.iter();
            output.extend(calls.map(|call| OutputItem::called(call, ResponseStatus::Completed)));
        }
        Role::Tool => {
            let call = row.message.tool_call_id.as_deref().unwrap_or_default();
            output.push(OutputItem::returned(call, &row.message.content));
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

impl OutputText {
    fn new(text: &str) -> Self {
        Self { r#type: "output_text", text: text.to_owned(), annotations: [], logprobs: [] }
    }
}

impl OutputItem {
    fn message(id: String, text: &str) -> Self {
        let content = vec![OutputText::new(text)];
        Self::Message { id, status: ResponseStatus::Completed, role: "assistant", content }
    }

    fn called(call: &ToolCall, status: ResponseStatus) -> Self {
        Self::FunctionCall {
            id: format!("fc_{}", call.id),
            status,
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            call_id: call.id.clone(),
        }
    }

    fn returned(call: &str, content: &str) -> Self {
        Self::FunctionCallOutput {
            id: format!("fco_{call}"),
            status: ResponseStatus::Completed,
            call_id: call.to_owned(),
            output: content.to_owned(),
        }
    }
}

impl ResponseObject {
    fn new(run: &RunRow, end: Option<&RunEnd>, output: Vec<OutputItem>) -> Self {
        let wish = work::run_options(run);
        let incomplete = |reason| Some(IncompleteDetails { reason });
        let (status, error, incomplete_details) = match end.map(work::verdict) {
            None if run.claimed_at.is_some() => (ResponseStatus::InProgress, None, None),
            None => (ResponseStatus::Queued, None, None),
            Some(Verdict::Answered { partial: false, .. }) => (ResponseStatus::Completed, None, None),
            Some(Verdict::Answered { partial: true, .. }) => {
                (ResponseStatus::Incomplete, None, incomplete("max_output_tokens"))
            }
            Some(Verdict::Failed { message }) => {
                (ResponseStatus::Failed, Some(ResponseFailure { code: "server_error", message }), None)
            }
            Some(Verdict::Cancelled) => (ResponseStatus::Incomplete, None, incomplete("interrupted")),
        };
        Self {
            id: run.id.clone(),
            object: "response",
            created_at: seconds(run.created_at),
            status,
            model: wish.shown_model,
            output,
            error,
            incomplete_details,
            instructions: wish.instructions,
            metadata: NoMembers {},
            parallel_tool_calls: true,
            tools: [],
            tool_choice: "auto",
            temperature: (),
            top_p: (),
            usage: end.map(|end| end.usage.into()),
            session_id: run.session.to_string(),
        }
    }
}
