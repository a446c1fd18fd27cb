//! Tools that the gateway runs, because they need its store, its platforms or its clock. This module parses
//! their arguments; [`GatewayTools`] runs them.

pub(super) mod cronjob;
mod html;
pub(super) mod send_message;
pub(super) mod session_search;
pub(super) mod todo;
pub(super) mod web_extract;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use petasos_core::cron::{JobId, JobUpdate, NewJob};
use petasos_core::ids::RowId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SessionCtx;
pub use html::html_to_text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GatewayCall {
    /// `None` reads the list.
    Todo(Option<TodoUpdate>),
    Search {
        query: String,
        limit: usize,
    },
    /// Messages around a row that a search found.
    Around {
        row: RowId,
    },
    Fetch {
        urls: Vec<String>,
    },
    /// Lists the chats that can be reached.
    ListTargets,
    Send {
        to: String,
        text: String,
    },
    Jobs(JobCall),
}

/// A list that replaces the current one, or is merged into it by id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TodoUpdate {
    pub items: Vec<TodoItem>,
    pub merge: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TodoItem {
    pub id: String,
    pub content: String,
    pub status: TodoStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TodoStatus {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobCall {
    List,
    Create(NewJob),
    Update(JobId, JobUpdate),
    Remove(JobId),
    Run(JobId),
}

pub type ToolFuture<'a> = Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>>;

pub trait GatewayTools: Debug + Send + Sync {
    fn run<'a>(&'a self, ctx: &'a SessionCtx, call: GatewayCall) -> ToolFuture<'a>;
}
