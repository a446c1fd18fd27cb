//! What can be seen without asking anybody.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

use petasos_cli::commands::{outbox, pairing, vanished};
use petasos_cli::failure::{Failure, WRITABLE};
use petasos_cli::print;
use petasos_config::Home;
use petasos_core::dead::DeadChat;
use petasos_core::lifecycle::stamp;
use petasos_core::text::size;
use petasos_gateway::retention::{self, Retention};
use petasos_store::{OpenError, Reader};
use rustix::fs::StatVfsMountFlags;

use super::Finding;
use crate::wire::Listen;

/// Dead chats worth a line each.
const MOST_CHATS: usize = 10;
const LITTLE: u64 = 1 << 30;
const TOO_LITTLE: u64 = 64 << 20;
/// 2026-01-01; a clock before that was never set.
const THE_PAST: u64 = 1_767_225_600_000;

pub(super) fn home(home: &Home) -> Finding {
    let path = home.path();
    let shown = format!("{} ({})", path.display(), home.named_by);
    if !path.exists() {
        return Finding::warn("home", format!("{shown} is not there yet"), "petasos run creates it");
    }
    let probe = path.join(".petasos-doctor");
    let written = std::fs::write(&probe, b"").and_then(|()| std::fs::remove_file(&probe));
    match written {
        Ok(()) => Finding::ok("home", shown),
        Err(error) => Finding::fail(
            "home",
            format!("{shown} cannot be written: {error}"),
            "fix its owner or choose --home",
        ),
    }
}

/// Secrets live in the home: nobody else should be able to read it.
pub(super) fn permissions(home: &Home) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, mode) in
        [(home.path().to_path_buf(), "700"), (home.dotenv_file(), "600"), (home.config_file(), "600")]
    {
        let Ok(found) = std::fs::metadata(&path) else { continue };
        if found.permissions().mode() & 0o077 != 0 {
            let detail = format!("others can read {}", path.display());
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
    let Some(found) = existing.and_then(|path| rustix::fs::statvfs(path).ok()) else {
        return Finding::warn("disk", "free space is unknown", "check it by hand");
    };
    if found.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return Finding::fail("disk", "the file system is mounted read-only", WRITABLE);
    }
    if found.f_blocks == 0 {
        return Finding::ok("disk", "the file system does not say how much is free");
    }
    let free = found.f_bavail.saturating_mul(found.f_frsize);
    let detail = format!("{} free", size(free));
    match free {
        ..TOO_LITTLE => {
            Finding::fail("disk", detail, "make room: a full disk stops new messages from being accepted")
        }
        TOO_LITTLE..LITTLE => Finding::warn("disk", detail, "make room soon"),
        _ => Finding::ok("disk", detail),
    }
}

pub(super) fn database(home: &Home) -> Finding {
    let opened = match Reader::open(home.database()) {
        Ok(reader) => reader,
        Err(OpenError::Absent { .. }) if vanished(home).is_none() => {
            return Finding::ok("database", "none yet");
        }
        Err(error) => {
            let error = vanished(home).unwrap_or(error);
            let (what, next) = Failure::from(error).parts();
            return Finding::fail("database", what, next);
        }
    };
    match opened.damage() {
        Ok(found) if found.is_empty() => {}
        Ok(found) => {
            let listed: Vec<_> = found.iter().map(ToString::to_string).collect();
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
        Ok((_, owed)) if owed.dead > 0 => {
            let detail = format!("sound; {} given up", print::count(owed.dead, "message", "messages"));
            Finding::warn("database", detail, "petasos outbox --state dead")
        }
        Ok((inbox, owed)) => {
            let detail =
                format!("sound; {} to answer, {} to deliver", inbox.queued + inbox.claimed, owed.due);
            Finding::ok("database", detail)
        }
    }
}

/// Only if there is any.
pub(super) fn unreadable(home: &Home) -> Option<Finding> {
    let reader = Reader::open(home.database()).ok()?;
    let count = reader.unreadable_count().ok().filter(|count| *count > 0)?;
    let detail = format!("{} could not be read", print::count(count, "event", "events"));
    Some(Finding::warn("events", detail, "petasos links unreadable lists them; please report what they are"))
}

/// Only what is closed is worth a line.
pub(super) fn pairing(home: &Home) -> Vec<Finding> {
    let books = Reader::open(home.database()).ok().and_then(|reader| reader.pairing_books().ok());
    let closed = books.into_iter().flatten().filter_map(|(platform, book)| {
        let until = pairing::lock_of(book.locked_until)?;
        let detail =
            format!("closed on {platform} {}: too many wrong codes", print::moment(until, print::now()));
        Some(Finding::warn("pairing", detail, format!("petasos pairing unlock {platform}")))
    });
    closed.collect()
}

/// The same for chats that refused us.
pub(super) fn dead_chats(home: &Home) -> Vec<Finding> {
    let dead = Reader::open(home.database()).ok().and_then(|reader| reader.dead_chats().ok());
    let line = |chat: &DeadChat| Finding::warn("chat", outbox::about(chat), outbox::ADVICE);
    dead.unwrap_or_default().iter().take(MOST_CHATS).map(line).collect()
}

/// Old conversations will leave: the owner may have no home channel to be told in.
pub(super) fn archiving(home: &Home, terms: &Retention) -> Option<Finding> {
    let reader = Reader::open(home.database()).ok()?;
    let from = retention::announced(&reader).ok().flatten()?.after(terms.notice);
    let detail = format!("old unused conversations are archived or deleted from {} on", stamp::format(from));
    if from < print::now() {
        return Some(Finding::ok("retention", detail));
    }
    Some(Finding::warn("retention", detail, "`retention.mode: keep` keeps all of them"))
}

/// One line for those that work, one for each that does not.
pub(super) fn hooks(home: &Home) -> Vec<Finding> {
    let (good, broken) = petasos_gateway::hooks::read(home.path());
    let named = |hook: &petasos_gateway::hooks::Hook| format!("{} ({})", hook.name, hook.events.join(", "));
    let names: Vec<String> = good.iter().map(named).collect();
    let fine = (!names.is_empty()).then(|| Finding::ok("hooks", names.join("; ")));
    let skipped = broken.into_iter().map(|hook| {
        let detail = format!("{} is skipped: {}", hook.folder.display(), hook.why);
        Finding::warn("hooks", detail, "mend it, then petasos restart: hooks are read at the start")
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
            "stop the other program, or set web.port",
        ),
    }
}

pub(super) fn clock() -> Finding {
    let zone = jiff::Zoned::now();
    let shown = zone.strftime("%Y-%m-%d %H:%M %Z").to_string();
    if print::now().0 < THE_PAST {
        return Finding::fail(
            "clock",
            format!("{shown} lies in the past"),
            "set the clock; TLS and resets depend on it",
        );
    }
    Finding::ok("clock", shown)
}
