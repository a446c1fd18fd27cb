//! JSON objects for sessions and their messages.

use petasos_core::transcript::{Message, Role, ToolCall};
use petasos_gateway::{SessionSummary, TranscriptRow};
use schemars::JsonSchema;
use serde::Serialize;

use crate::api::endpoints::runs::fractional_seconds;

/// A conversation without its system prompt.
#[derive(Serialize, JsonSchema)]
pub(super) struct SessionObject {
    id: String,
    source: Option<String>,
    user_id: (),
    model: Option<String>,
    title: Option<String>,
    started_at: f64,
    ended_at: Option<f64>,
    end_reason: Option<String>,
    message_count: u64,
    tool_call_count: u64,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    reasoning_tokens: u64,
    estimated_cost_usd: (),
    actual_cost_usd: (),
    api_call_count: u64,
    parent_session_id: Option<String>,
    has_system_prompt: bool,
    has_model_config: bool,
}

impl SessionObject {
    pub(super) fn new(summary: &SessionSummary) -> Self {
        let row = &summary.row;
        Self {
            id: row.id.to_string(),
            source: row.platform.clone(),
            user_id: (),
            model: row.model.clone(),
            title: row.title.clone(),
            started_at: fractional_seconds(row.started_at),
            ended_at: row.ended.as_ref().map(|end| fractional_seconds(end.at)),
            end_reason: row.ended.as_ref().map(|end| end.reason.as_str().to_owned()),
            message_count: row.message_count,
            tool_call_count: summary.tool_calls,
            input_tokens: row.usage.input,
            output_tokens: row.usage.output,
            cache_read_tokens: row.usage.cache_read,
            cache_write_tokens: row.usage.cache_write,
            reasoning_tokens: 0,
            estimated_cost_usd: (),
            actual_cost_usd: (),
            api_call_count: summary.answers,
            parent_session_id: row.parent.as_ref().map(ToString::to_string),
            has_system_prompt: summary.has_prompt,
            has_model_config: row.model.is_some(),
        }
    }
}

#[derive(Serialize, JsonSchema)]
pub(super) struct SessionMessage {
    id: i64,
    session_id: String,
    role: &'static str,
    content: String,
    tool_call_id: Option<String>,
    tool_calls: Option<Vec<FunctionCall>>,
    tool_name: Option<String>,
    timestamp: f64,
    token_count: (),
    finish_reason: Option<&'static str>,
    reasoning: (),
    reasoning_content: (),
}

#[derive(Serialize, JsonSchema)]
pub(super) struct FunctionCall {
    id: String,
    call_id: String,
    response_item_id: String,
    #[schemars(extend("const" = "function"))]
    r#type: &'static str,
    function: CalledFunction,
}

#[derive(Serialize, JsonSchema)]
struct CalledFunction {
    name: String,
    arguments: String,
}

impl From<&ToolCall> for FunctionCall {
    fn from(call: &ToolCall) -> Self {
        let function = CalledFunction { name: call.name.clone(), arguments: call.arguments.clone() };
        Self {
            id: call.id.clone(),
            call_id: call.id.clone(),
            response_item_id: format!("fc_{}", call.id),
            r#type: "function",
            function,
        }
    }
}

impl SessionMessage {
    /// `None` for notices and summaries of the gateway.
    pub(super) fn new(session: &str, row: &TranscriptRow) -> Option<Self> {
        let Message { role, content, tool_calls, tool_call_id, tool_name, at, .. } = &row.message;
        let finish_reason = match role {
            Role::Assistant if tool_calls.is_empty() => Some("stop"),
            Role::Assistant => Some("tool_calls"),
            Role::User | Role::Tool => None,
            Role::Notice | Role::Summary => return None,
        };
        let calls = || tool_calls.iter().map(FunctionCall::from).collect();
        Some(Self {
            id: row.id.0,
            session_id: session.to_owned(),
            role: role.as_str(),
            content: content.clone(),
            tool_call_id: tool_call_id.clone(),
            tool_calls: (!tool_calls.is_empty()).then(calls),
            tool_name: tool_name.clone(),
            timestamp: fractional_seconds(*at),
            token_count: (),
            finish_reason,
            reasoning: (),
            reasoning_content: (),
        })
    }
}
