//! `petasos drain status`: the requester, the start and the running turns of a drain.

use std::process::ExitCode;

use petasos_core::lifecycle::marker::{Marker, MarkerStatus};
use petasos_core::lifecycle::stamp;
use serde_json::{Value, json};

use super::{marker, request_summary};
use crate::client::Client;
use crate::commands::Context;
use crate::failure::Failure;
use crate::observe::{DrainStatus, GatewayWatcher, LifecycleStatus, Observation};
use crate::print::{self, BOLD, DIM, now, outln, span, styled, table};

pub(super) async fn status(context: &Context) -> Result<ExitCode, Failure> {
    let seen = GatewayWatcher::new(&context.home).poll().await;
    let marker = marker(&context.home);
    if context.json {
        print::json(&as_json(context, &seen, marker.as_ref()).await?)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &seen {
        Observation::Responding(_, lifecycle) => show(lifecycle),
        Observation::Unresponsive(_) => {
            outln!("A gateway holds this home and does not answer; petasos status shows details")
        }
        Observation::NotRunning => outln!("No gateway is running on this home"),
    }
    if seen.status().is_none_or(|lifecycle| lifecycle.drain.is_none()) {
        outln!("{}", about(marker.as_ref()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The gateway's response combined with the marker in the home.
async fn as_json(
    context: &Context,
    seen: &Observation,
    marker: Option<&(Marker, MarkerStatus)>,
) -> Result<Value, Failure> {
    let mut response = json!({ "state": "stopped", "drain": null, "active_agents": 0, "holders": [] });
    if let (Observation::Responding(..), Some(client)) = (seen, Client::connect(&context.home)?) {
        response = client.get("/api/gateway/drain").await?;
    }
    response["gateway_running"] = json!(*seen != Observation::NotRunning);
    response["draining"] = json!(response["state"] == "draining");
    response["marker"] = match marker {
        Some((marker, status)) => {
            let mut fields = json!(marker);
            fields["standing"] = marker_status_name(*status).into();
            fields
        }
        None => Value::Null,
    };
    Ok(response)
}

fn marker_status_name(status: MarkerStatus) -> &'static str {
    match status {
        MarkerStatus::Active => "active",
        MarkerStatus::OtherBoot => "other_boot",
        MarkerStatus::Expired { .. } => "expired",
    }
}

fn show(lifecycle: &LifecycleStatus) {
    let Some(drain) = &lifecycle.drain else {
        outln!("{}: turns can start", styled(BOLD, &lifecycle.state));
        return print_turns(lifecycle);
    };
    outln!("{}", heading(lifecycle, drain));
    if drain.is_external() {
        let at = drain.requested_at.as_deref().and_then(stamp::parse);
        outln!("  {}", request_summary(drain.principal.as_deref(), at, drain.reason.as_deref()));
        outln!("  {}", styled(DIM, "petasos resume ends the drain"));
    }
    print_turns(lifecycle);
}

fn heading(lifecycle: &LifecycleStatus, drain: &DrainStatus) -> String {
    let kind = match drain.kind.as_str() {
        "external" => "no new turns start",
        _ => "no new turns start; this cannot be cancelled",
    };
    let since = drain.since.map(|since| format!(" for {}", span(now().since(since)))).unwrap_or_default();
    let deadline = drain.deadline.map(|at| format!(", turns have {} left", span(at.since(now()))));
    let state = styled(BOLD, lifecycle.display_state());
    format!("{state}{since}: {kind}{}", deadline.unwrap_or_default())
}

fn print_turns(lifecycle: &LifecycleStatus) {
    if lifecycle.turns.is_empty() {
        return outln!("  no turn is running");
    }
    let left = |turn| lifecycle.deadline_of(turn).map(|at| span(at.since(now())));
    let rows: Vec<Vec<String>> = lifecycle
        .turns
        .iter()
        .map(|turn| {
            let left = if turn.skipped {
                "skipped".into()
            } else {
                left(turn).unwrap_or_else(|| "until it finishes".into())
            };
            vec![turn.key.clone(), turn.activity.description(), span(now().since(turn.since)), left]
        })
        .collect();
    table(&["SESSION", "ACTIVITY", "FOR", "TIME LEFT"], &rows);
}

/// Describes a marker that no gateway follows at the moment.
fn about(marker: Option<&(Marker, MarkerStatus)>) -> String {
    let Some((marker, status)) = marker else { return "No drain is requested".into() };
    let summary = request_summary(marker.principal.as_deref(), marker.requested(), marker.reason.as_deref());
    match status {
        MarkerStatus::Active => {
            format!("A drain was {summary}; the next gateway starts drained (petasos resume ends the drain)")
        }
        MarkerStatus::OtherBoot => {
            format!("A drain was {summary}, before this machine was started; it has no effect")
        }
        MarkerStatus::Expired { .. } => format!("A drain was {summary}; it was not renewed and has expired"),
    }
}
