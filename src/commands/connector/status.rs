//! `petasos connector status`, with or without a running connector. A database that cannot be read does not hide the rest.

use std::process::ExitCode;
use std::time::Duration;

use petasos_cli::commands::Context;
use petasos_cli::commands::links::rate_limit;
use petasos_cli::failure::Failure;
use petasos_cli::lock;
use petasos_cli::print::{self, WARNING, now, outln, styled};
use petasos_connector::ConnectorStatus;
use petasos_core::rate_limit::Penalty;
use petasos_store::Salvage;
use petasos_store::connector::{DeadLetter, QueueDepth};
use serde_json::{Value, json};

use super::{print_response, query_database};

const MAX_DEAD_LETTERS: usize = 20;
/// How long a salvage is shown.
const SALVAGE_SHOWN: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Debug, Default)]
struct StoredStatus {
    depths: Vec<QueueDepth>,
    dead: Vec<DeadLetter>,
    limits: Vec<Penalty>,
    salvage: Option<Salvage>,
}

pub(super) fn status(context: &Context) -> Result<ExitCode, Failure> {
    let found = query_database(context, |reader| {
        let depths = reader.depths()?;
        let dead = reader.dead_letters(MAX_DEAD_LETTERS)?;
        let mut limits = reader.penalties()?;
        limits.retain(|penalty| penalty.until > now());
        let salvage = reader.last_salvage()?.filter(|last| now().since(last.at) < SALVAGE_SHOWN);
        Ok(StoredStatus { depths, dead, limits, salvage })
    });
    let (stored, unreadable) = match found {
        Ok(stored) => (stored.unwrap_or_default(), None),
        Err(failure) => (StoredStatus::default(), Some(failure)),
    };
    let running = lock::is_held(&context.home.connector_lock());
    let live = ConnectorStatus::read(context.home.path()).filter(|_| running).map(|status| status.0);
    let of_live = |name: &str| live.as_ref().map(|live| live[name].clone());
    let response = json!({
        "running": running,
        "listen": of_live("listen"),
        "links": of_live("links"),
        "rate_limits": stored.limits,
        "store_trouble": of_live("store_trouble"),
        "store_recoveries": of_live("store_recoveries"),
        "database_error": unreadable.as_ref().map(ToString::to_string),
        "salvage": stored.salvage,
        "instances": stored.depths.iter().map(|depth| instance(depth, live.as_ref())).collect::<Vec<_>>(),
        "dead": stored.dead.iter().map(dead_letter).collect::<Vec<_>>(),
    });
    if context.json {
        return print_response(context, &response);
    }
    outln!("{}", if running { "The connector is running" } else { "No connector is running on this home" });
    let trouble = response["store_trouble"].as_str().or(response["database_error"].as_str());
    if let Some(problem) = trouble {
        outln!("Database: {problem}");
    }
    stored.salvage.iter().for_each(print_salvage);
    for penalty in &stored.limits {
        outln!("{}", styled(WARNING, &rate_limit(penalty, now())));
    }
    let rows: Vec<_> = response["instances"].as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        outln!("No instances yet; petasos connector gateway add adds one");
        return Ok(ExitCode::SUCCESS);
    }
    print::table(&["INSTANCE", "TENANT", "MODE", "WAITING", "DEAD"], &rows);
    Ok(ExitCode::SUCCESS)
}

fn print_salvage(salvage: &Salvage) {
    let what = format!("Salvage {}: {}", print::ago(salvage.at, now()), salvage.summary());
    outln!("{}", styled(WARNING, &what));
    salvage.consequences.iter().for_each(|consequence| outln!("  {consequence}"));
}

/// `live`: the status of the running process.
fn instance(depth: &QueueDepth, live: Option<&Value>) -> Value {
    let stored = if depth.idle { "idle" } else { "gone" };
    let running = live
        .and_then(|live| live["instances"].as_array()?.iter().find(|it| it["id"] == depth.instance.as_str()));
    let mode = running.and_then(|it| it["mode"].as_str()).unwrap_or(stored);
    json!({
        "id": depth.instance, "tenant": depth.tenant, "entries": depth.entries, "bytes": depth.bytes,
        "dead": depth.dead, "mode": mode,
    })
}

fn dead_letter(letter: &DeadLetter) -> Value {
    json!({
        "id": letter.id, "instance": letter.instance, "platform": letter.platform, "why": letter.why,
        "at": letter.at,
    })
}

fn row(instance: &Value) -> Vec<String> {
    let text = |name: &str| instance[name].as_str().map_or_else(|| instance[name].to_string(), str::to_owned);
    let mode = match text("mode").as_str() {
        "gone" => "disconnected".to_owned(),
        mode => mode.to_owned(),
    };
    vec![text("id"), text("tenant"), mode, text("entries"), text("dead")]
}
