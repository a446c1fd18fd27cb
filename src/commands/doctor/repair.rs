//! `petasos doctor --repair`, and what the doctor says of salvages and backups.

use std::process::ExitCode;
use std::time::Duration;

use petasos_cli::backup::schedule::Schedule;
use petasos_cli::backup::{about, newest};
use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::lock;
use petasos_cli::print::{self, now};
use petasos_config::Home;
use petasos_store::{Reader, Salvage, Store};
use serde_json::json;

use super::Finding;

/// A salvage that long ago is no news any more.
const RECENT: Duration = Duration::from_secs(30 * 24 * 3600);
/// A backup older than this is worth a word.
const OLD: Duration = Duration::from_secs(8 * 24 * 3600);

/// Checks the whole database and salvages it if it is damaged. Takes the home meanwhile.
pub(crate) fn repair(context: &Context) -> Result<ExitCode, Failure> {
    let _lock = lock::take(&context.home)?;
    let salvaged = Store::repair(context.home.database(), now())?;
    if context.json {
        print::json(&json!({ "damaged": salvaged.is_some(), "salvage": salvaged }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match salvaged {
        None => print::say!("the database is sound; nothing was changed"),
        Some(salvage) => tell(&salvage),
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(salvage: &Salvage) {
    print::say!("{}", salvage.text().trim_end());
    print::say!("The report is in {}", salvage.report);
    print::say!("next: petasos run");
}

/// Only a recent one.
pub(super) fn last_salvage(home: &Home) -> Option<Finding> {
    let last = Reader::open(home.database()).ok()?.last_salvage().ok()??;
    if now().since(last.at) > RECENT {
        return None;
    }
    let detail = format!("{}: {}", print::ago(last.at, now()), last.summary());
    Some(Finding::warn(
        "salvage",
        detail,
        format!("check the disk; {} keeps what was damaged", last.moved_to),
    ))
}

pub(super) fn backup(home: &Home) -> Finding {
    let schedule = Schedule::of(home, &petasos_config::load(home).settings);
    let directory = &schedule.plan.directory;
    match (newest(directory), about(directory, now())) {
        (Some((_, at)), Some(words)) if now().since(at) < OLD => Finding::ok("backup", words),
        (Some(_), Some(words)) => Finding::warn("backup", words, "petasos backup makes a newer one"),
        (None, _) | (_, None) => {
            let detail = format!("none in {}", directory.display());
            Finding::warn(
                "backup",
                detail,
                "petasos backup makes one; backup.schedule_hours makes them regularly",
            )
        }
    }
}
