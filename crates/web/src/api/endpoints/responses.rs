//! OpenAI-compatible responses, which are stored and can be continued.

mod events;

use axum::Json;
use axum::extract::State;
use petasos_core::ids::RowId;
use petasos_core::notices;
use petasos_core::transcript::{Role, ToolCall, Usage};
use petasos_core::{RunId, SessionId};
use petasos_gateway::{RunEnd, RunRow, RunTarget, TranscriptRow, fresh_id};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::runs::{previous_not_found, truncate_name};
use crate::api::Api;
use crate::api::execution::{self, RunOutcome, RunSubmission, TokenUsage, run_headers, unix_seconds};
use crate::api::keys::ApiClient;
use crate::api::wire::content::{AgentInput, LenientMessage, RunInput, flag, text};
use crate::api::wire::request::{Body, PathId, Payload, RunHeaders, hash_prefix};
use crate::api::wire::response::{WholeOrStream, WithRunHeaders};
use crate::error::ApiError;
use crate::server::StopSignal;
use events::ResponseEncoder;

const IDEMPOTENCY_ROUTE: &str = "responses";
/// The most rows in a response; a run has fewer steps.
const ROWS: usize = 1000;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct ResponseRequest {
    #[schemars(with = "AgentInput")]
    input: Option<AgentInput>,
    #[serde(default, deserialize_with = "text")]
    instructions: Option<String>,
    #[serde(default, deserialize_with = "text")]
    model: Option<String>,
    #[serde(default, deserialize_with = "flag")]
    stream: Option<bool>,
    /// `false`: the response cannot be fetched afterwards.
    #[serde(default, deserialize_with = "flag")]
    store: Option<bool>,
    #[serde(default, deserialize_with = "flag")]
    background: Option<bool>,
    #[serde(default, deserialize_with = "text")]
    previous_response_id: Option<String>,
    conversation: Option<ConversationReference>,
    /// Earlier messages, as the client stores them.
    conversation_history: Option<Vec<LenientMessage>>,
}

impl Payload for ResponseRequest {}

#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "Conversation")]
enum ConversationReference {
    Name(String),
    Object { id: String },
}

impl ConversationReference {
    fn name(self) -> Option<String> {
        match self {
            Self::Name(name) => Some(name).filter(|name| !name.is_empty()),
            Self::Object { id } => Some(id),
        }
    }
}

/// An answer with all its steps.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ResponseObject {
    #[schemars(with = "String")]
    id: RunId,
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
pub(crate) struct ResponseDeleted {
    #[schemars(with = "String")]
    id: RunId,
    #[schemars(extend("const" = "response"))]
    object: &'static str,
    #[schemars(extend("const" = true))]
    deleted: bool,
}

pub(crate) async fn create(
    State(api): State<Api>,
    owner: ApiClient,
    stop: StopSignal,
    mut headers: RunHeaders,
    body: Body<ResponseRequest>,
) -> Result<WholeOrStream<ResponseObject>, ApiError> {
    let request = body.value;
    let not_found = previous_not_found(request.previous_response_id.as_deref());
    let conversation = request.conversation.and_then(ConversationReference::name);
    let starts_over = request.conversation_history.is_some();
    let run_target = run_target(conversation, request.previous_response_id, starts_over, &owner)?;
    let run_input = RunInput::new(request.input, request.conversation_history)?;
    let background = request.background.unwrap_or(false);
    headers.detached |= background;
    let run = RunSubmission {
        model: request.model,
        instructions: request.instructions.or(run_input.instructions),
        history: run_input.history,
        forget: !request.store.unwrap_or(true),
        not_found,
        ..RunSubmission::new(RunId(fresh_id::<14>("resp_")), run_target, run_input.content)
    };
    let started = api.start(&owner, run, headers.idempotency_key(IDEMPOTENCY_ROUTE, &body.fields)).await?;
    if request.stream.unwrap_or(false) {
        let encoder = ResponseEncoder::new(&started.run);
        return Ok(WholeOrStream::Stream(api.stream(started, &headers, stop, encoder).await?));
    }
    let (run_headers, run) = if background {
        (run_headers(&started.run, &headers), started.run)
    } else {
        let run = api.wait_for_run(&started, &headers, &stop).await?;
        (execution::run_answer(&run, &headers)?.0, run)
    };
    Ok(WholeOrStream::Whole(WithRunHeaders(run_headers, Json(api.response(&run).await?))))
}

pub(crate) async fn show(
    State(api): State<Api>,
    owner: ApiClient,
    PathId(id): PathId<RunId>,
) -> Result<Json<ResponseObject>, ApiError> {
    let run = api.stored_response(&owner, &id).await?;
    Ok(Json(api.response(&run).await?))
}

pub(crate) async fn delete(
    State(api): State<Api>,
    owner: ApiClient,
    PathId(id): PathId<RunId>,
) -> Result<Json<ResponseDeleted>, ApiError> {
    let run = api.stored_response(&owner, &id).await?;
    if !api.handle.hide_run(&run.id).await? {
        return Err(not_found(&id));
    }
    Ok(Json(ResponseDeleted { id, object: "response", deleted: true }))
}

pub(crate) async fn cancel(
    State(api): State<Api>,
    owner: ApiClient,
    PathId(id): PathId<RunId>,
) -> Result<Json<ResponseObject>, ApiError> {
    let run = api.stored_response(&owner, &id).await?;
    api.handle.stop_run(&run).await?;
    let run = api.handle.run_ended(&id).await?.ok_or_else(|| not_found(&id))?;
    Ok(Json(api.response(&run).await?))
}

/// The session of the response. A client that sends the history starts a new one.
fn run_target(
    conversation: Option<String>,
    previous: Option<String>,
    starts_over: bool,
    owner: &ApiClient,
) -> Result<RunTarget, ApiError> {
    let fresh = || RunTarget::Session(SessionId(fresh_id::<8>("api-")));
    match (conversation, previous) {
        (Some(_), Some(_)) => {
            Err(ApiError::bad_request("Cannot use both 'conversation' and 'previous_response_id'"))
        }
        _ if starts_over => Ok(fresh()),
        (Some(name), None) => {
            Ok(RunTarget::Conversation(format!("conv-{}", hash_prefix(&[&owner.name, &name]))))
        }
        (None, Some(previous)) => Ok(RunTarget::ContinueRun(RunId(previous))),
        (None, None) => Ok(fresh()),
    }
}

fn not_found(id: &RunId) -> ApiError {
    ApiError::not_found(format!("Response not found: {}", truncate_name(id.as_str())))
}

impl Api {
    async fn stored_response(&self, owner: &ApiClient, id: &RunId) -> Result<RunRow, ApiError> {
        let run = self.handle.run(id).await?.filter(|run| id.as_str().starts_with("resp_") && !run.hidden);
        run.filter(|run| run.owner == owner.name).ok_or_else(|| not_found(id))
    }

    async fn response(&self, run: &RunRow) -> Result<ResponseObject, ApiError> {
        let read = self.handle.run_rows(&run.id, RowId(0), ROWS).await?;
        let Some((run, rows, _)) = read else { return Err(not_found(&run.id)) };
        let question =
            |row: &TranscriptRow| row.message.platform_message_id.as_deref() == Some(run.id.as_str());
        let begin = rows.iter().position(question).map_or(rows.len(), |at| at + 1);
        let mut output = Vec::new();
        for row in &rows[begin..] {
            self::output(&run, row, &mut output);
        }
        Ok(ResponseObject::new(&run, run.end.as_ref(), output))
    }
}

fn output(run: &RunRow, row: &TranscriptRow, output: &mut Vec<OutputItem>) {
    match row.message.role {
        Role::Assistant => {
            let text = match run.end.as_ref().and_then(|end| end.answer.as_deref()) {
                // The final answer contains its media.
                Some(text_so_far) if run.last_row == Some(row.id) => text_so_far,
                Some(_) | None => row.message.content.as_str(),
            };
            let text = without_stop_remark(run, text);
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

/// Removes the gateway's remark from the text of a stopped run.
fn without_stop_remark<'a>(run: &RunRow, text: &'a str) -> &'a str {
    let stopped = run.end.as_ref().is_some_and(|end| execution::run_outcome(end) == RunOutcome::Cancelled);
    if !stopped {
        return text;
    }
    if text == notices::STOPPED_BEFORE_ANSWER {
        return "";
    }
    text.strip_suffix(notices::STOPPED_SUFFIX).unwrap_or(text)
}

fn item_id(run: &RunId, at: usize) -> String {
    format!("msg_{}{at:02x}", run.as_str().trim_start_matches("resp_"))
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
        let options = execution::run_options(run);
        let incomplete = |reason| Some(IncompleteDetails { reason });
        let (status, error, incomplete_details) = match end.map(execution::run_outcome) {
            None if run.claimed_at.is_some() => (ResponseStatus::InProgress, None, None),
            None => (ResponseStatus::Queued, None, None),
            Some(RunOutcome::Answered { partial: false, .. }) => (ResponseStatus::Completed, None, None),
            Some(RunOutcome::Answered { partial: true, .. }) => {
                (ResponseStatus::Incomplete, None, incomplete("max_output_tokens"))
            }
            Some(RunOutcome::Failed { message }) => {
                (ResponseStatus::Failed, Some(ResponseFailure { code: "server_error", message }), None)
            }
            Some(RunOutcome::Cancelled) => (ResponseStatus::Incomplete, None, incomplete("interrupted")),
        };
        Self {
            id: run.id.clone(),
            object: "response",
            created_at: unix_seconds(run.created_at),
            status,
            model: options.shown_model,
            output,
            error,
            incomplete_details,
            instructions: options.instructions,
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
