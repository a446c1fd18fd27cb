//! The `todo` tool: the todo list of a conversation.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{GatewayCall, TodoItem, TodoUpdate};
use crate::tools::registry::arguments::flag;
use crate::tools::registry::definition::{Definition, Effects, Reach, Runner, Service, Toolset};

const MAX_ITEMS: usize = 100;
/// Characters of an item.
const MAX_CHARS: usize = 500;

pub(in crate::tools) fn tool() -> Definition {
    Definition {
        name: "todo",
        description: "Keeps your list of things to do in this conversation, for work of three steps or more. One item is in_progress at a time; mark items as you finish them.",
        toolset: Toolset::Other,
        service: Service::Gateway,
        effects: Effects::Anything,
        paginated: false,
        reach: Reach::Turn,
        runner: Runner::gateway(parse_call),
    }
}

#[derive(Deserialize, JsonSchema)]
struct TodoArguments {
    /// The list; omit it to read the current one
    todos: Option<Vec<TodoItem>>,
    /// true: change only the items with these ids and add new ones; false: replace the whole list
    #[serde(default, deserialize_with = "flag")]
    merge: Option<bool>,
}

fn parse_call(arguments: TodoArguments) -> Result<GatewayCall, String> {
    let Some(items) = arguments.todos else { return Ok(GatewayCall::Todo(None)) };
    if items.len() > MAX_ITEMS || items.iter().any(|item| item.content.chars().count() > MAX_CHARS) {
        return Err(format!("At most {MAX_ITEMS} items of {MAX_CHARS} characters."));
    }
    Ok(GatewayCall::Todo(Some(TodoUpdate { items, merge: arguments.merge.unwrap_or_default() })))
}
