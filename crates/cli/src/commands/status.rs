//! `petasos status`: what the gateway is doing, or what it left when it stopped.

mod absent;

use std::process::ExitCode;
use std::time::Duration;

use petasos_config::limits;
use petasos_core::Millis;
use petasos_core::dead::DeadChat;
use petasos_core::lifecycle::stamp;
use petasos_core::text::size;
use serde::Deserialize;
use serde_json::{Value, json};

use super::drain::asked_for;
use super::links::{self, Named};
use super::sessions::ALL;
use super::{Context, reader};
use crate::backup;
use crate::backup::schedule::Schedule;
use crate::client::{Client, Error};
use crate::failure::Failure;
use crate::life::{Drain, Holder, Life};
use crate::print::{self, BAD, BOLD, DIM, GOOD, ODD, ago, now, span, styled};

/// A gateway that takes longer to answer does not.
const PATIENCE: Duration = Duration::from_secs(5);
/// More sessions at work than this are only counted.
const SHOWN: usize = 10;

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
    /// `None`: the database cannot be read at the moment.
    stored_sessions: Option<usize>,
    inbox: Inbox,
    outbox: Outbox,
    unreadable: u64,
    dead_chats: Vec<DeadChat>,
    mcp: Vec<ToolServer>,
    untold: Vec<Untold>,
    #[serde(default)]
    storage: Option<Storage>,
    store_trouble: Option<String>,
    #[serde(default)]
    salvage: Option<Salvaged>,
    #[serde(default)]
    backup: Option<String>,
    #[serde(default)]
    restrictions: Vec<String>,
    store_recoveries: u64,
    drain: Option<Drain>,
    holders: Vec<Holder>,
}

/// A damaged database that was salvaged.
#[derive(Debug, Deserialize)]
struct Salvaged {
    at: Millis,
    summary: String,
}

/// What the database takes.
#[derive(Debug, Deserialize)]
struct Storage {
    database_bytes: u64,
    free_bytes: u64,
    #[serde(default)]
    archive_bytes: u64,
    growth_per_day: Option<i64>,
    disk_free_bytes: Option<u64>,
    archiving_from: Option<Millis>,
    warning: Option<String>,
}

/// Ended background work that its conversation was not told of.
#[derive(Debug, Deserialize)]
struct Untold {
    work: String,
    session_key: String,
    undeliverable: bool,
    reason: String,
    since: Millis,
}

#[derive(Debug, Deserialize)]
struct Model {
    name: String,
    provider: String,
    demo: bool,
}

#[derive(Debug, Deserialize)]
struct Inbox {
    queued: u64,
    running: u64,
}

#[derive(Debug, Deserialize)]
struct ToolServer {
    name: String,
    state: String,
    tools: usize,
    why: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Outbox {
    due: u64,
    dead: u64,
}

pub async fn status(context: &Context) -> Result<ExitCode, Failure> {
    let Some(client) = Client::connect(&context.home)? else {
        return absent::absent(context);
    };
    let mut told: Value = match tokio::time::timeout(PATIENCE, client.get("/api/status")).await {
        Ok(Ok(told)) => told,
        // It left just now, or is stuck.
        Ok(Err(Error::Gone)) | Err(_) => return absent::absent(context),
        Ok(Err(error)) => return Err(error.into()),
    };
    // The gateway has answered: a file that cannot be read at the moment is no reason to withhold that.
    told["stored_sessions"] = json!(stored(context).ok());
    let settings = petasos_config::load(&context.home).settings;
    let schedule = Schedule::of(&context.home, &settings);
    told["restrictions"] = json!(limits::summary(&settings));
    told["backup"] = json!(backup::about(&schedule.plan.directory, now()));
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
    let Status { state, drain, holders, .. } = status;
    let life = Life { state: state.clone(), drain: drain.clone(), holders: holders.clone() };
    crate::print::say!("{} is {}", styled(BOLD, &head), styled(style, life.headline()));
    line("process", &format!("pid {}, started {}", status.pid, ago(status.started_at, now())));
    line("home", &context.home.path().display().to_string());
    at_work(&life);
    let demo = if status.model.demo { " (scripted, offline)" } else { "" };
    line("model", &format!("{} at {}{demo}", status.model.name, status.model.provider));
    if let Some(url) = &client.url {
        line("web page", &format!("{url} {}", styled(DIM, "(petasos open prints a link that lets you in)")));
    }
    for named in &status.links {
        line(&named.name, &links::state_of(&named.link));
    }
    for server in &status.mcp {
        let state = match &server.why {
            Some(why) => styled(ODD, &format!("{}: {}", server.state, print::cut(why, 100))),
            None => format!("{}, {} tools", server.state, server.tools),
        };
        line(&format!("mcp {}", server.name), &state);
    }
    let stored = status.stored_sessions.map_or_else(|| "unknown number".into(), |count| count.to_string());
    line("sessions", &format!("{stored} stored, {} awake", status.sessions));
    line("inbox", &format!("{} running, {} waiting", status.inbox.running, status.inbox.queued));
    let dead = match status.outbox.dead {
        0 => String::new(),
        dead => styled(ODD, &format!(", {dead} given up (petasos outbox)")),
    };
    line("outbox", &format!("{} due{dead}", status.outbox.due));
    if status.unreadable > 0 {
        let count = print::count(status.unreadable, "event", "events");
        line("unread", &styled(ODD, &format!("{count} could not be read (petasos links unreadable)")));
    }
    for dead in status.dead_chats.iter().take(SHOWN) {
        line("dead chat", &styled(ODD, &super::outbox::about(dead)));
    }
    for untold in status.untold.iter().take(SHOWN) {
        let fate = if untold.undeliverable { "undeliverable" } else { "waits" };
        let Untold { work, session_key, reason, .. } = untold;
        let since = ago(untold.since, now());
        line(
            "background",
            &styled(ODD, &format!("{work} of {session_key}, ended {since}: {fate}, {reason}")),
        );
    }
    if status.untold.len() > SHOWN {
        line("", &format!("and {} more", status.untold.len() - SHOWN));
    }
    if let Some(storage) = &status.storage {
        storage_lines(storage);
    }
    if let Some(trouble) = &status.store_trouble {
        line("disk", &styled(BAD, trouble));
    }
    if let Some(salvage) = &status.salvage {
        line("salvage", &styled(ODD, &format!("{}: {}", ago(salvage.at, now()), salvage.summary)));
    }
    restrictions(&status.restrictions);
    line("backup", status.backup.as_deref().unwrap_or("none yet (petasos backup)"));
    if status.store_recoveries > 0 {
        let times = status.store_recoveries;
        line("database", &styled(ODD, &format!("another program removed its files; recoveries: {times}")));
    }
}

/// What the settings deny, because they restrict it or because nothing else can be done for their sake.
fn restrictions(told: &[String]) {
    for (at, restriction) in told.iter().take(SHOWN).enumerate() {
        line(if at == 0 { "denied" } else { "" }, &styled(ODD, restriction));
    }
    if told.len() > SHOWN {
        line("", &format!("and {} more (petasos config check)", told.len() - SHOWN));
    }
}

fn storage_lines(storage: &Storage) {
    let mut text = format!("{}, {} of it free", size(storage.database_bytes), size(storage.free_bytes));
    if let Some(growth) = storage.growth_per_day {
        let sign = if growth < 0 { "-" } else { "+" };
        text.push_str(&format!(", {sign}{} a day", size(growth.unsigned_abs())));
    }
    if let Some(free) = storage.disk_free_bytes {
        text.push_str(&format!("; {} free on the disk", size(free)));
    }
    line("database", &text);
    if storage.archive_bytes > 0 {
        line("archive", &size(storage.archive_bytes));
    }
    if let Some(from) = storage.archiving_from {
        let day = stamp::format(from);
        let day = day.split('T').next().unwrap_or_default();
        line("", &format!("old conversations are archived or deleted from {day} on (retention.mode)"));
    }
    if let Some(warning) = &storage.warning {
        line("disk", &styled(ODD, warning));
    }
}

/// Why no turn may start, and who is at it.
fn at_work(life: &Life) {
    if let Some(drain) = &life.drain {
        line("drain", &styled(ODD, &about(drain)));
    }
    for holder in life.holders.iter().take(SHOWN) {
        let left = match (holder.skipped, life.patience(holder)) {
            (true, _) => ", not waited for".into(),
            (false, Some(until)) => format!(", {} left", span(until.since(now()))),
            (false, None) => String::new(),
        };
        let since = span(now().since(holder.since));
        line("at work", &format!("{}: {} for {since}{left}", holder.key, holder.doing.words()));
    }
    if life.holders.len() > SHOWN {
        line("", &format!("and {} more", life.holders.len() - SHOWN));
    }
}

fn about(drain: &Drain) -> String {
    if drain.is_external() {
        let at = drain.requested_at.as_deref().and_then(stamp::parse);
        let asked = asked_for(drain.principal.as_deref(), at, drain.reason.as_deref());
        return format!("{asked} (petasos resume ends it)");
    }
    let what = if drain.kind == "restart" { "restarting" } else { "stopping" };
    let since = drain.since.map(|since| format!(" for {}", span(now().since(since)))).unwrap_or_default();
    let left = drain.deadline.map(|at| format!(", turns have {} left", span(at.since(now()))));
    let reason = drain.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{what}{since}{}{reason}", left.unwrap_or_default())
}

fn stored(context: &Context) -> Result<usize, Failure> {
    match reader(&context.home)? {
        Some(reader) => Ok(reader.sessions(None, ALL)?.len()),
        None => Ok(0),
    }
}

fn line(name: &str, text: &str) {
    crate::print::say!("  {} {text}", styled(DIM, &format!("{name:<9}")));
}
