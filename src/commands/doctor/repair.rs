//! `petasos doctor --repair`, and the findings about salvages and backups.

use std::process::ExitCode;
use std::time::Duration;

use petasos_cli::backup::schedule::BackupSchedule;
use petasos_cli::backup::{newest, summary};
use petasos_cli::commands::Context;
use petasos_cli::failure::Failure;
use petasos_cli::lock;
use petasos_cli::print::{self, now};
use petasos_config::Home;
use petasos_store::{Reader, Salvage, Store};
use serde_json::json;

use super::Finding;

const REPORT_FOR: Duration = Duration::from_secs(30 * 24 * 3600);
const MAX_BACKUP_AGE: Duration = Duration::from_secs(8 * 24 * 3600);

/// Checks the whole database and salvages it if it is damaged. Locks the home meanwhile.
pub(crate) fn repair(context: &Context) -> Result<ExitCode, Failure> {
    let _lock = lock::acquire(&context.home)?;
    let salvaged = Store::repair(context.home.database(), now())?;
    if context.json {
        print::json(&json!({ "damaged": salvaged.is_some(), "salvage": salvaged }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match salvaged {
        None => print::outln!("The database is intact; nothing was changed"),
        Some(salvage) => print_salvage(&salvage),
    }
    Ok(ExitCode::SUCCESS)
}

fn print_salvage(salvage: &Salvage) {
    print::outln!("{}", salvage.text().trim_end());
    print::outln!("The report is in {}", salvage.report);
    print::outln!("next: petasos run");
}

pub(super) fn last_salvage(home: &Home) -> Option<Finding> {
    let last = Reader::open(home.database()).ok()?.last_salvage().ok()??;
    if now().since(last.at) > REPORT_FOR {
        return None;
    }
    let detail = format!("{}: {}", print::ago(last.at, now()), last.summary());
    Some(Finding::warn(
        "salvage",
        detail,
        format!("check the disk; the damaged database is kept in {}", last.moved_to),
    ))
}

pub(super) fn backup(home: &Home) -> Finding {
    let schedule = BackupSchedule::from_settings(home, &petasos_config::load(home).settings);
    let directory = &schedule.plan.directory;
    match (newest(directory), summary(directory, now())) {
        (Some((_, at)), Some(text)) if now().since(at) < MAX_BACKUP_AGE => Finding::ok("backup", text),
        (Some(_), Some(text)) => Finding::warn("backup", text, "petasos backup creates a newer one"),
        (None, _) | (_, None) => {
            let detail = format!("none in {}", directory.display());
            Finding::warn(
                "backup",
                detail,
                "petasos backup creates one; backup.schedule_hours schedules them",
            )
        }
    }
}
