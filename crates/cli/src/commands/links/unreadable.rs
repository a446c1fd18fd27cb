//! `petasos links unreadable`: what platforms told us and no adapter could read. Needs no gateway.

use std::process::ExitCode;

use petasos_store::Unread;
use serde_json::{Value, json};

use crate::commands::{Context, reader};
use crate::failure::Failure;
use crate::print::{self, ago, cut, now, say};

const MOST: usize = 1000;

pub(super) fn list(context: &Context) -> Result<ExitCode, Failure> {
    let events = match reader(&context.home)? {
        Some(reader) => reader.unreadable_events(MOST)?,
        None => Vec::new(),
    };
    if context.json {
        print::json(&events.iter().map(shown).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    if events.is_empty() {
        say!("none; everything that platforms told us could be read");
        return Ok(ExitCode::SUCCESS);
    }
    let rows = events.iter().map(|event| {
        vec![
            event.id.to_string(),
            ago(event.at, now()),
            platform(event).to_owned(),
            cut(event.event.as_deref().unwrap_or("-"), 40),
            event.size.to_string(),
            cut(&event.why, 60),
        ]
    });
    print::table(&["ID", "WHEN", "PLATFORM", "EVENT", "BYTES", "WHY"], &rows.collect::<Vec<_>>());
    Ok(ExitCode::SUCCESS)
}

pub(super) fn raw(context: &Context, id: i64) -> Result<ExitCode, Failure> {
    let found = match reader(&context.home)? {
        Some(reader) => reader.unreadable_raw(id)?,
        None => None,
    };
    let Some(raw) = found else {
        let failure = Failure::new(format!("there is no unreadable event {id}"));
        return Err(failure.next("petasos links unreadable lists them"));
    };
    if context.json {
        print::json(&json!({ "id": id, "raw": raw }))?;
    } else {
        // It comes from outside: nothing in it may reach the terminal as a command.
        say!(
            "{}",
            raw.chars().map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c }).collect::<String>()
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn shown(event: &Unread) -> Value {
    let Unread { id, event: named, why, size, at, .. } = event;
    json!({ "id": id, "at": at, "platform": platform(event), "event": named, "bytes": size, "why": why })
}

fn platform(event: &Unread) -> &str {
    event.link.split_once('/').map_or(event.link.as_str(), |(platform, _account)| platform)
}
