//! `petasos links unreadable`: platform events that no adapter could parse, read from the database.

use std::process::ExitCode;

use petasos_store::UnreadableEvent;
use serde_json::{Value, json};

use crate::commands::{Context, open_reader};
use crate::failure::Failure;
use crate::print::{self, ago, now, outln, truncate};

const MAX_EVENTS: usize = 1000;

pub(super) fn list(context: &Context) -> Result<ExitCode, Failure> {
    let events = match open_reader(&context.home)? {
        Some(reader) => reader.unreadable_events(MAX_EVENTS)?,
        None => Vec::new(),
    };
    if context.json {
        print::json(&events.iter().map(as_json).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if events.is_empty() {
        outln!("No unreadable events");
        return Ok(ExitCode::SUCCESS);
    }
    let rows = events.iter().map(|event| {
        vec![
            event.id.to_string(),
            ago(event.at, now()),
            platform(event).to_owned(),
            truncate(event.event.as_deref().unwrap_or("-"), 40),
            event.size.to_string(),
            truncate(&event.why, 60),
        ]
    });
    print::table(&["ID", "WHEN", "PLATFORM", "EVENT", "BYTES", "REASON"], &rows.collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

pub(super) fn raw(context: &Context, id: i64) -> Result<ExitCode, Failure> {
    let found = match open_reader(&context.home)? {
        Some(reader) => reader.unreadable_raw(id)?,
        None => None,
    };
    let Some(raw) = found else {
        let failure = Failure::new(format!("no unreadable event has the id {id}"));
        return Err(failure.next("petasos links unreadable lists all"));
    };
    if context.json {
        print::json(&json!({ "id": id, "raw": raw }))?;
    } else {
        // External text: control characters must not reach the terminal.
        outln!(
            "{}",
            raw.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect::<String>()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn as_json(event: &UnreadableEvent) -> Value {
    let UnreadableEvent { id, event: named, why, size, at, .. } = event;
    json!({ "id": id, "at": at, "platform": platform(event), "event": named, "bytes": size, "why": why })
}

fn platform(event: &UnreadableEvent) -> &str {
    event.link.split_once('/').map_or(event.link.as_str(), |(platform, _account)| platform)
}
