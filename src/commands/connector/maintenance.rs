//! `petasos connector backup` and `repair`.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::ExitCode;

use petasos_cli::commands::Context;
use petasos_cli::failure::{Failure, WRITABLE_ADVICE};
use petasos_cli::lock::Lock;
use petasos_cli::print::{self, now, outln};
use petasos_store::{Reader, Store, finish_connector_copy};
use serde_json::json;

use super::run::lock_failure;
use super::{print_response, with_transaction};

/// Copies the database to a new file, which appears under its name when it is complete and checked.
pub(super) fn backup(context: &Context, out: &Path) -> Result<ExitCode, Failure> {
    if out.exists() {
        return Err(Failure::new(format!("{} already exists", out.display()))
            .next("choose another file with --out, or remove it"));
    }
    if !context.home.path().join(petasos_connector::DATABASE).exists() {
        return Err(Failure::new("there is no database of a connector to back up")
            .next("--home DIR selects the home of the connector"));
    }
    let part = out.with_added_extension("part");
    let copied = copy(context, &part).and_then(|rows| {
        let synced = File::open(&part).and_then(|file| file.sync_all());
        synced.and_then(|()| std::fs::rename(&part, out)).map_err(|error| unwritable(out, &error))?;
        Ok(rows)
    });
    let rows = copied.inspect_err(|_| {
        // Best effort: the next backup to this file removes it too.
        let _ = std::fs::remove_file(&part);
    })?;
    print_response(context, &json!({ "backup": out, "rows": rows }))
}

fn copy(context: &Context, part: &Path) -> Result<u64, Failure> {
    let reader = Reader::open_connector(context.home.path().join(petasos_connector::DATABASE))?;
    // Truncated, because a killed backup may have left it; SQLite fills an empty file.
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(part)
        .map_err(|error| unwritable(part, &error))?;
    reader.copy_to(part)?;
    Ok(finish_connector_copy(part)?)
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(format!("{}: {error}", path.display())).next(WRITABLE_ADVICE)
}

pub(super) fn repair(context: &Context) -> Result<ExitCode, Failure> {
    let _lock = Lock::acquire(&context.home.connector_lock()).map_err(lock_failure)?;
    let salvaged = Store::repair_connector(context.home.path().join(petasos_connector::DATABASE), now())?;
    if context.json {
        print::json(&json!({ "damaged": salvaged.is_some(), "salvage": salvaged }))?;
        return Ok(ExitCode::SUCCESS);
    }
    match salvaged {
        None => outln!("The database of the connector is intact; nothing was changed"),
        Some(salvage) => {
            outln!("{}", salvage.text().trim_end());
            outln!("The report is in {}", salvage.report);
            outln!("next: petasos connector run");
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Admits people without a rule again.
pub(super) fn accept_lost_denials(context: &Context) -> Result<ExitCode, Failure> {
    let accepted = with_transaction(context, |tx| tx.accept_lost_denials())?;
    print_response(context, &json!({ "accepted": accepted }))
}
