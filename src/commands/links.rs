//! `petasos links`: how the platforms are connected, and the wish to change that.

mod unreadable;

use std::process::ExitCode;

use petasos_core::link::{Link, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Context;
use crate::arguments::{Links, LinksAction};
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, BAD, ODD, ago, cut, now, say, styled};

/// What we read of the gateway's answer.
#[derive(Debug, Deserialize)]
struct Status {
    links: Vec<Named>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Named {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) link: Link,
}

pub(crate) async fn links(context: &Context, wanted: Links) -> Result<ExitCode, Failure> {
    match wanted.action.unwrap_or(LinksAction::List) {
        LinksAction::List => list(context).await,
        LinksAction::Retry { name } | LinksAction::Resume { name } => change(context, &name, "retry").await,
        LinksAction::Pause { name } => change(context, &name, "pause").await,
        LinksAction::Unreadable { raw: None } => unreadable::list(context),
        LinksAction::Unreadable { raw: Some(id) } => unreadable::raw(context, id),
    }
}

async fn list(context: &Context) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let told: Value = client.get("/api/status").await?;
    if context.json {
        print::json(&told["links"])?;
        return Ok(ExitCode::SUCCESS);
    }
    let status: Status = serde_json::from_value(told)
        .map_err(|error| Failure::new(format!("the gateway's status cannot be read: {error}")))?;
    if status.links.is_empty() {
        say!("no platform is configured; there are the web page and the terminal");
        return Ok(ExitCode::SUCCESS);
    }
    let rows = status.links.iter().map(|Named { name, link }| {
        let (heard, next) = match &link.state {
            State::Up { last_inbound, .. } => (ago(*last_inbound, now()), "-".into()),
            State::Waiting { until, .. } => ("-".into(), format!("in {} s", until.since(now()).as_secs())),
            State::Connecting | State::Fatal { .. } | State::Paused => ("-".into(), "-".into()),
        };
        vec![
            name.clone(),
            link.published().into(),
            heard,
            link.attempts.to_string(),
            next,
            cut(reason(link), 60),
        ]
    });
    print::table(
        &["PLATFORM", "STATE", "LAST HEARD", "FAILED", "NEXT TRY", "WHY"],
        &rows.collect::<Vec<_>>(),
    );
    Ok(ExitCode::SUCCESS)
}

fn reason(link: &Link) -> &str {
    match &link.state {
        State::Waiting { reason, .. } | State::Fatal { reason, .. } => reason,
        State::Connecting | State::Up { .. } | State::Paused => link.trouble.as_deref().unwrap_or("-"),
    }
}

async fn change(context: &Context, name: &str, verb: &str) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let name = name.to_lowercase();
    let done: Result<Value, _> = client.post(&format!("/api/links/{name}/{verb}"), &json!({})).await;
    done.map_err(|error| Failure::from(error).next("petasos links lists them"))?;
    if context.json {
        print::json(&json!({ "link": name, "asked": verb }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match verb {
        "pause" => say!("{name} is paused; petasos links resume {name} brings it back"),
        _ => say!("{name} is tried now; petasos links shows how it went"),
    }
    Ok(ExitCode::SUCCESS)
}

/// In a line, for `petasos status`.
pub(super) fn state_of(link: &Link) -> String {
    match &link.state {
        State::Connecting => match &link.trouble {
            Some(trouble) => styled(ODD, &format!("connecting: {trouble}")),
            None => "connecting".into(),
        },
        State::Up { last_inbound, .. } => format!("up, last heard {}", ago(*last_inbound, now())),
        State::Waiting { until, slow, reason, .. } => {
            let wait = until.since(now()).as_secs();
            let pace = if *slow { "paused (slow probe)" } else { "retrying" };
            styled(ODD, &format!("{pace}, next try in {wait} s: {reason}"))
        }
        State::Fatal { reason, .. } => styled(BAD, &format!("stopped: {reason}")),
        State::Paused => "paused by the operator".into(),
    }
}
