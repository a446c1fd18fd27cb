//! `petasos status`: the state of the running gateway, or how the last one ended.

mod stopped;

use std::process::ExitCode;
use std::time::Duration;

use petasos_config::{Settings, limits};
use petasos_core::dead_chat::DeadChat;
use petasos_core::lifecycle::stamp;
use petasos_core::text::format_bytes;
use petasos_core::{Millis, Platform};
use serde::Deserialize;
use serde_json::{Value, json};

use super::drain::request_summary;
use crate::backup;
use crate::backup::schedule::BackupSchedule;
use crate::client::{Client, Error};
use crate::commands::links::{self, NamedLink};
use crate::commands::outbox;
use crate::commands::sessions::NO_LIMIT;
use crate::commands::{Context, open_reader};
use crate::failure::Failure;
use crate::observe::{ActiveTurn, DrainStatus, LifecycleStatus};
use crate::print::{self, BOLD, DIM, ERROR, SUCCESS, WARNING, ago, now, span, styled};

/// A gateway that takes longer counts as unresponsive.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_SHOWN: usize = 10;

/// The fields that are shown to people; JSON output passes the response on unchanged.
#[derive(Debug, Deserialize)]
struct StatusResponse {
    version: String,
    pid: u32,
    started_at: Millis,
    state: String,
    model: ModelSummary,
    links: Vec<NamedLink>,
    sessions: u64,
    /// `None` if the database cannot be read at the moment.
    stored_sessions: Option<usize>,
    inbox: InboxCounts,
    outbox: OutboxCounts,
    unreadable: u64,
    dead_chats: Vec<DeadChat>,
    mcp: Vec<ToolServer>,
    #[serde(rename = "untold")]
    unreported: Vec<UnreportedWork>,
    #[serde(default)]
    storage: Option<StorageUse>,
    store_trouble: Option<String>,
    #[serde(default)]
    salvage: Option<SalvageSummary>,
    #[serde(default)]
    backup: Option<String>,
    #[serde(default)]
    restrictions: Vec<String>,
    store_recoveries: u64,
    drain: Option<DrainStatus>,
    holders: Vec<ActiveTurn>,
}

#[derive(Debug, Deserialize)]
struct SalvageSummary {
    at: Millis,
    summary: String,
}

#[derive(Debug, Deserialize)]
struct StorageUse {
    database_bytes: u64,
    free_bytes: u64,
    #[serde(default)]
    archive_bytes: u64,
    growth_per_day: Option<i64>,
    disk_free_bytes: Option<u64>,
    archiving_from: Option<Millis>,
    warning: Option<String>,
}

/// Finished background work that its conversation has not been notified of.
#[derive(Debug, Deserialize)]
struct UnreportedWork {
    work: String,
    session_key: String,
    undeliverable: bool,
    reason: String,
    since: Millis,
}

#[derive(Debug, Deserialize)]
struct ModelSummary {
    name: String,
    provider: String,
    demo: bool,
}

#[derive(Debug, Deserialize)]
struct InboxCounts {
    queued: u64,
    running: u64,
}

#[derive(Debug, Deserialize)]
struct ToolServer {
    name: String,
    state: String,
    tools: usize,
    #[serde(rename = "why")]
    error: Option<String>,
}

#[derive(Debug, Deserialize)]
struct OutboxCounts {
    due: u64,
    dead: u64,
}

/// `native`: the platforms that the settings give an adapter.
pub async fn status(context: &Context, native: fn(&Settings) -> Vec<Platform>) -> Result<ExitCode, Failure> {
    let settings = petasos_config::load(&context.home).settings;
    let restrictions = limits::summary(&settings, &native(&settings));
    let Some(client) = Client::connect(&context.home)? else {
        return stopped::show(context, &restrictions);
    };
    let mut response: Value = match tokio::time::timeout(REQUEST_TIMEOUT, client.get("/api/status")).await {
        Ok(Ok(response)) => response,
        // It has just exited, or it hangs.
        Ok(Err(Error::Unreachable)) | Err(_) => return stopped::show(context, &restrictions),
        Ok(Err(error)) => return Err(error.into()),
    };
    // Reading the database may fail; the gateway's response is shown anyway.
    response["stored_sessions"] = json!(stored_sessions(context).ok());
    let schedule = BackupSchedule::from_settings(&context.home, &settings);
    response["restrictions"] = json!(restrictions);
    response["backup"] = json!(backup::summary(&schedule.plan.directory, now()));
    if context.json {
        print::json(&response)?;
        return Ok(ExitCode::SUCCESS);
    }
    let status: StatusResponse = serde_json::from_value(response)
        .map_err(|error| Failure::new(format!("the gateway's status cannot be read: {error}")))?;
    show(context, &client, &status);
    Ok(ExitCode::SUCCESS)
}

fn show(context: &Context, client: &Client, status: &StatusResponse) {
    let style = if status.state == "running" { SUCCESS } else { WARNING };
    let head = format!("Petasos {}", status.version);
    let StatusResponse { state, drain, holders, .. } = status;
    let lifecycle = LifecycleStatus { state: state.clone(), drain: drain.clone(), turns: holders.clone() };
    crate::print::outln!("{} is {}", styled(BOLD, &head), styled(style, lifecycle.display_state()));
    line("process", &format!("pid {}, started {}", status.pid, ago(status.started_at, now())));
    line("home", &context.home.path().display().to_string());
    print_turns(&lifecycle);
    let demo = if status.model.demo { " (scripted, offline)" } else { "" };
    line("model", &format!("{} at {}{demo}", status.model.name, status.model.provider));
    if let Some(url) = &client.url {
        line("web page", &format!("{url} {}", styled(DIM, "(petasos open prints a sign-in link)")));
    }
    for named in &status.links {
        line(&named.name, &links::link_summary(&named.link));
    }
    for server in &status.mcp {
        let state = match &server.error {
            Some(error) => styled(WARNING, &format!("{}: {}", server.state, print::truncate(error, 100))),
            None => format!("{}, {}", server.state, print::count(server.tools as u64, "tool", "tools")),
        };
        line(&format!("mcp {}", server.name), &state);
    }
    let stored_sessions =
        status.stored_sessions.map_or_else(|| "unknown number".into(), |count| count.to_string());
    line("sessions", &format!("{stored_sessions} stored, {} active", status.sessions));
    line("inbox", &format!("{} running, {} waiting", status.inbox.running, status.inbox.queued));
    let dead = match status.outbox.dead {
        0 => String::new(),
        dead => styled(WARNING, &format!(", {dead} dead-lettered (petasos outbox)")),
    };
    line("outbox", &format!("{} due{dead}", status.outbox.due));
    if status.unreadable > 0 {
        let count = print::count(status.unreadable, "event", "events");
        line(
            "unreadable",
            &styled(WARNING, &format!("{count} could not be parsed (petasos links unreadable)")),
        );
    }
    for dead in status.dead_chats.iter().take(MAX_SHOWN) {
        line("dead chat", &styled(WARNING, &outbox::about(dead)));
    }
    for work_item in status.unreported.iter().take(MAX_SHOWN) {
        let outcome = if work_item.undeliverable { "undeliverable" } else { "waits" };
        let UnreportedWork { work, session_key, reason, .. } = work_item;
        let since = ago(work_item.since, now());
        line(
            "background",
            &styled(WARNING, &format!("{work} of {session_key}, finished {since}: {outcome}, {reason}")),
        );
    }
    if status.unreported.len() > MAX_SHOWN {
        line("", &format!("and {} more", status.unreported.len() - MAX_SHOWN));
    }
    if let Some(storage) = &status.storage {
        storage_lines(storage);
    }
    if let Some(problem) = &status.store_trouble {
        line("disk", &styled(ERROR, problem));
    }
    if let Some(salvage) = &status.salvage {
        line("salvage", &styled(WARNING, &format!("{}: {}", ago(salvage.at, now()), salvage.summary)));
    }
    restrictions(&status.restrictions);
    line("backup", status.backup.as_deref().unwrap_or("none yet (petasos backup)"));
    if status.store_recoveries > 0 {
        let times = status.store_recoveries;
        line(
            "database",
            &styled(
                WARNING,
                &format!(
                    "another program removed its files; recovered {}",
                    print::count(times, "time", "times")
                ),
            ),
        );
    }
}

/// Prints what the settings deny, by intent or because a restriction is not implemented.
fn restrictions(restrictions: &[String]) {
    for (at, restriction) in restrictions.iter().take(MAX_SHOWN).enumerate() {
        line(if at == 0 { "denied" } else { "" }, &styled(WARNING, restriction));
    }
    if restrictions.len() > MAX_SHOWN {
        line("", &format!("and {} more (petasos config check)", restrictions.len() - MAX_SHOWN));
    }
}

fn storage_lines(storage: &StorageUse) {
    let mut text =
        format!("{}, {} of it free", format_bytes(storage.database_bytes), format_bytes(storage.free_bytes));
    if let Some(growth) = storage.growth_per_day {
        let sign = if growth < 0 { "-" } else { "+" };
        text.push_str(&format!(", {sign}{} a day", format_bytes(growth.unsigned_abs())));
    }
    if let Some(free) = storage.disk_free_bytes {
        text.push_str(&format!("; {} free on the disk", format_bytes(free)));
    }
    line("database", &text);
    if storage.archive_bytes > 0 {
        line("archive", &format_bytes(storage.archive_bytes));
    }
    if let Some(from) = storage.archiving_from {
        let day = stamp::format(from);
        let day = day.split('T').next().unwrap_or_default();
        line("", &format!("old conversations are archived or deleted from {day} on (retention.mode)"));
    }
    if let Some(warning) = &storage.warning {
        line("disk", &styled(WARNING, warning));
    }
}

fn print_turns(lifecycle: &LifecycleStatus) {
    if let Some(drain) = &lifecycle.drain {
        line("drain", &styled(WARNING, &drain_summary(drain)));
    }
    for turn in lifecycle.turns.iter().take(MAX_SHOWN) {
        let left = match (turn.skipped, lifecycle.deadline_of(turn)) {
            (true, _) => ", skipped".into(),
            (false, Some(until)) => format!(", {} left", span(until.since(now()))),
            (false, None) => String::new(),
        };
        let since = span(now().since(turn.since));
        line("turn", &format!("{}: {} for {since}{left}", turn.key, turn.activity.description()));
    }
    if lifecycle.turns.len() > MAX_SHOWN {
        line("", &format!("and {} more", lifecycle.turns.len() - MAX_SHOWN));
    }
}

fn drain_summary(drain: &DrainStatus) -> String {
    if drain.is_external() {
        let at = drain.requested_at.as_deref().and_then(stamp::parse);
        let summary = request_summary(drain.principal.as_deref(), at, drain.reason.as_deref());
        return format!("{summary} (petasos resume ends the drain)");
    }
    let what = if drain.kind == "restart" { "restarting" } else { "stopping" };
    let since = drain.since.map(|since| format!(" for {}", span(now().since(since)))).unwrap_or_default();
    let left = drain.deadline.map(|at| format!(", turns have {} left", span(at.since(now()))));
    let reason = drain.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{what}{since}{}{reason}", left.unwrap_or_default())
}

fn stored_sessions(context: &Context) -> Result<usize, Failure> {
    match open_reader(&context.home)? {
        Some(reader) => Ok(reader.sessions(None, NO_LIMIT)?.len()),
        None => Ok(0),
    }
}

fn line(name: &str, text: &str) {
    crate::print::outln!("  {} {text}", styled(DIM, &format!("{name:<9}")));
}
