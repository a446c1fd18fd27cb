//! Tools that are carried out by the gateway: they need what it remembers, whom it can reach, or its clock. Here they are
//! described and their arguments read; [`Errands`] does them.

pub(super) mod cronjob;
pub(super) mod send_message;
pub(super) mod session_search;
pub(super) mod todo;
pub(super) mod web_extract;

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use petasos_core::cron::{Change, JobId, NewJob};
use petasos_core::ids::RowId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::SessionCtx;

/// What is asked of the gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// `None`: only look.
    Todo(Option<Plan>),
    Search {
        query: String,
        limit: usize,
    },
    /// What was said around a row that a search found.
    Around {
        row: RowId,
    },
    Fetch {
        urls: Vec<String>,
    },
    /// Which places there are.
    Places,
    Send {
        to: String,
        text: String,
    },
    Jobs(JobErrand),
}

/// A list of things to do: in the place of the one that is there, or merged with it by their ids.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    pub items: Vec<Todo>,
    pub merge: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Todo {
    pub id: String,
    pub content: String,
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Pending,
    InProgress,
    Completed,
    Cancelled,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobErrand {
    List,
    Create(NewJob),
    Update(JobId, Change),
    Remove(JobId),
    Run(JobId),
}

/// A tool's result that is on its way.
pub type Doing<'a> = Pin<Box<dyn Future<Output = Result<Value, String>> + Send + 'a>>;

/// Whoever carries out errands.
pub trait Errands: Debug + Send + Sync {
    fn run<'a>(&'a self, ctx: &'a SessionCtx, errand: Errand) -> Doing<'a>;
}
