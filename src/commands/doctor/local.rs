//! Checks of the local machine.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use petasos_cli::commands::{missing_database, outbox, pairing};
use petasos_cli::failure::{Failure, WRITABLE_ADVICE};
use petasos_cli::print;
use petasos_config::Home;
use petasos_core::dead_chat::DeadChat;
use petasos_core::lifecycle::stamp;
use petasos_core::text::format_bytes;
use petasos_gateway::retention::{self, Retention};
use petasos_store::{OpenError, Reader};
use rustix::fs::StatVfsMountFlags;

use super::Finding;
use crate::wire::Listen;

const MAX_CHATS: usize = 10;
const LOW_SPACE: u64 = 1 << 30;
const MIN_SPACE: u64 = 64 << 20;
/// 2026-01-01: an earlier clock was never set.
const MIN_CLOCK: u64 = 1_767_225_600_000;

pub(super) fn home(home: &Home) -> Finding {
    let path = home.path();
    let shown = format!("{} ({})", path.display(), home.named_by);
    if !path.exists() {
        return Finding::warn("home", format!("{shown} does not exist yet"), "petasos run creates it");
    }
    let probe = path.join(".petasos-doctor");
    let written = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));
    match written {
        Ok(()) => Finding::ok("home", shown),
        Err(error) => Finding::fail(
            "home",
            format!("{shown} cannot be written: {error}"),
            "fix its owner, or select another home with --home DIR",
        ),
    }
}

/// The home contains secrets and must be private.
pub(super) fn permissions(home: &Home) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, mode) in
        [(home.path().to_path_buf(), "700"), (home.dotenv_file(), "600"), (home.config_file(), "600")]
    {
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        if metadata.permissions().mode() & 0o077 != 0 {
            let detail = format!("other users can read {}", path.display());
            findings.push(Finding::warn("permissions", detail, format!("chmod {mode} {}", path.display())));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::ok("permissions", "private"));
    }
    findings
}

pub(super) fn disk(home: &Home) -> Finding {
    let existing = home.path().ancestors().find(|path| path.exists());
    let Some(metadata) = existing.and_then(|path| rustix::fs::statvfs(path).ok()) else {
        return Finding::warn("disk", "free space is unknown", "check it by hand");
    };
    if metadata.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Finding::fail("disk", "the file system is mounted read-only", WRITABLE_ADVICE);
    }
    if metadata.f_blocks == 0 {
        return Finding::ok("disk", "the file system does not report free space");
    }
    let free = metadata.f_bavail.saturating_mul(metadata.f_frsize);
    let detail = format!("{} free", format_bytes(free));
    match free {
        ..MIN_SPACE => {
            Finding::fail("disk", detail, "free some space: with a full disk no new messages are accepted")
        }
        MIN_SPACE..LOW_SPACE => Finding::warn("disk", detail, "free some space soon"),
        _ => Finding::ok("disk", detail),
    }
}

pub(super) fn database(home: &Home) -> Finding {
    let opened = match Reader::open(home.database()) {
        Ok(reader) => reader,
        Err(OpenError::Absent { .. }) if missing_database(home).is_none() => {
            return Finding::ok("database", "none yet");
        }
        Err(error) => {
            let error = missing_database(home).unwrap_or(error);
            let (what, next) = Failure::from(error).parts();
            return Finding::fail("database", what, next);
        }
    };
    match opened.damage() {
        Ok(metadata) if metadata.is_empty() => {}
        Ok(metadata) => {
            let listed: Vec<_> = metadata.iter().map(ToString::to_string).collect();
            let advice = "petasos stop, then petasos doctor --repair (or petasos restore with a backup)";
            return Finding::fail("database", format!("damaged: {}", listed.join("; ")), advice);
        }
        Err(error) => {
            return Finding::fail("database", error.to_string(), "check the disk and its permissions");
        }
    }
    let counted = opened.backlog().and_then(|inbox| Ok((inbox, opened.outbox_counts()?)));
    match counted {
        Err(error) => {
            Finding::fail("database", error.to_string(), "make a copy of it, then restore a backup")
        }
        Ok((_, outbox)) if outbox.dead > 0 => {
            let detail = format!(
                "intact; {} in the dead-letter list",
                print::count(outbox.dead, "message", "messages")
            );
            Finding::warn("database", detail, "petasos outbox --state dead")
        }
        Ok((inbox, outbox)) => {
            let detail = format!(
                "intact; messages to answer: {}, to deliver: {}",
                inbox.queued + inbox.claimed,
                outbox.due
            );
            Finding::ok("database", detail)
        }
    }
}

pub(super) fn unreadable(home: &Home) -> Option<Finding> {
    let reader = Reader::open(home.database()).ok()?;
    let count = reader.unreadable_count().ok().filter(|count| *count > 0)?;
    let detail = format!("{} could not be parsed", print::count(count, "event", "events"));
    Some(Finding::warn("events", detail, "petasos links unreadable lists them; please report them"))
}

pub(super) fn pairing(home: &Home) -> Vec<Finding> {
    let books = Reader::open(home.database()).ok().and_then(|reader| reader.pairing_states().ok());
    let closed = books.into_iter().flatten().filter_map(|(platform, book)| {
        let until = pairing::lock_of(book.locked_until)?;
        let detail = format!(
            "locked on {platform} {}: too many wrong codes",
            print::describe_until(until, print::now())
        );
        Some(Finding::warn("pairing", detail, format!("petasos pairing unlock {platform}")))
    });
    closed.collect()
}

pub(super) fn dead_chats(home: &Home) -> Vec<Finding> {
    let dead = Reader::open(home.database()).ok().and_then(|reader| reader.dead_chats().ok());
    let line = |chat: &DeadChat| Finding::warn("chat", outbox::about(chat), outbox::ADVICE);
    dead.unwrap_or_default().iter().take(MAX_CHATS).map(line).collect()
}

/// Announced archiving: the owner may have no home channel to be notified in.
pub(super) fn archiving(home: &Home, retention: &Retention) -> Option<Finding> {
    let reader = Reader::open(home.database()).ok()?;
    let from = retention::announced(&reader).ok().flatten()?.after(retention.notice);
    let detail = format!("old unused conversations are archived or deleted from {} on", stamp::format(from));
    if from < print::now() {
        return Some(Finding::ok("retention", detail));
    }
    Some(Finding::warn("retention", detail, "retention.mode: keep keeps all of them"))
}

/// One finding for all valid hooks, one for each invalid one.
pub(super) fn hooks(home: &Home) -> Vec<Finding> {
    let (good, broken) = petasos_gateway::hooks::read(home.path());
    let named = |hook: &petasos_gateway::hooks::Hook| format!("{} ({})", hook.name, hook.events.join(", "));
    let names: Vec<String> = good.iter().map(named).collect();
    let fine = (!names.is_empty()).then(|| Finding::ok("hooks", names.join("; ")));
    let skipped = broken.into_iter().map(|hook| {
        let detail = format!("{} is skipped: {}", hook.folder.display(), hook.reason);
        Finding::warn("hooks", detail, "correct it, then petasos restart")
    });
    fine.into_iter().chain(skipped).collect()
}

pub(super) fn port(listen: &Listen) -> Finding {
    let Listen { host, port } = listen;
    match TcpListener::bind((host.as_str(), *port)) {
        Ok(_) => Finding::ok("port", format!("{host}:{port} is free")),
        Err(error) => Finding::fail(
            "port",
            format!("{host}:{port} cannot be listened on: {error}"),
            "stop the other program, or set another web.port",
        ),
    }
}

#[expect(clippy::disallowed_methods, reason = "shows the local time")]
pub(super) fn clock() -> Finding {
    let zone = jiff::Zoned::now();
    let shown = zone.strftime("%Y-%m-%d %H:%M %Z").to_string();
    if print::now().0 < MIN_CLOCK {
        return Finding::fail(
            "clock",
            format!("{shown} is in the past"),
            "set the clock; TLS and resets depend on it",
        );
    }
    Finding::ok("clock", shown)
}
