//! `petasos drain`: no new turns, while those that are running finish.
//!
//! All it owns is the marker in the home, which it writes as any other program may. A crash leaves the marker, which
//! the gateway forgets when nobody renews it.

mod ask;
mod status;

use std::process::ExitCode;
use std::time::Duration;

use petasos_config::Home;
use petasos_config::keys::gateway;
use petasos_core::Millis;
use petasos_core::lifecycle::marker::{Marker, Standing, standing};
use petasos_gateway::home::drain;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Context;
use crate::arguments::{Drain, DrainAction};
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, ago, cut, now, say, span};

pub async fn drain(context: &Context, wanted: Drain) -> Result<ExitCode, Failure> {
    match wanted.action {
        None => ask::ask(context, wanted.ask).await,
        Some(DrainAction::Status) => status::status(context).await,
        Some(DrainAction::Skip { session }) => skip(context, &session).await,
        Some(DrainAction::Extend { session, by }) => extend(context, &session, by).await,
    }
}

/// A marker counts no longer than this unless it is renewed; zero: for ever.
fn max_age(home: &Home) -> Duration {
    petasos_config::load(home).settings.get(&gateway::DRAIN_MAX_AGE)
}

/// The marker in the home, and whether it counts.
pub fn marker(home: &Home) -> Option<(Marker, Standing)> {
    let marker = drain::read(home.path())?;
    let standing = standing(&marker, drain::epoch().as_deref(), max_age(home), now());
    Some((marker, standing))
}

/// `asked for by petasos:ann 5 min ago: a new disk`.
pub fn asked_for(principal: Option<&str>, at: Option<Millis>, reason: Option<&str>) -> String {
    let line = |text: &str| cut(&text.replace(char::is_control, " "), 200);
    let mut told = format!("asked for by {}", principal.map_or_else(|| "somebody".into(), line));
    if let Some(at) = at {
        told += &format!(" {}", ago(at, now()));
    }
    if let Some(reason) = reason {
        told += &format!(": {}", line(reason));
    }
    told
}

#[derive(Deserialize)]
struct Extended {
    session: String,
    until: Millis,
}

async fn skip(context: &Context, session: &str) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let told: Value =
        client.post("/api/gateway/drain/skip", &json!({ "session": session })).await.map_err(unadjusted)?;
    if context.json {
        print::json(&told)?;
    } else {
        let session = told["session"].as_str().unwrap_or(session);
        say!("{session} is not waited for any more; it goes on, and a stop interrupts it");
    }
    Ok(ExitCode::SUCCESS)
}

async fn extend(context: &Context, session: &str, by: u64) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let told: Extended = client
        .post("/api/gateway/drain/extend", &json!({ "session": session, "seconds": by }))
        .await
        .map_err(unadjusted)?;
    let Extended { session, until } = told;
    if context.json {
        print::json(&json!({ "ok": true, "session": session, "until": until }))?;
    } else {
        say!("a stop waits for {session} at least {} from now on", span(until.since(now())));
    }
    Ok(ExitCode::SUCCESS)
}

fn unadjusted(error: crate::client::Error) -> Failure {
    match error.fact("code").and_then(Value::as_str) {
        Some("not_found") => {
            Failure::new("no session at work has this name").next("petasos drain status lists them")
        }
        Some("bad_request") => Failure::from(error).next("petasos drain status lists the sessions at work"),
        Some("ambiguous") => {
            let (what, _) = Failure::from(error).parts();
            Failure::new(what).next("name more of it")
        }
        Some(_) | None => error.into(),
    }
}
