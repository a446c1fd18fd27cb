//! `todo`: the list of things to do in a conversation.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Errand, Plan, Todo};
use crate::tools::arguments::flag;
use crate::tools::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const MOST: usize = 100;
/// Characters of an item.
const LONGEST: usize = 500;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "todo",
        description: "Keeps your list of things to do in this conversation, for work of three steps or more. One item is in_progress at a time; mark items as you finish them.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::Anything,
        reach: Reach::Turn,
        runner: Runner::errand(read),
    }
}

#[derive(Deserialize, JsonSchema)]
struct Arguments {
    /// The list; leave it out to read it
    todos: Option<Vec<Todo>>,
    /// true: change only the items with these ids and add new ones; false: replace the whole list
    #[serde(default, deserialize_with = "flag")]
    merge: Option<bool>,
}

fn read(arguments: Arguments) -> Result<Errand, String> {
    let Some(items) = arguments.todos else { return Ok(Errand::Todo(None)) };
    if items.len() > MOST || items.iter().any(|item| item.content.chars().count() > LONGEST) {
        return Err(format!("At most {MOST} items of {LONGEST} characters."));
    }
    Ok(Errand::Todo(Some(Plan { items, merge: arguments.merge.unwrap_or_default() })))
}
