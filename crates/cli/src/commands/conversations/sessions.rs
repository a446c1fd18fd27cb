//! `petasos sessions`: lists conversations and shows their messages, read from the database.

mod archived;

use std::process::ExitCode;

use petasos_core::SessionId;
use petasos_core::ids::RowId;
use petasos_core::transcript::Role;
use petasos_store::{Reader, RowState, SessionRow};
use serde_json::{Value, json};

use crate::arguments::{SessionsAction, SessionsArguments};
use crate::commands::{Context, open_reader};
use crate::failure::Failure;
use crate::print::{self, BOLD, DIM, ago, now, styled, truncate};

pub const NO_LIMIT: usize = 1_000_000;

pub async fn sessions(context: &Context, arguments: SessionsArguments) -> Result<ExitCode, Failure> {
    let reader = open_reader(&context.home)?;
    match arguments.action.unwrap_or(SessionsAction::List) {
        SessionsAction::List => list(context, reader.as_ref(), arguments.limit),
        SessionsAction::Show { id } => show(context, reader.as_ref(), &id, arguments.limit),
        SessionsAction::Archive => archived::list(context, reader.as_ref(), arguments.limit),
        SessionsAction::Restore { id } => archived::restore(context, reader, &id),
    }
}

fn list(context: &Context, reader: Option<&Reader>, limit: usize) -> Result<ExitCode, Failure> {
    let found = match reader {
        Some(reader) => reader.sessions(None, limit)?,
        None => Vec::new(),
    };
    if context.json {
        print::json(&found.iter().map(as_json).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        crate::print::outln!("No conversations yet; petasos chat starts one");
        return Ok(ExitCode::SUCCESS);
    }
    let rows = found.iter().map(|row| {
        vec![
            row.id.to_string(),
            row.platform.clone().unwrap_or_default(),
            row.message_count.to_string(),
            ago(row.last_at, now()),
            truncate(row.title.as_deref().or(row.display_name.as_deref()).unwrap_or("-"), 50),
        ]
    });
    print::table(&["ID", "PLATFORM", "MESSAGES", "LAST", "TITLE"], &rows.collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

fn show(context: &Context, reader: Option<&Reader>, id: &str, limit: usize) -> Result<ExitCode, Failure> {
    let missing = || Failure::new(format!("there is no session {id}")).next("petasos sessions lists them");
    let reader = reader.ok_or_else(missing)?;
    let session = match reader.session(&SessionId(id.to_owned()))? {
        Some(session) => session,
        None => find_by_prefix(reader, id)?.ok_or_else(missing)?,
    };
    let rows = reader.rows_after(&session.id, RowId(0), limit)?;
    if context.json {
        let messages = rows.iter().map(|row| {
            let mut value = json!(row.message);
            value["id"] = json!(row.id);
            value["state"] = json!(row.state.as_str());
            value
        });
        let mut output = as_json(&session);
        output["messages"] = messages.collect();
        print::json(&output)?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::print::outln!("{}  {}", styled(BOLD, session.id.as_str()), session.key);
    for row in rows {
        let speaker = match row.message.role {
            Role::User => "you",
            Role::Assistant => "agent",
            Role::Tool => row.message.tool_name.as_deref().unwrap_or("tool"),
            Role::Notice => "gateway",
            Role::Summary => "summary",
        };
        let state = match row.state {
            RowState::Active => String::new(),
            state => format!(" ({})", state.as_str()),
        };
        crate::print::outln!(
            "\n{}",
            styled(DIM, &format!("{speaker}{state}, {}", ago(row.message.at, now())))
        );
        if !row.message.content.is_empty() {
            crate::print::outln!("{}", row.message.content);
        }
        for call in &row.message.tool_calls {
            crate::print::outln!(
                "{}",
                styled(DIM, &format!("⚙ {} {}", call.name, truncate(&call.arguments, 80)))
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The only session whose id starts with `start`.
fn find_by_prefix(reader: &Reader, start: &str) -> Result<Option<SessionRow>, Failure> {
    let mut found = reader.sessions(None, NO_LIMIT)?;
    found.retain(|row| !start.is_empty() && row.id.as_str().starts_with(start));
    if found.len() > 1 {
        let ids: Vec<&str> = found.iter().take(5).map(|row| row.id.as_str()).collect();
        let failure = Failure::new(format!("{} sessions start with {start}", found.len()));
        return Err(failure.next(format!("type more of the id: {}", ids.join(", "))));
    }
    Ok(found.pop())
}

fn as_json(row: &SessionRow) -> Value {
    json!({
        "id": row.id, "key": row.key, "platform": row.platform, "display_name": row.display_name,
        "parent": row.parent, "model": row.model, "title": row.title, "started_at": row.started_at,
        "last_at": row.last_at, "message_count": row.message_count, "usage": row.usage,
        "ended_at": row.ended.as_ref().map(|ended| ended.at),
        "end_reason": row.ended.as_ref().map(|ended| ended.reason.as_str()),
    })
}
