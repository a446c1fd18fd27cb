//! `petasos pairing`: who was let in by a code, and who asks.

use std::process::ExitCode;

use petasos_core::pairing::{Approval, Approved, Book};
use petasos_core::text::nearest;
use petasos_core::{Millis, Platform};
use serde::Serialize;
use serde_json::json;

use super::{Context, reader, write};
use crate::arguments::{Pairing, PairingAction};
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, ago, now};

/// One platform; the hashes of codes stay where they are.
#[derive(Debug, Serialize)]
struct Entry {
    platform: Platform,
    pending: Vec<Person>,
    approved: Vec<Person>,
}

#[derive(Debug, Serialize)]
struct Person {
    user_id: String,
    user_name: Option<String>,
    at: Millis,
}

pub(crate) async fn pairing(context: &Context, wanted: Pairing) -> Result<ExitCode, Failure> {
    match wanted.action.unwrap_or(PairingAction::List) {
        PairingAction::List => list(context).await,
        PairingAction::Approve { platform, code } => approve(context, named(&platform)?, &code).await,
        PairingAction::Revoke { platform, user } => revoke(context, named(&platform)?, &user).await,
    }
}

/// Pairing is in the database; reading it needs nobody's help.
async fn list(context: &Context) -> Result<ExitCode, Failure> {
    let books = match reader(&context.home)? {
        Some(reader) => reader.pairing_books()?,
        None => Vec::new(),
    };
    let entries: Vec<Entry> = books.into_iter().map(|(platform, book)| entry(platform, book)).collect();
    if context.json {
        print::json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |platform: Platform, state: &str, person: &Person| {
        let name = person.user_name.clone().unwrap_or_default();
        vec![platform.to_string(), person.user_id.clone(), name, state.to_owned(), ago(person.at, now())]
    };
    let mut rows = Vec::new();
    for entry in &entries {
        rows.extend(entry.pending.iter().map(|person| row(entry.platform, "asks", person)));
        rows.extend(entry.approved.iter().map(|person| row(entry.platform, "is in", person)));
    }
    if rows.is_empty() {
        crate::print::say!("nobody has asked; strangers who write to the bot get a code to tell you");
        return Ok(ExitCode::SUCCESS);
    }
    print::table(&["PLATFORM", "USER", "NAME", "STATE", "SINCE"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn entry(platform: Platform, book: Book) -> Entry {
    let pending = book.pending.into_iter();
    let approved = book.approved.into_iter();
    Entry {
        platform,
        pending: pending
            .map(|it| Person { user_id: it.user_id, user_name: it.user_name, at: it.created_at })
            .collect(),
        approved: approved
            .map(|it| Person { user_id: it.user_id, user_name: it.user_name, at: it.approved_at })
            .collect(),
    }
}

async fn approve(context: &Context, platform: Platform, code: &str) -> Result<ExitCode, Failure> {
    if let Some(client) = Client::connect(&context.home)? {
        let body = json!({ "platform": platform, "code": code });
        let person: Approved = client.post("/api/pairing/approve", &body).await?;
        return approved(context, &person);
    }
    let approval = write(&context.home, |tx| tx.pairing_approve(platform, code, now()))?;
    match approval {
        None => Err(not_a_code()),
        Some(Approval::Approved(person)) => approved(context, &person),
        Some(Approval::Wrong { left }) => Err(wrong(left)),
        Some(Approval::Locked { until }) => Err(locked(until)),
    }
}

fn approved(context: &Context, person: &Approved) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&json!({ "approved": person }))?;
    } else {
        let name = person.user_name.as_deref().unwrap_or(&person.user_id);
        crate::print::say!("{name} may talk to the agent now");
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(context: &Context, platform: Platform, user: &str) -> Result<ExitCode, Failure> {
    let done = match Client::connect(&context.home)? {
        Some(client) => {
            let body = json!({ "platform": platform, "user": user });
            let told: serde_json::Value = client.post("/api/pairing/revoke", &body).await?;
            told["done"].as_bool().unwrap_or_default()
        }
        None => write(&context.home, |tx| tx.pairing_revoke(platform, user))?,
    };
    if !done {
        return Err(Failure::new(format!("{user} is not paired on {platform}")).next("petasos pairing list"));
    }
    if context.json {
        print::json(&json!({ "revoked": user }))?;
    } else {
        crate::print::say!("{user} is out");
    }
    Ok(ExitCode::SUCCESS)
}

fn named(platform: &str) -> Result<Platform, Failure> {
    Platform::parse(platform).ok_or_else(|| {
        let failure = Failure::new(format!("unknown platform {platform}"));
        match nearest(platform, Platform::known().map(Platform::as_str)) {
            Some(meant) => failure.next(format!("did you mean {meant}?")),
            None => failure.next("petasos pairing list shows the platforms"),
        }
    })
}

fn not_a_code() -> Failure {
    Failure::new("that is not a pairing code").next("a code has 8 letters and digits, such as ABCD-EFGH")
}

fn wrong(left: usize) -> Failure {
    Failure::new(format!("no pending request has this code; {left} more errors close pairing for an hour"))
        .next("codes live for an hour; ask for a fresh one")
}

fn locked(until: Millis) -> Failure {
    let minutes = until.since(now()).as_secs() / 60 + 1;
    Failure::new("too many wrong codes: pairing is closed").next(format!("try again in {minutes} min"))
}
