//! The list of things to do: one per transcript, in the store.

use petasos_agent::{Plan, SessionCtx, Status, Todo};
use petasos_core::SessionId;
use serde_json::json;

use super::{Outcome, trouble};
use crate::clock;
use crate::runtime::commit::Commit;
use crate::storage::database::Db;

const MOST: usize = 100;

pub(super) async fn run(db: &Db, ctx: &SessionCtx, plan: Option<Plan>) -> Outcome {
    let session = ctx.session.clone();
    let done = db.write(Commit::Todo, move |tx| {
        let known = read(tx.todos(&session)?);
        let Some(plan) = plan else { return Ok(Some(known)) };
        let items = if plan.merge { merged(known, plan.items) } else { plan.items };
        if items.len() > MOST {
            return Ok(None);
        }
        tx.put_todos(&session, &serde_json::to_string(&items).unwrap_or_default(), clock::now())?;
        Ok(Some(items))
    });
    let items = done.await.map_err(trouble)?.ok_or_else(|| format!("A list has at most {MOST} items."))?;
    let count = |status: Status| items.iter().filter(|item| item.status == status).count();
    Ok(json!({
        "todos": items,
        "summary": {
            "total": items.len(),
            "pending": count(Status::Pending),
            "in_progress": count(Status::InProgress),
            "completed": count(Status::Completed),
            "cancelled": count(Status::Cancelled),
        },
    }))
}

/// What is still to be done, for whoever no longer sees how it was set; `None`: nothing.
pub(crate) async fn reminder(db: &Db, session: &SessionId) -> Option<String> {
    let id = session.clone();
    let items = match db.read(move |reader| reader.todos(&id)).await {
        Ok(items) => read(items),
        Err(error) => {
            tracing::warn!(%error, "a list of things to do cannot be read");
            return None;
        }
    };
    let open = items.iter().filter(|item| matches!(item.status, Status::Pending | Status::InProgress));
    let lines: Vec<_> = open
        .map(|item| {
            let mark = if item.status == Status::InProgress { ">" } else { " " };
            format!("- [{mark}] {} ({})", item.content, item.id)
        })
        .collect();
    (!lines.is_empty())
        .then(|| format!("Your list of things to do, as the todo tool has it:\n{}", lines.join("\n")))
}

/// A list that cannot be read is an empty one: it is the agent's own note.
fn read(stored: Option<String>) -> Vec<Todo> {
    stored.and_then(|items| serde_json::from_str(&items).ok()).unwrap_or_default()
}

fn merged(mut known: Vec<Todo>, new: Vec<Todo>) -> Vec<Todo> {
    for item in new {
        match known.iter_mut().find(|old| old.id == item.id) {
            Some(old) => *old = item,
            None => known.push(item),
        }
    }
    known
}
