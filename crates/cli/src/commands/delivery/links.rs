//! `petasos links`: shows platform connections; retries, pauses or resumes one.

mod unreadable;

use std::process::ExitCode;
use std::time::Duration;

use petasos_core::Millis;
use petasos_core::link::{Link, PartialOutage, State};
use petasos_core::rate_limit::Penalty;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::arguments::{LinksAction, LinksArguments};
use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::print::{self, ERROR, WARNING, ago, now, outln, span, styled, time_of_day, truncate};

#[derive(Debug, Deserialize)]
struct LinksResponse {
    links: Vec<NamedLink>,
    #[serde(default)]
    rate_limits: Vec<Penalty>,
}

#[derive(Debug, Deserialize)]
pub struct NamedLink {
    pub name: String,
    #[serde(flatten)]
    pub link: Link,
}

pub async fn links(context: &Context, arguments: LinksArguments) -> Result<ExitCode, Failure> {
    match arguments.action.unwrap_or(LinksAction::List) {
        LinksAction::List => list(context).await,
        LinksAction::Retry { name } | LinksAction::Resume { name } => change(context, &name, "retry").await,
        LinksAction::Pause { name } => change(context, &name, "pause").await,
        LinksAction::Unreadable { raw: None } => unreadable::list(context),
        LinksAction::Unreadable { raw: Some(id) } => unreadable::raw(context, id),
    }
}

async fn list(context: &Context) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let response: Value = client.get("/api/status").await?;
    if context.json {
        print::json(&json!({ "links": response["links"], "rate_limits": response["rate_limits"] }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let status: LinksResponse = serde_json::from_value(response)
        .map_err(|error| Failure::new(format!("the gateway's status cannot be read: {error}")))?;
    if status.links.is_empty() {
        outln!("No platform is configured; use the web page or petasos chat");
        return Ok(ExitCode::SUCCESS);
    }
    let now = now();
    let rows = status.links.iter().map(|NamedLink { name, link }| {
        let next = match &link.state {
            State::Waiting { until, .. } => format!("in {} s", until.since(now).as_secs()),
            State::Connecting { .. } | State::Up { .. } | State::Fatal { .. } | State::Paused => "-".into(),
        };
        vec![
            name.clone(),
            state(link).into(),
            link.last_inbound.map_or_else(|| "-".into(), |at| ago(at, now)),
            delivery_lag(link).unwrap_or_else(|| "-".into()),
            link.attempts.to_string(),
            next,
            link.failure().map_or("-", |failure| failure.class.label()).into(),
            truncate(&reason(link), 400),
        ]
    });
    print::table(
        &["PLATFORM", "STATE", "LAST MESSAGE", "LAG", "FAILED", "NEXT TRY", "CLASS", "REASON"],
        &rows.collect::<Vec<_>>(),
    );
    for penalty in &status.rate_limits {
        outln!("{}", styled(WARNING, &rate_limit(penalty, now)));
    }
    Ok(ExitCode::SUCCESS)
}

pub fn rate_limit(penalty: &Penalty, now: Millis) -> String {
    let until = time_of_day(penalty.until);
    let left = span(penalty.until.since(now));
    format!("{penalty} is rate limited until {until} ({left} left): {}", truncate(&penalty.reason, 80))
}

/// The published state, except that a slow probe is distinguished from a pause.
fn state(link: &Link) -> &'static str {
    match link.state {
        State::Waiting { slow: true, .. } => "down (slow retries)",
        State::Waiting { slow: false, .. }
        | State::Connecting { .. }
        | State::Up { .. }
        | State::Fatal { .. }
        | State::Paused => link.status(),
    }
}

/// Delivery lag of the last late batch, or `some` while a backfill runs.
fn delivery_lag(link: &Link) -> Option<String> {
    let lag = link.lag_ms.map(|ms| span(Duration::from_millis(ms)));
    lag.or_else(|| link.backfilling.then(|| "some".into()))
}

fn reason(link: &Link) -> String {
    let failure = link.failure().map(|failure| failure.reason.clone());
    let partial_outages = (!link.partial_outages.is_empty()).then(|| partial_outages(link));
    failure.or_else(|| link.retry_reason.clone()).or(partial_outages).unwrap_or_else(|| "-".into())
}

fn partial_outages(link: &Link) -> String {
    let describe =
        |PartialOutage { part: what, reason, .. }: &PartialOutage| format!("{what} unavailable: {reason}");
    link.partial_outages.iter().map(describe).collect::<Vec<_>>().join("; ")
}

async fn change(context: &Context, name: &str, verb: &str) -> Result<ExitCode, Failure> {
    let client = Client::require(&context.home)?;
    let name = name.to_lowercase();
    let result: Result<Value, _> = client.post(&format!("/api/links/{name}/{verb}"), &json!({})).await;
    result.map_err(|error| Failure::from(error).next("petasos links lists all platforms"))?;
    if context.json {
        print::json(&json!({ "link": name, "asked": verb }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match verb {
        "pause" => outln!("{name} is paused; petasos links resume {name} reconnects it"),
        _ => outln!("{name} is being retried; petasos links shows the result"),
    }
    Ok(ExitCode::SUCCESS)
}

pub fn link_summary(link: &Link) -> String {
    let now = now();
    let last_message = match link.last_inbound {
        Some(at) => format!("last message {}", ago(at, now)),
        None => "no message yet".into(),
    };
    match &link.state {
        State::Connecting { .. } => match &link.retry_reason {
            Some(problem) => styled(WARNING, &format!("connecting, {last_message}: {problem}")),
            None => format!("connecting, {last_message}"),
        },
        State::Up { .. } => {
            let delivery_lag = delivery_lag(link).map(|span| format!(", {span} behind")).unwrap_or_default();
            match &link.retry_reason {
                Some(problem) => {
                    styled(WARNING, &format!("unstable, {last_message}{delivery_lag}: {problem}"))
                }
                None if !link.partial_outages.is_empty() => {
                    styled(WARNING, &format!("up, {last_message}{delivery_lag}, {}", partial_outages(link)))
                }
                None => format!("up, {last_message}{delivery_lag}"),
            }
        }
        State::Waiting { until, failure, .. } => {
            let wait = until.since(now).as_secs();
            let class = failure.class.label();
            let reason = &failure.reason;
            styled(
                WARNING,
                &format!("{} ({class}), next try in {wait} s, {last_message}: {reason}", state(link)),
            )
        }
        State::Fatal { failure } => {
            let class = failure.class.label();
            let reason = &failure.reason;
            styled(ERROR, &format!("stopped ({class}), {last_message}: {reason}"))
        }
        State::Paused => format!("paused by the operator, {last_message}"),
    }
}
