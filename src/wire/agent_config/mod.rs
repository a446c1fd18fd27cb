//! Settings of the agent: model, tools, terminal and MCP servers.

pub(super) mod mcp;
pub(super) mod model;
pub(super) mod terminal;
pub(super) mod tools;
