//! `petasos outbox`: undelivered messages, dead letters, dead chats and rate limits.

use std::process::ExitCode;

use petasos_core::OutboxId;
use petasos_core::dead_chat::DeadChat;
use petasos_core::outbox::{Item, State};
use serde_json::json;

use super::links::rate_limit;
use crate::arguments::{OutboxAction, OutboxArguments, OutboxStateFilter};
use crate::client::Client;
use crate::commands::{Context, open_reader, write_offline};
use crate::failure::Failure;
use crate::print::{self, DIM, WARNING, ago, now, outln, styled, truncate};

/// Messages per state without `--all`.
const MAX_MESSAGES: usize = 200;
/// Dead chats and rate limits without `--all`.
const MAX_LINES: usize = 20;

pub async fn outbox(context: &Context, arguments: OutboxArguments) -> Result<ExitCode, Failure> {
    match arguments.action.unwrap_or(OutboxAction::List) {
        OutboxAction::List => list(context, arguments.state, arguments.all),
        OutboxAction::Retry { id } => retry(context, id).await,
        OutboxAction::Drop { id } => drop_message(context, id).await,
    }
}

fn list(context: &Context, filter: Option<OutboxStateFilter>, all: bool) -> Result<ExitCode, Failure> {
    let max_messages = if all { usize::MAX } else { MAX_MESSAGES };
    let max_lines = if all { usize::MAX } else { MAX_LINES };
    let states = match filter {
        Some(state) => vec![store_state(state)],
        None => vec![State::Dead, State::Sending, State::Due, State::Streaming],
    };
    let mut items: Vec<Item> = Vec::new();
    let mut cut_off = Vec::new();
    let mut dead = Vec::new();
    let mut limits = Vec::new();
    if let Some(reader) = open_reader(&context.home)? {
        for state in states {
            let mut found = reader.items_in(state, max_messages.saturating_add(1))?;
            if found.len() > max_messages {
                found.truncate(max_messages);
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
    for penalty in limits.iter().take(max_lines) {
        outln!("{}", styled(WARNING, &rate_limit(penalty, now())));
    }
    print_omitted(limits.len().saturating_sub(max_lines), "rate limits");
    if items.is_empty() {
        match filter {
            None => outln!("The outbox is empty; every message has been delivered"),
            Some(state) => outln!("No message is {}", store_state(state).as_str()),
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
            truncate(item.last_error.as_deref().unwrap_or("-"), 60),
        ]
    });
    print::table(&["ID", "STATE", "CHAT", "SINCE", "TRIES", "LAST ERROR"], &rows.collect::<Vec<_>>());
    for state in cut_off {
        outln!(
            "{}",
            styled(
                DIM,
                &format!(
                    "Only the first {max_messages} messages in state {} are listed; --all lists every message",
                    state.as_str()
                )
            )
        );
    }
    for chat in dead.iter().take(max_lines) {
        outln!("{}", styled(WARNING, &about(chat)));
    }
    print_omitted(dead.len().saturating_sub(max_lines), "dead chats");
    if !dead.is_empty() {
        outln!("{}", styled(DIM, &format!("→ {ADVICE}")));
    }
    Ok(ExitCode::SUCCESS)
}

fn print_omitted(count: usize, what: &str) {
    if count > 0 {
        outln!("{}", styled(DIM, &format!("And {count} more {what}; --all lists every one")));
    }
}

pub const ADVICE: &str = "unblock or invite the bot there; a message from that chat or `petasos outbox retry ID` reopens it, \
                                 and one message a day is tried as a probe";

pub fn about(dead: &DeadChat) -> String {
    let since = ago(dead.marked_at, now());
    format!("{}:{} rejected the bot {since}: {}", dead.platform, dead.chat_id, truncate(&dead.reason, 80))
}

async fn retry(context: &Context, id: i64) -> Result<ExitCode, Failure> {
    let done = match Client::connect(&context.home)? {
        Some(client) => is_done(client.post(&format!("/api/outbox/{id}/retry"), &json!({})).await?),
        None => {
            write_offline(&context.home, |tx| tx.retry_item(OutboxId(id), petasos_gateway::clock::now()))?
        }
    };
    print_result(context, id, done, "is queued again")
}

async fn drop_message(context: &Context, id: i64) -> Result<ExitCode, Failure> {
    let done = match Client::connect(&context.home)? {
        Some(client) => is_done(client.delete(&format!("/api/outbox/{id}")).await?),
        None => write_offline(&context.home, |tx| tx.drop_item(OutboxId(id)))?,
    };
    print_result(context, id, done, "was deleted")
}

fn is_done(response: serde_json::Value) -> bool {
    response["done"].as_bool().unwrap_or_default()
}

fn print_result(context: &Context, id: i64, done: bool, outcome: &str) -> Result<ExitCode, Failure> {
    if !done {
        let failure = Failure::new(format!("no dead-lettered message has the id {id}"));
        return Err(failure.next("petasos outbox --state dead lists all"));
    }
    if context.json {
        print::json(&json!({ "id": id, "done": true }))?;
    } else {
        outln!("Message {id} {outcome}");
    }
    Ok(ExitCode::SUCCESS)
}

const fn store_state(state: OutboxStateFilter) -> State {
    match state {
        OutboxStateFilter::Streaming => State::Streaming,
        OutboxStateFilter::Due => State::Due,
        OutboxStateFilter::Sending => State::Sending,
        OutboxStateFilter::Done => State::Done,
        OutboxStateFilter::Dead => State::Dead,
    }
}
