//! `petasos links`: how the platforms are connected, and the wish to change that.

mod unreadable;

use std::process::ExitCode;
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::link::{Lack, Link, State};
use petasos_core::rate_limit::Penalty;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Context;
use crate::arguments::{Links, LinksAction};
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, BAD, ODD, ago, cut, now, say, span, styled, time_of_day};

/// What we read of the gateway's answer.
#[derive(Debug, Deserialize)]
struct Status {
    links: Vec<Named>,
    #[serde(default)]
    rate_limits: Vec<Penalty>,
}

#[derive(Debug, Deserialize)]
pub struct Named {
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) link: Link,
}

pub async fn links(context: &Context, wanted: Links) -> Result<ExitCode, Failure> {
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
        print::json(&json!({ "links": told["links"], "rate_limits": told["rate_limits"] }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let status: Status = serde_json::from_value(told)
        .map_err(|error| Failure::new(format!("the gateway's status cannot be read: {error}")))?;
    if status.links.is_empty() {
        say!("no platform is configured; there are the web page and the terminal");
        return Ok(ExitCode::SUCCESS);
    }
    let now = now();
    let rows = status.links.iter().map(|Named { name, link }| {
        let next = match &link.state {
            State::Waiting { until, .. } => format!("in {} s", until.since(now).as_secs()),
            State::Connecting { .. } | State::Up { .. } | State::Fatal { .. } | State::Paused => "-".into(),
        };
        vec![
            name.clone(),
            state(link).into(),
            link.last_inbound.map_or_else(|| "-".into(), |at| ago(at, now)),
            behind(link).unwrap_or_else(|| "-".into()),
            link.attempts.to_string(),
            next,
            link.failure().map_or("-", |failure| failure.class.as_str()).into(),
            cut(&reason(link), 400),
        ]
    });
    print::table(
        &["PLATFORM", "STATE", "LAST HEARD", "BEHIND", "FAILED", "NEXT TRY", "CLASS", "WHY"],
        &rows.collect::<Vec<_>>(),
    );
    for penalty in &status.rate_limits {
        say!("{}", styled(ODD, &rate_limit(penalty, now)));
    }
    Ok(ExitCode::SUCCESS)
}

/// A rate limit, in a line.
pub fn rate_limit(penalty: &Penalty, now: Millis) -> String {
    let (until, left) = (time_of_day(penalty.until), span(penalty.until.since(now)));
    format!("{penalty} is rate limited until {until} ({left} left): {}", cut(&penalty.reason, 80))
}

/// As published, but for the one word that has two meanings.
fn state(link: &Link) -> &'static str {
    match link.state {
        State::Waiting { slow: true, .. } => "paused (slow probe)",
        State::Waiting { slow: false, .. }
        | State::Connecting { .. }
        | State::Up { .. }
        | State::Fatal { .. }
        | State::Paused => link.published(),
    }
}

/// How old the oldest message of the last late batch was, while that matters.
fn behind(link: &Link) -> Option<String> {
    let lag = link.behind_ms.map(|ms| span(Duration::from_millis(ms)));
    lag.or_else(|| link.catching_up.then(|| "some".into()))
}

fn reason(link: &Link) -> String {
    let failure = link.failure().map(|failure| failure.reason.clone());
    let lacks = (!link.lacks.is_empty()).then(|| lacks(link));
    failure.or_else(|| link.trouble.clone()).or(lacks).unwrap_or_else(|| "-".into())
}

fn lacks(link: &Link) -> String {
    let said = |Lack { what, reason, .. }: &Lack| format!("without {what}: {reason}");
    link.lacks.iter().map(said).collect::<Vec<_>>().join("; ")
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
pub fn state_of(link: &Link) -> String {
    let now = now();
    let heard = match link.last_inbound {
        Some(at) => format!("last heard {}", ago(at, now)),
        None => "never heard".into(),
    };
    match &link.state {
        State::Connecting { .. } => match &link.trouble {
            Some(trouble) => styled(ODD, &format!("connecting, {heard}: {trouble}")),
            None => format!("connecting, {heard}"),
        },
        State::Up { .. } => {
            let behind = behind(link).map(|span| format!(", {span} behind")).unwrap_or_default();
            match &link.trouble {
                Some(trouble) => styled(ODD, &format!("troubled, {heard}{behind}: {trouble}")),
                None if !link.lacks.is_empty() => {
                    styled(ODD, &format!("up, {heard}{behind}, {}", lacks(link)))
                }
                None => format!("up, {heard}{behind}"),
            }
        }
        State::Waiting { until, failure, .. } => {
            let (wait, class, why) = (until.since(now).as_secs(), failure.class.as_str(), &failure.reason);
            styled(ODD, &format!("{} ({class}), next try in {wait} s, {heard}: {why}", state(link)))
        }
        State::Fatal { failure } => {
            let (class, why) = (failure.class.as_str(), &failure.reason);
            styled(BAD, &format!("stopped ({class}), {heard}: {why}"))
        }
        State::Paused => format!("paused by the operator, {heard}"),
    }
}
