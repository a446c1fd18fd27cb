//! `petasos drain status`: who asked, since when, and who is still at work.

use std::process::ExitCode;

use petasos_core::lifecycle::marker::{Marker, Standing};
use petasos_core::lifecycle::stamp;
use serde_json::{Value, json};

use super::super::Context;
use super::{asked_for, marker};
use crate::client::Client;
use crate::failure::Failure;
use crate::life::{Drain, Life, Sight, Watcher};
use crate::print::{self, BOLD, DIM, now, say, span, styled, table};

pub(super) async fn status(context: &Context) -> Result<ExitCode, Failure> {
    let sight = Watcher::new(&context.home).look().await;
    let marker = marker(&context.home);
    if context.json {
        print::json(&as_json(context, &sight, marker.as_ref()).await?)?;
        return Ok(ExitCode::SUCCESS);
    }
    match &sight {
        Sight::Life(_, life) => show(life),
        Sight::Silent(_) => say!("a gateway holds this home and does not answer; petasos status shows more"),
        Sight::Nobody => say!("no gateway runs on this home"),
    }
    if sight.life().is_none_or(|life| life.drain.is_none()) {
        say!("{}", about(marker.as_ref()));
    }
    Ok(ExitCode::SUCCESS)
}

/// What the gateway says, and what lies in the home.
async fn as_json(
    context: &Context,
    sight: &Sight,
    marker: Option<&(Marker, Standing)>,
) -> Result<Value, Failure> {
    let mut told = json!({ "state": "stopped", "drain": null, "active_agents": 0, "holders": [] });
    if let (Sight::Life(..), Some(client)) = (sight, Client::connect(&context.home)?) {
        told = client.get("/api/gateway/drain").await?;
    }
    told["gateway_running"] = json!(*sight != Sight::Nobody);
    told["draining"] = json!(told["state"] == "draining");
    told["marker"] = match marker {
        Some((marker, standing)) => {
            let mut fields = json!(marker);
            fields["standing"] = word(*standing).into();
            fields
        }
        None => Value::Null,
    };
    Ok(told)
}

fn word(standing: Standing) -> &'static str {
    match standing {
        Standing::Active => "active",
        Standing::OtherBoot => "other_boot",
        Standing::Expired { .. } => "expired",
    }
}

fn show(life: &Life) {
    let Some(drain) = &life.drain else {
        say!("{}: turns may start", styled(BOLD, &life.state));
        return holders(life);
    };
    say!("{}", head(life, drain));
    if drain.is_external() {
        let at = drain.requested_at.as_deref().and_then(stamp::parse);
        say!("  {}", asked_for(drain.principal.as_deref(), at, drain.reason.as_deref()));
        say!("  {}", styled(DIM, "petasos resume ends it"));
    }
    holders(life);
}

fn head(life: &Life, drain: &Drain) -> String {
    let kind = match drain.kind.as_str() {
        "external" => "no new turns start",
        _ => "no new turns start, and that cannot be taken back",
    };
    let since = drain.since.map(|since| format!(" for {}", span(now().since(since)))).unwrap_or_default();
    let deadline = drain.deadline.map(|at| format!(", turns have {} left", span(at.since(now()))));
    let state = styled(BOLD, life.headline());
    format!("{state}{since}: {kind}{}", deadline.unwrap_or_default())
}

fn holders(life: &Life) {
    if life.holders.is_empty() {
        return say!("  nobody is at work");
    }
    let left = |holder| life.patience(holder).map(|at| span(at.since(now())));
    let rows: Vec<Vec<String>> = life
        .holders
        .iter()
        .map(|holder| {
            let left = match holder.skipped {
                true => "not waited for".into(),
                false => left(holder).unwrap_or_else(|| "until it is done".into()),
            };
            vec![holder.key.clone(), holder.doing.words(), span(now().since(holder.since)), left]
        })
        .collect();
    table(&["SESSION", "DOES", "FOR", "IS WAITED FOR"], &rows);
}

/// A marker without a gateway that heeds it.
fn about(marker: Option<&(Marker, Standing)>) -> String {
    let Some((marker, standing)) = marker else { return "nobody asks for a drain".into() };
    let asked = asked_for(marker.principal.as_deref(), marker.requested(), marker.reason.as_deref());
    match standing {
        Standing::Active => {
            format!("a drain is {asked}; a gateway drains from its start on (petasos resume ends it)")
        }
        Standing::OtherBoot => {
            format!("a drain was {asked}, before this machine was started; it does not count")
        }
        Standing::Expired { .. } => format!("a drain was {asked}; nobody renewed it, so it does not count"),
    }
}
