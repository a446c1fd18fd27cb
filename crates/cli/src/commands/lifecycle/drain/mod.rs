//! `petasos drain`: stops new turns from starting while running ones finish.
//!
//! Owns only the drain marker in the home, which other programs may write as well. A crash leaves the marker,
//! and the gateway ignores it once it expires.

mod request;
mod status;

use std::process::ExitCode;
use std::time::Duration;

use petasos_config::Home;
use petasos_config::keys::gateway;
use petasos_core::Millis;
use petasos_core::lifecycle::marker::{Marker, MarkerStatus, status};
use petasos_gateway::home::drain;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{DrainAction, DrainArguments};
use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, ago, now, outln, span, truncate};

pub async fn drain(context: &Context, arguments: DrainArguments) -> Result<ExitCode, Failure> {
    match arguments.action {
        None => request::request(context, arguments.request).await,
        Some(DrainAction::Status) => status::status(context).await,
        Some(DrainAction::Skip { session }) => skip(context, &session).await,
        Some(DrainAction::Extend { session, by }) => extend(context, &session, by).await,
    }
}

/// Markers expire after this unless they are renewed; zero means never.
fn max_age(home: &Home) -> Duration {
    petasos_config::load(home).settings.get(&gateway::DRAIN_MAX_AGE)
}

pub fn marker(home: &Home) -> Option<(Marker, MarkerStatus)> {
    let marker = drain::read(home.path())?;
    let status = status(&marker, drain::epoch().as_deref(), max_age(home), now());
    Some((marker, status))
}

/// `requested by petasos:ann 5 min ago: a new disk`.
pub fn request_summary(principal: Option<&str>, at: Option<Millis>, reason: Option<&str>) -> String {
    let line = |text: &str| truncate(&text.replace(char::is_control, " "), 200);
    let mut text = format!("requested by {}", principal.map_or_else(|| "an unknown user".into(), line));
    if let Some(at) = at {
        text += &format!(" {}", ago(at, now()));
    }
    if let Some(reason) = reason {
        text += &format!(": {}", line(reason));
    }
    text
}

#[derive(Deserialize)]
struct ExtendResponse {
    session: String,
    until: Millis,
}

async fn skip(context: &Context, session: &str) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let response: Value = client
        .post("/api/gateway/drain/skip", &json!({ "session": session }))
        .await
        .map_err(adjust_failure)?;
    if context.json {
        print::json(&response)?;
    } else {
        let session = response["session"].as_str().unwrap_or(session);
        outln!("The drain no longer waits for {session}; its turn continues until a stop interrupts it");
    }
    Ok(ExitCode::SUCCESS)
}

async fn extend(context: &Context, session: &str, by: u64) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let response: ExtendResponse = client
        .post("/api/gateway/drain/extend", &json!({ "session": session, "seconds": by }))
        .await
        .map_err(adjust_failure)?;
    let ExtendResponse { session, until } = response;
    if context.json {
        print::json(&json!({ "ok": true, "session": session, "until": until }))?;
    } else {
        outln!("A stop waits at least {} for {session}", span(until.since(now())));
    }
    Ok(ExitCode::SUCCESS)
}

fn adjust_failure(error: crate::client::Error) -> Failure {
    match error.detail("code").and_then(Value::as_str) {
        Some("not_found") => Failure::new("no session with a running turn has this name")
            .next("petasos drain status lists running turns"),
        Some("bad_request") => Failure::from(error).next("petasos drain status lists running turns"),
        Some("ambiguous") => {
            let (what, _) = Failure::from(error).parts();
            Failure::new(what).next("type more of its name")
        }
        Some(_) | None => error.into(),
    }
}
