//! `petasos send`: says something in a chat, from this machine.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::Context;
use crate::arguments::Send;
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, BAD, GOOD, ODD, say, styled};

/// As the control socket takes it.
const LONGEST: u64 = 1 << 20;
/// For the gateway itself, beside the wait for the platforms.
const PATIENCE: Duration = Duration::from_secs(30);
/// Owed, but nobody knows yet whether it arrives: as `sendmail` says it.
const QUEUED: u8 = 75;

/// What we read of the gateway's answer.
#[derive(Debug, Deserialize)]
struct Answer {
    posted: Vec<Posted>,
}

#[derive(Debug, Deserialize)]
struct Posted {
    target: String,
    #[serde(flatten)]
    fate: Fate,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum Fate {
    Delivered,
    Queued { item: i64 },
    Skipped { reason: String },
    Silent,
    Saved { file: String },
    Failed { error: String },
}

pub async fn send(context: &Context, wanted: Send) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let text = match wanted.text.join(" ") {
        text if text.is_empty() || text == "-" => read()?,
        text => text,
    };
    if text.trim().is_empty() {
        return Err(
            Failure::new("there is nothing to say").next("petasos send TARGET TEXT, or text on stdin")
        );
    }
    let body = json!({ "to": wanted.target, "text": text, "wait": wanted.wait });
    let patience = PATIENCE + Duration::from_secs(wanted.wait);
    let told: Value = client.post_within("/api/post", &body, patience).await?;
    let answer: Answer = Answer::deserialize(&told)
        .map_err(|error| Failure::new(format!("the gateway's answer cannot be read: {error}")))?;
    if context.json {
        print::json(&told["posted"])?;
    } else {
        answer.posted.iter().for_each(tell);
    }
    Ok(code(&answer.posted))
}

fn read() -> Result<String, Failure> {
    let mut text = String::new();
    let read = std::io::stdin().lock().take(LONGEST + 1).read_to_string(&mut text);
    read.map_err(|error| Failure::new(format!("what is to be sent cannot be read: {error}")))?;
    if text.len() as u64 > LONGEST {
        return Err(Failure::new("this is longer than 1 MB"));
    }
    Ok(text.trim_end().to_owned())
}

fn tell(posted: &Posted) {
    let told = match &posted.fate {
        Fate::Delivered => styled(GOOD, "delivered"),
        Fate::Queued { item } => {
            styled(ODD, &format!("on its way as message {item}; petasos outbox shows what is owed"))
        }
        Fate::Skipped { reason } => {
            styled(BAD, &format!("not sent ({reason}): the chat refused us; petasos outbox says more"))
        }
        Fate::Silent => "not sent: it only says that nothing is said".to_owned(),
        Fate::Saved { file } => styled(GOOD, &format!("saved as {file}")),
        Fate::Failed { error } => styled(BAD, &format!("failed: {error}")),
    };
    say!("{}: {told}", posted.target);
}

/// The worst decides.
fn code(posted: &[Posted]) -> ExitCode {
    let rank = |it: &Posted| match it.fate {
        Fate::Delivered | Fate::Silent | Fate::Saved { .. } => 0,
        Fate::Queued { .. } => 1,
        Fate::Skipped { .. } | Fate::Failed { .. } => 2,
    };
    match posted.iter().map(rank).max().unwrap_or(0) {
        0 => ExitCode::SUCCESS,
        1 => ExitCode::from(QUEUED),
        _worse => ExitCode::FAILURE,
    }
}
