//! The agent: model chain, conversation handling and tools.
//!
//! `ModelChain` sends requests to a model, with retries and fallbacks; `Tools` runs the calls of its responses. Both
//! return futures: dropping one cancels its work. The crate stores no conversation: each request contains the
//! transcript, and the response is returned as a value.
//!
//! Chat platforms and the store are elsewhere. Errors, log lines and `Debug` output contain no secrets, and the log
//! contains no text of conversations.

mod conversation;
mod files;
pub mod mcp;
pub mod memory;
mod model;
mod terminal;
mod tools;

pub use conversation::compaction;
pub use conversation::prompt::{NO_ASYNC_DELIVERY, Persona, system_prompt};
pub use files::{file_name, protected as protected_files};
pub use model::config::{ConfigError, ModelConfig, Prices};
pub use model::failure::{ModelFailure, ModelFailureClass};
#[cfg(feature = "fuzzing")]
pub use model::fuzzing;
pub use model::request::{Chunk, FinishReason, ModelRequest, ModelResponse, ToolSpec};
#[cfg(feature = "simulation")]
pub use model::simulated;
pub use model::{ChainDescription, ModelChain};
pub use petasos_core::{Provider, Secret};
pub use terminal::{
    BackgroundProcess, CommandApprover, CommandDecision, CommandRequest, ExitReason, GroupLeader, Ledger,
    LedgerWrite, NotifyMode, ProcessEvent, ProcessExit, ProcessIdentity, RecordedProcess, Terminal,
    TerminalConfig, WatchLimits, contains_private_key, public_environment, redact, secret_ranges,
};
pub use tools::output as tool_output;
pub use tools::{
    AsyncDelivery, DelegatedTask, GatewayCall, GatewayTools, JobCall, Question, QuestionChannel,
    QuestionFuture, Respondent, SessionCtx, SubagentRole, SubagentRunner, TodoItem, TodoStatus, TodoUpdate,
    ToolFuture, ToolLimits, ToolResult, Tools, Toolset, TurnHeartbeat, duplicate_result, html_to_text,
};
