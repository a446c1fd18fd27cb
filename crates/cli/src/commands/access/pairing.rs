//! `petasos pairing`: lists, approves and revokes paired users.

use std::process::ExitCode;

use petasos_core::pairing::{CodeApproval, PairedUser, PairingState};
use petasos_core::text::nearest;
use petasos_core::{Millis, Platform};
use serde::Serialize;
use serde_json::{Value, json};

use crate::arguments::{PairingAction, PairingArguments};
use crate::client::{Client, Error};
use crate::commands::{Context, open_reader, write_offline};
use crate::failure::Failure;
use crate::print::{self, WARNING, ago, count, describe_until, now, outln, styled};

/// Pairing state of one platform, without the hashes of codes.
#[derive(Debug, Serialize)]
struct PlatformPairing {
    platform: Platform,
    pending: Vec<PairingPerson>,
    approved: Vec<PairingPerson>,
    locked_until: Option<Millis>,
}

#[derive(Debug, Serialize)]
struct PairingPerson {
    user_id: String,
    user_name: Option<String>,
    at: Millis,
}

pub async fn pairing(context: &Context, arguments: PairingArguments) -> Result<ExitCode, Failure> {
    match arguments.action.unwrap_or(PairingAction::List) {
        PairingAction::List => list(context).await,
        PairingAction::Approve { platform, code } => {
            approve(context, parse_platform(&platform)?, &code).await
        }
        PairingAction::Revoke { platform, user } => revoke(context, parse_platform(&platform)?, &user).await,
        PairingAction::Unlock { platform } => unlock(context, parse_platform(&platform)?).await,
    }
}

async fn list(context: &Context) -> Result<ExitCode, Failure> {
    let books = match open_reader(&context.home)? {
        Some(reader) => reader.pairing_states()?,
        None => Vec::new(),
    };
    let entries: Vec<PlatformPairing> =
        books.into_iter().map(|(platform, book)| platform_pairing(platform, book)).collect();
    if context.json {
        print::json(&entries)?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |platform: Platform, state: &str, person: &PairingPerson| {
        let name = person.user_name.clone().unwrap_or_default();
        vec![platform.to_string(), person.user_id.clone(), name, state.to_owned(), ago(person.at, now())]
    };
    let mut rows = Vec::new();
    for entry in &entries {
        if let Some(until) = entry.locked_until {
            let closed = format!("Pairing on {} is locked {}", entry.platform, describe_until(until, now()));
            outln!("{} (petasos pairing unlock {} unlocks it)", styled(WARNING, &closed), entry.platform);
        }
        rows.extend(entry.pending.iter().map(|person| row(entry.platform, "pending", person)));
        rows.extend(entry.approved.iter().map(|person| row(entry.platform, "approved", person)));
    }
    if rows.is_empty() {
        outln!("No pairing requests. Unknown people who write to the bot get a code to pass on to you");
        return Ok(ExitCode::SUCCESS);
    }
    print::table(&["PLATFORM", "USER", "NAME", "STATE", "SINCE"], &rows);
    Ok(ExitCode::SUCCESS)
}

/// `None` if the lock has expired.
pub fn lock_of(until: Option<Millis>) -> Option<Millis> {
    until.filter(|until| *until > now())
}

fn platform_pairing(platform: Platform, book: PairingState) -> PlatformPairing {
    let pending = book.pending.into_iter();
    let approved = book.approved.into_iter();
    PlatformPairing {
        platform,
        locked_until: lock_of(book.locked_until),
        pending: pending
            .map(|it| PairingPerson { user_id: it.user_id, user_name: it.user_name, at: it.created_at })
            .collect(),
        approved: approved
            .map(|it| PairingPerson { user_id: it.user_id, user_name: it.user_name, at: it.approved_at })
            .collect(),
    }
}

async fn approve(context: &Context, platform: Platform, code: &str) -> Result<ExitCode, Failure> {
    if let Some(client) = Client::connect(&context.home)? {
        let body = json!({ "platform": platform, "code": code });
        let response: Result<PairedUser, Error> = client.post("/api/pairing/approve", &body).await;
        return match response {
            Ok(person) => approved(context, &person),
            Err(error) => Err(refused(platform, error)),
        };
    }
    let approval = write_offline(&context.home, |tx| tx.pairing_approve(platform, code, now()))?;
    match approval {
        None => Err(not_a_code()),
        Some(CodeApproval::Approved(person)) => approved(context, &person),
        Some(CodeApproval::Wrong { left }) => Err(wrong(platform, left)),
        Some(CodeApproval::Locked { until }) => Err(locked(platform, until)),
    }
}

/// Reports the gateway's error in the same words as without a gateway.
fn refused(platform: Platform, error: Error) -> Failure {
    let number = |name: &str| error.detail(name).and_then(Value::as_u64);
    match error.detail("code").and_then(Value::as_str) {
        Some("not_a_code") => not_a_code(),
        Some("wrong_code") => {
            wrong(platform, number("left").and_then(|left| usize::try_from(left).ok()).unwrap_or_default())
        }
        Some("locked") => locked(platform, Millis(number("until").unwrap_or_default())),
        Some(_) | None => error.into(),
    }
}

fn approved(context: &Context, person: &PairedUser) -> Result<ExitCode, Failure> {
    if context.json {
        print::json(&json!({ "approved": person }))?;
    } else {
        let name = person.user_name.as_deref().unwrap_or(&person.user_id);
        outln!("{name} can talk to the agent now");
    }
    Ok(ExitCode::SUCCESS)
}

async fn revoke(context: &Context, platform: Platform, user: &str) -> Result<ExitCode, Failure> {
    let done = match Client::connect(&context.home)? {
        Some(client) => {
            let body = json!({ "platform": platform, "user": user });
            let response: serde_json::Value = client.post("/api/pairing/revoke", &body).await?;
            response["done"].as_bool().unwrap_or_default()
        }
        None => write_offline(&context.home, |tx| tx.pairing_revoke(platform, user))?,
    };
    if !done {
        return Err(Failure::new(format!("{user} is not paired on {platform}"))
            .next("petasos pairing list shows paired users"));
    }
    if context.json {
        print::json(&json!({ "revoked": user }))?;
    } else {
        outln!("{user} can no longer talk to the agent");
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_platform(platform: &str) -> Result<Platform, Failure> {
    Platform::parse(platform).ok_or_else(|| {
        let failure = Failure::new(format!("unknown platform {platform}"));
        match nearest(platform, Platform::all().map(Platform::as_str)) {
            Some(meant) => failure.next(format!("did you mean {meant}?")),
            None => failure.next("use the name of a platform, such as telegram, discord or slack"),
        }
    })
}

async fn unlock(context: &Context, platform: Platform) -> Result<ExitCode, Failure> {
    let locked = match Client::connect(&context.home)? {
        Some(client) => {
            let response: serde_json::Value =
                client.post("/api/pairing/unlock", &json!({ "platform": platform })).await?;
            response["done"] == json!(true)
        }
        None => write_offline(&context.home, |tx| tx.pairing_unlock(platform))?,
    };
    if context.json {
        print::json(&json!({ "platform": platform, "was_locked": locked }))?;
    } else if locked {
        outln!("Pairing on {platform} is unlocked");
    } else {
        outln!("Pairing on {platform} was not locked; the count of wrong codes is reset");
    }
    Ok(ExitCode::SUCCESS)
}

fn not_a_code() -> Failure {
    Failure::new("this is not a pairing code; the attempt was not counted").next(
        "a code has 8 letters and digits, such as ABCD2345; the bot sends it to the person who asks, \
         and petasos pairing lists pending requests",
    )
}

fn wrong(platform: Platform, left: usize) -> Failure {
    let failure = match left {
        0 => Failure::new("no pending request has this code, and pairing is now locked for an hour"),
        left => {
            let more = count(left, "more wrong code", "more wrong codes");
            Failure::new(format!(
                "no pending request has this code; {more} {} pairing for an hour",
                if left == 1 { "locks" } else { "lock" }
            ))
        }
    };
    failure.next(match left {
        0 => format!("petasos pairing unlock {platform} unlocks it"),
        _ => "codes are valid for an hour; the person gets a new one by writing to the bot again".into(),
    })
}

fn locked(platform: Platform, until: Millis) -> Failure {
    Failure::new(format!("too many wrong codes: pairing is locked {}", describe_until(until, now())))
        .next(format!("wait, or petasos pairing unlock {platform}"))
}
