//! `petasos status`: what the gateway is doing, or what it left when it stopped.

use std::process::ExitCode;

use petasos_core::Millis;
use petasos_core::link::{Link, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::sessions::ALL;
use super::{Context, reader};
use crate::client::Client;
use crate::failure::Failure;
use crate::print::{self, BAD, BOLD, DIM, GOOD, ODD, ago, now, styled};

/// What we read of the gateway's answer; the rest is passed on as it is.
#[derive(Debug, Deserialize)]
struct Status {
    version: String,
    pid: u32,
    started_at: Millis,
    state: String,
    model: Model,
    links: Vec<Named>,
    sessions: u64,
    stored_sessions: usize,
    inbox: Inbox,
    outbox: Outbox,
    store_trouble: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Model {
    name: String,
    provider: String,
    demo: bool,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
    #[serde(flatten)]
    link: Link,
}

#[derive(Debug, Deserialize)]
struct Inbox {
    queued: u64,
    running: u64,
}

#[derive(Debug, Deserialize)]
struct Outbox {
    due: u64,
    dead: u64,
}

pub(crate) async fn status(context: &Context) -> Result<ExitCode, Failure> {
    let Some(client) = Client::connect(&context.home)? else {
        return stopped(context);
    };
    let mut told: Value = client.get("/api/status").await?;
    told["stored_sessions"] = json!(stored(context)?);
    if context.json {
        print::json(&told)?;
        return Ok(ExitCode::SUCCESS);
    }
    let status: Status = serde_json::from_value(told)
        .map_err(|error| Failure::new(format!("the gateway's status cannot be read: {error}")))?;
    show(context, &client, &status);
    Ok(ExitCode::SUCCESS)
}

fn show(context: &Context, client: &Client, status: &Status) {
    let style = if status.state == "running" { GOOD } else { ODD };
    let head = format!("Petasos {}", status.version);
    crate::print::say!("{} is {}", styled(BOLD, &head), styled(style, &status.state));
    line("process", &format!("pid {}, started {}", status.pid, ago(status.started_at, now())));
    line("home", &context.home.path().display().to_string());
    let demo = if status.model.demo { " (scripted, offline)" } else { "" };
    line("model", &format!("{} at {}{demo}", status.model.name, status.model.provider));
    if let Some(url) = &client.url {
        line("web page", &format!("{url} {}", styled(DIM, "(petasos open prints a link that lets you in)")));
    }
    for named in &status.links {
        line(&named.name, &state_of(&named.link));
    }
    line("sessions", &format!("{} stored, {} awake", status.stored_sessions, status.sessions));
    line("inbox", &format!("{} running, {} waiting", status.inbox.running, status.inbox.queued));
    let dead = match status.outbox.dead {
        0 => String::new(),
        dead => styled(ODD, &format!(", {dead} given up (petasos outbox)")),
    };
    line("outbox", &format!("{} due{dead}", status.outbox.due));
    if let Some(trouble) = &status.store_trouble {
        line("disk", &styled(BAD, trouble));
    }
}

fn stored(context: &Context) -> Result<usize, Failure> {
    match reader(&context.home)? {
        Some(reader) => Ok(reader.sessions(None, ALL)?.len()),
        None => Ok(0),
    }
}

/// Nobody runs; the database still knows what is open.
fn stopped(context: &Context) -> Result<ExitCode, Failure> {
    let open = match reader(&context.home)? {
        Some(reader) => Some((reader.backlog()?, reader.outbox_counts()?)),
        None => None,
    };
    if context.json {
        let inbox =
            open.as_ref().map(|(inbox, _)| json!({ "queued": inbox.queued, "running": inbox.claimed }));
        let outbox =
            open.as_ref().map(|(_, owed)| json!({ "due": owed.due + owed.sending, "dead": owed.dead }));
        print::json(&json!({
            "state": "stopped", "home": context.home.path(), "stored_sessions": stored(context)?,
            "inbox": inbox, "outbox": outbox,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::print::say!("{} is stopped {}", styled(BOLD, "Petasos"), styled(DIM, "(petasos run starts it)"));
    line("home", &context.home.path().display().to_string());
    if let Some((inbox, owed)) = open {
        line("sessions", &format!("{} stored", stored(context)?));
        line("inbox", &format!("{} to be answered", inbox.queued + inbox.claimed));
        line("outbox", &format!("{} due, {} given up", owed.due + owed.sending, owed.dead));
    }
    Ok(ExitCode::SUCCESS)
}

fn state_of(link: &Link) -> String {
    match &link.state {
        State::Connecting => "connecting".into(),
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

fn line(name: &str, text: &str) {
    crate::print::say!("  {} {text}", styled(DIM, &format!("{name:<9}")));
}
