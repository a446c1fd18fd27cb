//! Tools that are carried out by the gateway: they need what it remembers, whom it can reach, or its clock. Here they are
//! described and their arguments read; [`Errands`] does them.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use petasos_core::cron::{Change, JobId, NewJob};
use petasos_core::ids::RowId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Arguments, SessionCtx};

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

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Todo {
    pub id: String,
    pub content: String,
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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

const TODOS: usize = 100;
const TODO: usize = 500;
const HITS: usize = 10;
const MOST_HITS: usize = 50;
const URLS: usize = 5;
const LONGEST_MESSAGE: usize = 40_000;

pub(super) fn todo_schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "todos": {"type": "array", "description": "The list; leave it out to read it", "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "content": {"type": "string"},
                    "status": {"type": "string", "enum": ["pending", "in_progress", "completed", "cancelled"]},
                },
                "required": ["id", "content", "status"],
            }},
            "merge": {"type": "boolean", "description": "true: change only the items with these ids and add new ones; false: replace the whole list"},
        },
    });
    (
        "Keeps your list of things to do in this conversation, for work of three steps or more. One item is in_progress at a time; mark items as you finish them.",
        parameters,
    )
}

pub(super) fn todo(arguments: &Arguments) -> Result<Errand, String> {
    let items = match arguments.0.get("todos") {
        None | Some(Value::Null) => return Ok(Errand::Todo(None)),
        Some(items) => items,
    };
    let items: Vec<Todo> = serde_json::from_value(items.clone())
        .map_err(|_| "todos is a list of objects with id, content and status.".to_owned())?;
    if items.len() > TODOS || items.iter().any(|item| item.content.chars().count() > TODO) {
        return Err(format!("At most {TODOS} items of {TODO} characters."));
    }
    Ok(Errand::Todo(Some(Plan { items, merge: arguments.flag("merge")? })))
}

pub(super) fn search_schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words that were said; all of them must occur"},
            "limit": {"type": "integer", "description": "Number of results, default 10", "maximum": MOST_HITS},
            "around": {"type": "integer", "description": "Instead of a query: the row of a result, to read what was said around it"},
        },
    });
    ("Searches the earlier conversations of this user with you.", parameters)
}

pub(super) fn search(arguments: &Arguments) -> Result<Errand, String> {
    if let Some(row) = arguments.0.get("around").filter(|row| !row.is_null()) {
        let row = row.as_i64().ok_or("around is the row of a result.")?;
        return Ok(Errand::Around { row: RowId(row) });
    }
    let query = arguments.text("query")?.trim().to_owned();
    if query.is_empty() {
        return Err("The query is empty.".to_owned());
    }
    Ok(Errand::Search { query, limit: arguments.count("limit", HITS, MOST_HITS)? })
}

pub(super) fn fetch_schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "urls": {"type": "array", "items": {"type": "string"}, "description": "Up to five addresses of pages", "maxItems": URLS},
        },
        "required": ["urls"],
    });
    (
        "Fetches web pages and gives their text. Only addresses of the open internet can be reached.",
        parameters,
    )
}

pub(super) fn fetch(arguments: &Arguments) -> Result<Errand, String> {
    let urls: Vec<String> = match arguments.0.get("urls").or_else(|| arguments.0.get("url")) {
        Some(Value::String(url)) => vec![url.clone()],
        Some(Value::Array(many)) => many.iter().filter_map(|url| url.as_str().map(str::to_owned)).collect(),
        _ => return Err("The argument \"urls\" is missing.".to_owned()),
    };
    if urls.is_empty() || urls.len() > URLS {
        return Err(format!("Give one to {URLS} addresses."));
    }
    Ok(Errand::Fetch { urls })
}

pub(super) fn send_schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["list", "send"], "description": "list: the places that can be reached; default send"},
            "target": {"type": "string", "description": "platform (its home channel), platform:chat or platform:chat:thread; a chat is an id or a name from the list"},
            "message": {"type": "string"},
        },
    });
    (
        "Sends a message to a chat other than this one. Your answers here are delivered by themselves: do not send them.",
        parameters,
    )
}

pub(super) fn send(arguments: &Arguments) -> Result<Errand, String> {
    match arguments.maybe("action")?.unwrap_or("send") {
        "list" => return Ok(Errand::Places),
        "send" => {}
        other => return Err(format!("There is no action {other:?}: list or send.")),
    }
    let (to, text) = (arguments.text("target")?.trim().to_owned(), arguments.text("message")?.to_owned());
    if to.is_empty() || text.trim().is_empty() {
        return Err("A message needs a target and a text.".to_owned());
    }
    if text.chars().count() > LONGEST_MESSAGE {
        return Err(format!("A message has at most {LONGEST_MESSAGE} characters."));
    }
    Ok(Errand::Send { to, text })
}

pub(super) fn jobs_schema() -> (&'static str, Value) {
    let parameters = json!({
        "type": "object",
        "properties": {
            "action": {"type": "string", "enum": ["create", "list", "update", "pause", "resume", "remove", "run"]},
            "job_id": {"type": "string", "description": "Which job (update, pause, resume, remove, run)"},
            "name": {"type": "string"},
            "schedule": {"type": "string", "description": "30m (once, from now), every 2h, every 1d, a cron expression such as 0 9 * * 1-5, or a time such as 2027-02-03T14:00"},
            "prompt": {"type": "string", "description": "What to do then. It is read without this conversation: say everything that is needed"},
            "deliver": {"type": "string", "description": "origin (this chat, the default), local (a file), platform, platform:chat[:thread], all; several with commas"},
            "repeat": {"type": "integer", "description": "How often in all; default: until it is removed", "minimum": 1},
            "timezone": {"type": "string", "description": "IANA name; default: the owner's"},
        },
        "required": ["action"],
    });
    (
        "Schedules work for later: you are asked the prompt at that time, and your answer is delivered. An answer of [SILENT] is not.",
        parameters,
    )
}

pub(super) fn jobs(arguments: &Arguments) -> Result<Errand, String> {
    let id = || {
        let text = arguments.text("job_id")?;
        JobId::parse(text).ok_or_else(|| format!("{text:?} is no job's id: twelve hexadecimal digits."))
    };
    let owned = |name: &str| arguments.maybe(name).map(|text| text.map(str::to_owned));
    let repeat = match arguments.0.get("repeat") {
        None | Some(Value::Null) => None,
        Some(value) => Some(
            value.as_u64().and_then(|it| u32::try_from(it).ok()).ok_or("repeat is a whole number from 1.")?,
        ),
    };
    let enabled = |enabled: bool| Change { enabled: Some(enabled), ..Change::default() };
    Ok(Errand::Jobs(match arguments.text("action")? {
        "list" => JobErrand::List,
        "create" => JobErrand::Create(NewJob {
            name: owned("name")?,
            schedule: arguments.text("schedule")?.to_owned(),
            prompt: arguments.text("prompt")?.to_owned(),
            deliver: owned("deliver")?,
            repeat,
            timezone: owned("timezone")?,
        }),
        "update" => JobErrand::Update(
            id()?,
            Change {
                name: owned("name")?,
                schedule: owned("schedule")?,
                prompt: owned("prompt")?,
                deliver: owned("deliver")?,
                repeat,
                enabled: None,
            },
        ),
        "pause" => JobErrand::Update(id()?, enabled(false)),
        "resume" => JobErrand::Update(id()?, enabled(true)),
        "remove" => JobErrand::Remove(id()?),
        "run" => JobErrand::Run(id()?),
        other => return Err(format!("There is no action {other:?}.")),
    }))
}
