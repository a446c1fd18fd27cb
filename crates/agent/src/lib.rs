//! The thinking half of Petasos: model providers, prompts and tools.
//!
//! `Brain` asks a model (with retries and a fallback chain), `Tools` runs what the model asks for. Both
//! are futures: dropping one ends it, and what it started. Nothing here remembers a conversation;
//! the transcript comes in with every request and the answer goes out as a value.
//!
//! What is absent: chat platforms, the store, secrets in any error, log line or `Debug` output, and the
//! text of a conversation in the log.

mod brain;
mod classify;
pub mod compact;
mod config;
mod demo;
mod failure;
mod file_name;
#[cfg(feature = "simulation")]
pub mod given;
mod history;
mod http;
mod hygiene;
pub mod mcp;
pub mod memory;
pub mod outcome;
pub mod own_files;
mod pictures;
mod prompt;
mod provider;
mod request;
mod retry;
mod sse;
mod terminal;
mod think;
mod tools;

pub use brain::{Brain, Description};
pub use config::{ConfigError, ModelConfig, Prices};
pub use failure::{Class, Failure};
pub use file_name::file_name;
pub use history::{estimate, fit};
pub use petasos_core::{Provider, Secret};
pub use prompt::{NOTHING_LATER, Persona, system_prompt};
pub use request::{Answer, Chunk, Finish, Request, ToolSpec};
pub use retry::{Attempts, Step, next_step};
pub use terminal::{
    End, Event, Identity, Judge, Kept, Known, Leader, Ledger, Pace, Promise, Reason, Record, Terminal,
    TerminalConfig, Unjudged, Verdict, handed_on, has_private_key, redact, secret_words,
};
pub use tools::{
    Alive, Delegate, Doing, Ended, Errand, Errands, JobErrand, Later, People, Person, Plan, Question, Role,
    SessionCtx, Status, Task, Todo, ToolLimits, ToolResult, Tools, Toolset, readable, repeated,
};
