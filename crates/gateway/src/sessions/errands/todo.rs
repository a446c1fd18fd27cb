//! The `todo` tool: one list per transcript, in the store.

use petasos_agent::{SessionCtx, TodoItem, TodoStatus, TodoUpdate};
use petasos_core::SessionId;
use serde_json::json;

use super::{ErrandResult, error_text};
use crate::clock;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;

const MAX_ITEMS: usize = 100;

pub(super) async fn run(db: &Db, ctx: &SessionCtx, plan: Option<TodoUpdate>) -> ErrandResult {
    let session = ctx.session.clone();
    let done = db.write(Commit::Todo, move |tx| {
        let current = parse(tx.todos(&session)?);
        let Some(plan) = plan else { return Ok(Some(current)) };
        let items = if plan.merge { merge_items(current, plan.items) } else { plan.items };
        if items.len() > MAX_ITEMS {
            return Ok(None);
        }
        tx.put_todos(&session, &serde_json::to_string(&items).unwrap_or_default(), clock::now())?;
        Ok(Some(items))
    });
    let items =
        done.await.map_err(error_text)?.ok_or_else(|| format!("A list has at most {MAX_ITEMS} items."))?;
    let count = |status: TodoStatus| items.iter().filter(|item| item.status == status).count();
    Ok(json!({
        "todos": items,
        "summary": {
            "total": items.len(),
            "pending": count(TodoStatus::Pending),
            "in_progress": count(TodoStatus::InProgress),
            "completed": count(TodoStatus::Completed),
            "cancelled": count(TodoStatus::Cancelled),
        },
    }))
}

/// The open items, for a conversation whose rows were compacted; `None`: none.
pub(crate) async fn open_items(db: &Db, session: &SessionId) -> Option<String> {
    let id = session.clone();
    let items = match db.read(move |reader| reader.todos(&id)).await {
        Ok(items) => parse(items),
        Err(error) => {
            tracing::warn!(%error, "cannot read a todo list");
            return None;
        }
    };
    let open =
        items.iter().filter(|item| matches!(item.status, TodoStatus::Pending | TodoStatus::InProgress));
    let lines: Vec<_> = open
        .map(|item| {
            let mark = if item.status == TodoStatus::InProgress { ">" } else { " " };
            format!("- [{mark}] {} ({})", item.content, item.id)
        })
        .collect();
    (!lines.is_empty())
        .then(|| format!("Your list of things to do, as the todo tool has it:\n{}", lines.join("\n")))
}

/// An unreadable list counts as empty: it is only the agent's own note.
fn parse(stored: Option<String>) -> Vec<TodoItem> {
    stored.and_then(|items| serde_json::from_str(&items).ok()).unwrap_or_default()
}

fn merge_items(mut current: Vec<TodoItem>, new: Vec<TodoItem>) -> Vec<TodoItem> {
    for item in new {
        match current.iter_mut().find(|old| old.id == item.id) {
            Some(old) => *old = item,
            None => current.push(item),
        }
    }
    current
}
