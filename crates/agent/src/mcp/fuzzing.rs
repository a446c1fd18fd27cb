//! Parses bytes as results of an MCP server.

use rmcp::model::{CallToolResult, ListToolsResult, ServerJsonRpcMessage};

use super::server::{render_content, tool_name};

/// Whether the SDK accepts them as a message, a result or a list of tools.
pub fn message(bytes: &[u8]) -> bool {
    let message = serde_json::from_slice::<ServerJsonRpcMessage>(bytes).is_ok();
    let result = serde_json::from_slice::<CallToolResult>(bytes).ok();
    let called = result.map(|result| render_content(&result.content, result.structured_content));
    let tools = serde_json::from_slice::<ListToolsResult>(bytes).ok();
    let names: Vec<String> =
        tools.iter().flat_map(|list| &list.tools).map(|tool| tool_name("server", &tool.name)).collect();
    message || called.is_some() || !names.is_empty()
}
