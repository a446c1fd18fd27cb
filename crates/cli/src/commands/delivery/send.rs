//! `petasos send`: sends a message to a chat.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::SendArguments;
use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, ERROR, SUCCESS, WARNING, outln, styled};

const MAX_BYTES: u64 = 1 << 20;
/// Time for the gateway itself, in addition to the delivery wait.
const GATEWAY_TIMEOUT: Duration = Duration::from_secs(30);
/// `EX_TEMPFAIL`: queued, not delivered yet.
const QUEUED: u8 = 75;

#[derive(Debug, Deserialize)]
struct SendResponse {
    posted: Vec<TargetResult>,
}

#[derive(Debug, Deserialize)]
struct TargetResult {
    target: String,
    #[serde(flatten)]
    outcome: DeliveryOutcome,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
enum DeliveryOutcome {
    Delivered,
    Queued { item: i64 },
    Skipped { reason: String },
    Silent,
    Saved { file: String },
    Failed { error: String },
}

pub async fn send(context: &Context, arguments: SendArguments) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let text = match arguments.text.join(" ") {
        text if text.is_empty() || text == "-" => read_stdin()?,
        text => text,
    };
    if text.trim().is_empty() {
        return Err(Failure::new("the message is empty")
            .next("petasos send TARGET TEXT, or pass the text on standard input"));
    }
    let body = json!({ "to": arguments.target, "text": text, "wait": arguments.wait });
    let timeout = GATEWAY_TIMEOUT + Duration::from_secs(arguments.wait);
    let response: Value = client.post_with_timeout("/api/post", &body, timeout).await?;
    let parsed: SendResponse = SendResponse::deserialize(&response)
        .map_err(|error| Failure::new(format!("the gateway's response cannot be read: {error}")))?;
    if context.json {
        print::json(&response["posted"])?;
    } else {
        parsed.posted.iter().for_each(print_result);
    }
    Ok(exit_code(&parsed.posted))
}

fn read_stdin() -> Result<String, Failure> {
    let mut text = String::new();
    let result = std::io::stdin().lock().take(MAX_BYTES + 1).read_to_string(&mut text);
    result.map_err(|error| Failure::new(format!("standard input cannot be read: {error}")))?;
    if text.len() as u64 > MAX_BYTES {
        return Err(Failure::new("the message is longer than 1 MB"));
    }
    Ok(text.trim_end().to_owned())
}

fn print_result(posted: &TargetResult) {
    let text = match &posted.outcome {
        DeliveryOutcome::Delivered => styled(SUCCESS, "delivered"),
        DeliveryOutcome::Queued { item } => {
            styled(WARNING, &format!("queued as message {item}; petasos outbox shows its state"))
        }
        DeliveryOutcome::Skipped { reason } => styled(
            ERROR,
            &format!("not sent ({reason}): the chat rejected the bot; petasos outbox shows details"),
        ),
        DeliveryOutcome::Silent => "not sent: the text means that there is nothing to report".to_owned(),
        DeliveryOutcome::Saved { file } if posted.target.eq_ignore_ascii_case("local") => {
            styled(SUCCESS, &format!("saved as {file}"))
        }
        DeliveryOutcome::Saved { file } => {
            styled(WARNING, &format!("not sent: there is no such platform; saved as {file}"))
        }
        DeliveryOutcome::Failed { error } => styled(ERROR, &format!("failed: {error}")),
    };
    outln!("{}: {text}", posted.target);
}

fn exit_code(posted: &[TargetResult]) -> ExitCode {
    let rank = |it: &TargetResult| match it.outcome {
        DeliveryOutcome::Delivered | DeliveryOutcome::Silent | DeliveryOutcome::Saved { .. } => 0,
        DeliveryOutcome::Queued { .. } => 1,
        DeliveryOutcome::Skipped { .. } | DeliveryOutcome::Failed { .. } => 2,
    };
    match posted.iter().map(rank).max().unwrap_or(0) {
        0 => ExitCode::SUCCESS,
        1 => ExitCode::from(QUEUED),
        _worse => ExitCode::FAILURE,
    }
}
