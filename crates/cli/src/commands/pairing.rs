//! `petasos pairing`: who was let in by a code, and who asks.

use std::process::ExitCode;

use petasos_core::pairing::{Approval, Approved, Book};
use petasos_core::text::nearest;
use petasos_core::{Millis, Platform};
use serde::Serialize;
use serde_json::{Value, json};

use super::{Context, reader, write};
use crate::arguments::{Pairing, PairingAction};
use crate::client::{Client, Error};
use crate::failure::Failure;
use crate::print::{self, ODD, ago, count, moment, now, say, styled};

/// One platform; the hashes of codes stay where they are.
#[derive(Debug, Serialize)]
struct Entry {
    platform: Platform,
    pending: Vec<Person>,
    approved: Vec<Person>,
    /// After too many wrong codes; `None` when codes are taken.
    locked_until: Option<Millis>,
}

#[derive(Debug, Serialize)]
struct Person {
    user_id: String,
    user_name: Option<String>,
    at: Millis,
}

pub async fn pairing(context: &Context, wanted: Pairing) -> Result<ExitCode, Failure> {
    match wanted.action.unwrap_or(PairingAction::List) {
        PairingAction::List => list(context).await,
        PairingAction::Approve { platform, code } => approve(context, named(&platform)?, &code).await,
        PairingAction::Revoke { platform, user } => revoke(context, named(&platform)?, &user).await,
        PairingAction::Unlock { platform } => unlock(context, named(&platform)?).await,
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
        if let Some(until) = entry.locked_until {
            let closed = format!("pairing on {} is closed {}", entry.platform, moment(until, now()));
            say!("{} (petasos pairing unlock {} opens it)", styled(ODD, &closed), entry.platform);
        }
        rows.extend(entry.pending.iter().map(|person| row(entry.platform, "asks", person)));
        rows.extend(entry.approved.iter().map(|person| row(entry.platform, "is in", person)));
    }
    if rows.is_empty() {
        say!("nobody has asked; strangers who write to the bot get a code to tell you");
        return Ok(ExitCode::SUCCESS);
    }
    print::table(&["PLATFORM", "USER", "NAME", "STATE", "SINCE"], &rows);
    Ok(ExitCode::SUCCESS)
}

/// A lock that has run out is none.
pub fn lock_of(until: Option<Millis>) -> Option<Millis> {
    until.filter(|until| *until > now())
}

fn entry(platform: Platform, book: Book) -> Entry {
    let pending = book.pending.into_iter();
    let approved = book.approved.into_iter();
    Entry {
        platform,
        locked_until: lock_of(book.locked_until),
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
        let told: Result<Approved, Error> = client.post("/api/pairing/approve", &body).await;
        return match told {
            Ok(person) => approved(context, &person),
            Err(error) => Err(refused(platform, error)),
        };
    }
    let approval = write(&context.home, |tx| tx.pairing_approve(platform, code, now()))?;
    match approval {
        None => Err(not_a_code()),
        Some(Approval::Approved(person)) => approved(context, &person),
        Some(Approval::Wrong { left }) => Err(wrong(platform, left)),
        Some(Approval::Locked { until }) => Err(locked(platform, until)),
    }
}

/// The same words as without a gateway.
fn refused(platform: Platform, error: Error) -> Failure {
    let number = |name: &str| error.fact(name).and_then(Value::as_u64);
    match error.fact("code").and_then(Value::as_str) {
        Some("not_a_code") => not_a_code(),
        Some("wrong_code") => {
            wrong(platform, number("left").and_then(|left| usize::try_from(left).ok()).unwrap_or_default())
        }
        Some("locked") => locked(platform, Millis(number("until").unwrap_or_default())),
        Some(_) | None => error.into(),
    }
}

fn approved(context: &Context, person: &Approved) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&json!({ "approved": person }))?;
    } else {
        let name = person.user_name.as_deref().unwrap_or(&person.user_id);
        say!("{name} may talk to the agent now");
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
        say!("{user} is out");
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

/// Forgets the wrong codes.
async fn unlock(context: &Context, platform: Platform) -> Result<ExitCode, Failure> {
    let locked = match Client::connect(&context.home)? {
        Some(client) => {
            let told: serde_json::Value =
                client.post("/api/pairing/unlock", &json!({ "platform": platform })).await?;
            told["done"] == json!(true)
        }
        None => write(&context.home, |tx| tx.pairing_unlock(platform))?,
    };
    if context.json {
        print::json(&json!({ "platform": platform, "was_locked": locked }))?;
    } else if locked {
        say!("pairing on {platform} is open again");
    } else {
        say!("pairing on {platform} was open; wrong codes are forgotten");
    }
    Ok(ExitCode::SUCCESS)
}

fn not_a_code() -> Failure {
    Failure::new("that is not a pairing code; nothing was counted").next(
        "a code has 8 letters and digits, such as ABCD2345; the bot tells it to the person who asks, \
         and petasos pairing lists who is waiting",
    )
}

fn wrong(platform: Platform, left: usize) -> Failure {
    let failure = match left {
        0 => Failure::new("no pending request has this code, and pairing is closed for an hour now"),
        left => {
            let more = count(left, "more wrong code", "more wrong codes");
            Failure::new(format!(
                "no pending request has this code; {more} {} pairing for an hour",
                if left == 1 { "closes" } else { "close" }
            ))
        }
    };
    failure.next(match left {
        0 => format!("petasos pairing unlock {platform} opens it again"),
        _ => "codes live for an hour; the person gets a fresh one by writing to the bot again".into(),
    })
}

fn locked(platform: Platform, until: Millis) -> Failure {
    Failure::new(format!("too many wrong codes: pairing is closed {}", moment(until, now())))
        .next(format!("wait, or petasos pairing unlock {platform}"))
}
