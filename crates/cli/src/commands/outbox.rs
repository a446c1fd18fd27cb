//! `petasos outbox`: what is owed to chats, and what was given up.

use std::process::ExitCode;

use petasos_core::OutboxId;
use petasos_core::dead::DeadChat;
use petasos_core::outbox::{Item, State};
use serde_json::json;

use super::links::rate_limit;
use super::{Context, reader, write};
use crate::arguments::{Outbox, OutboxAction, OutboxState};
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, DIM, ODD, ago, cut, now, say, styled};

/// Messages of each state that are shown without `--all`.
const MOST: usize = 200;
/// The same for dead chats below the list, and for rate limits above it.
const LINES: usize = 20;

pub async fn outbox(context: &Context, wanted: Outbox) -> Result<ExitCode, Failure> {
    match wanted.action.unwrap_or(OutboxAction::List) {
        OutboxAction::List => list(context, wanted.state, wanted.all),
        OutboxAction::Retry { id } => retry(context, id).await,
        OutboxAction::Drop { id } => forget(context, id).await,
    }
}

fn list(context: &Context, wanted: Option<OutboxState>, all: bool) -> Result<ExitCode, Failure> {
    let (most, lines) = if all { (usize::MAX, usize::MAX) } else { (MOST, LINES) };
    let states = match wanted {
        Some(state) => vec![meaning(state)],
        None => vec![State::Dead, State::Sending, State::Due, State::Streaming],
    };
    let mut items: Vec<Item> = Vec::new();
    let mut cut_off = Vec::new();
    let (mut dead, mut limits) = (Vec::new(), Vec::new());
    if let Some(reader) = reader(&context.home)? {
        for state in states {
            let mut found = reader.items_in(state, most.saturating_add(1))?;
            if found.len() > most {
                found.truncate(most);
                cut_off.push(state);
            }
            items.extend(found);
        }
        dead = reader.dead_chats()?;
        limits = reader.penalties()?;
    }
    limits.retain(|penalty| penalty.until > now());
    if context.json {
        print::json(&json!({ "items": items, "dead_chats": dead, "rate_limits": limits }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for penalty in limits.iter().take(lines) {
        say!("{}", styled(ODD, &rate_limit(penalty, now())));
    }
    more(limits.len().saturating_sub(lines), "rate limits");
    if items.is_empty() {
        match wanted {
            None => say!("nothing; every answer has been delivered"),
            Some(state) => say!("none is {}", meaning(state).as_str()),
        }
        return Ok(ExitCode::SUCCESS);
    }
    let rows = items.iter().map(|item| {
        vec![
            item.id.to_string(),
            item.state.as_str().to_owned(),
            item.draft.route.lane().to_string(),
            ago(item.created_at, now()),
            item.attempts.to_string(),
            cut(item.last_error.as_deref().unwrap_or("-"), 60),
        ]
    });
    print::table(&["ID", "STATE", "CHAT", "SINCE", "TRIES", "LAST ERROR"], &rows.collect::<Vec<_>>());
    for state in cut_off {
        say!(
            "{}",
            styled(
                DIM,
                &format!("only the first {most} that are {} are listed; --all lists all", state.as_str())
            )
        );
    }
    for chat in dead.iter().take(lines) {
        say!("{}", styled(ODD, &about(chat)));
    }
    more(dead.len().saturating_sub(lines), "dead chats");
    if !dead.is_empty() {
        say!("{}", styled(DIM, &format!("→ {ADVICE}")));
    }
    Ok(ExitCode::SUCCESS)
}

fn more(count: usize, what: &str) {
    if count > 0 {
        say!("{}", styled(DIM, &format!("and {count} more {what}; --all lists them")));
    }
}

/// What somebody can do about a dead chat.
pub const ADVICE: &str = "unblock or invite the bot there; a message from that chat or `petasos outbox retry ID` opens it again, \
                                 and one message a day is tried anyway";

/// A dead chat, in a line.
pub fn about(dead: &DeadChat) -> String {
    let since = ago(dead.marked_at, now());
    format!("{}:{} refused us {since}: {}", dead.platform, dead.chat_id, cut(&dead.reason, 80))
}

async fn retry(context: &Context, id: i64) -> Result<ExitCode, Failure> {
    let done = match Client::connect(&context.home)? {
        Some(client) => done(client.post(&format!("/api/outbox/{id}/retry"), &json!({})).await?),
        None => write(&context.home, |tx| tx.retry_item(OutboxId(id), petasos_gateway::clock::now()))?,
    };
    told(context, id, done, "is owed again")
}

async fn forget(context: &Context, id: i64) -> Result<ExitCode, Failure> {
    let done = match Client::connect(&context.home)? {
        Some(client) => done(client.delete(&format!("/api/outbox/{id}")).await?),
        None => write(&context.home, |tx| tx.drop_item(OutboxId(id)))?,
    };
    told(context, id, done, "is forgotten")
}

fn done(answer: serde_json::Value) -> bool {
    answer["done"].as_bool().unwrap_or_default()
}

fn told(context: &Context, id: i64, done: bool, what: &str) -> Result<ExitCode, Failure> {
    if !done {
        let failure = Failure::new(format!("there is no given-up message {id}"));
        return Err(failure.next("petasos outbox --state dead lists them"));
    }
    if context.json {
        print::json(&json!({ "id": id, "done": true }))?;
    } else {
        say!("message {id} {what}");
    }
    Ok(ExitCode::SUCCESS)
}

const fn meaning(state: OutboxState) -> State {
    match state {
        OutboxState::Streaming => State::Streaming,
        OutboxState::Due => State::Due,
        OutboxState::Sending => State::Sending,
        OutboxState::Done => State::Done,
        OutboxState::Dead => State::Dead,
    }
}
