//! `petasos sessions archive` and `restore`: archived conversations.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use petasos_core::SessionId;
use petasos_gateway::retention::file;
use petasos_store::{Archive, Reader, RestoreOutcome};
use serde_json::json;

use crate::commands::{Context, write_offline};
use crate::failure::Failure;
use crate::print::{self, ago, count, now, outln, truncate};

pub(super) fn list(context: &Context, reader: Option<&Reader>, limit: usize) -> Result<ExitCode, Failure> {
    let found = reader.map_or(Ok(Vec::new()), |reader| reader.archives(limit))?;
    if context.json {
        print::json(&found.iter().map(|it| as_json(context, it)).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if found.is_empty() {
        outln!("No archived conversations");
        return Ok(ExitCode::SUCCESS);
    }
    let rows = found.iter().map(|it| {
        vec![
            it.id.to_string(),
            it.messages.to_string(),
            ago(it.last_at, now()),
            ago(it.archived_at, now()),
            format!("{} KB", it.bytes.div_ceil(1024)),
            truncate(it.title.as_deref().unwrap_or("-"), 50),
        ]
    });
    print::table(&["ID", "MESSAGES", "LAST", "ARCHIVED", "SIZE", "TITLE"], &rows.collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

pub(super) fn restore(context: &Context, reader: Option<Reader>, wanted: &str) -> Result<ExitCode, Failure> {
    let archive = match &reader {
        Some(reader) => reader.archive_of(&SessionId(wanted.to_owned()))?,
        None => None,
    };
    let path =
        archive.as_ref().and_then(|it| archive_path(context, it)).unwrap_or_else(|| PathBuf::from(wanted));
    // Closed first: the database is opened for writing next.
    drop(reader);
    let lines = file::lines(&path).map_err(|error| {
        let message = match error.kind() {
            std::io::ErrorKind::NotFound => format!("there is no archived conversation {wanted}"),
            _ => format!("{} cannot be read: {error}", path.display()),
        };
        Failure::new(message).next("petasos sessions archive lists archived conversations")
    })?;
    match write_offline(&context.home, |tx| tx.restore(lines, now()))? {
        RestoreOutcome::Done { id, messages } => {
            if archive.is_some() {
                delete_archive(&path);
            }
            outln!("Restored {id} with {}", count(messages, "message", "messages"));
            Ok(ExitCode::SUCCESS)
        }
        RestoreOutcome::Present(id) => Err(Failure::new(format!("session {id} already exists"))),
        RestoreOutcome::Unreadable => {
            Err(Failure::new(format!("{} is not a session archive", path.display())))
        }
    }
}

/// A restored conversation needs no archive file.
fn delete_archive(path: &Path) {
    if let Err(error) = std::fs::remove_file(path) {
        outln!("{} was not deleted and is no longer needed: {error}", path.display());
    }
}

fn archive_path(context: &Context, archive: &Archive) -> Option<PathBuf> {
    archive.file.as_ref().map(|name| file::folder(context.home.path()).join(name))
}

fn as_json(context: &Context, it: &Archive) -> serde_json::Value {
    json!({
        "id": it.id, "key": it.key, "title": it.title, "messages": it.messages, "last_at": it.last_at,
        "archived_at": it.archived_at, "bytes": it.bytes, "file": archive_path(context, it),
    })
}
