//! Discovers hooks: `<home>/hooks/<folder>/HOOK.yaml` with a program beside it. Invalid hooks are reported and skipped.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

const FILE: &str = "HOOK.yaml";
const HANDLER: &str = "handler";
const MAX_HOOKS: usize = 64;
const MAX_EVENTS: usize = 64;
const MAX_MANIFEST_BYTES: u64 = 64 << 10;
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_TIMEOUT_SECONDS: u64 = 60;
const EVENTS: [&str; 7] = [
    "gateway:startup",
    "session:start",
    "session:end",
    "session:reset",
    "agent:start",
    "agent:step",
    "agent:end",
];

/// A program and the events that start it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub name: String,
    pub events: Vec<String>,
    pub(super) folder: PathBuf,
    pub(super) program: Program,
    pub(super) timeout: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Program {
    File(PathBuf),
    Shell(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidHook {
    pub folder: PathBuf,
    pub reason: String,
}

#[derive(Deserialize)]
struct HookManifest {
    name: Option<String>,
    #[serde(default)]
    events: Vec<String>,
    command: Option<String>,
    /// Seconds.
    timeout: Option<u64>,
}

impl Hook {
    /// Whether the event is listed by its full name, not through a wildcard.
    pub(super) fn lists_exactly(&self, event: &str) -> bool {
        self.events.iter().any(|it| it == event)
    }

    pub(super) fn matches(&self, event: &str) -> bool {
        let kind = event.split_once(':').map_or(event, |(kind, _)| kind);
        let all_of_them = |it: &String| it.strip_suffix(":*") == Some(kind);
        self.lists_exactly(event) || self.events.iter().any(all_of_them)
    }
}

pub fn read(home: &Path) -> (Vec<Hook>, Vec<InvalidHook>) {
    let hooks = home.join("hooks");
    let mut good = vec![];
    let mut broken = vec![];
    let entries = match std::fs::read_dir(&hooks) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (good, broken),
        Err(error) => return (good, vec![InvalidHook { folder: hooks, reason: error.to_string() }]),
    };
    if let Err(reason) = check_ownership(&hooks) {
        return (good, vec![InvalidHook { folder: hooks, reason }]);
    }
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.join(FILE).exists()).collect();
    folders.sort();
    for folder in folders {
        match load(&folder) {
            Ok(_) if good.len() >= MAX_HOOKS => {
                broken.push(InvalidHook { folder, reason: format!("there are more than {MAX_HOOKS} hooks") });
            }
            Ok(hook) => good.push(hook),
            Err(reason) => broken.push(InvalidHook { folder, reason }),
        }
    }
    (good, broken)
}

fn load(folder: &Path) -> Result<Hook, String> {
    let file = folder.join(FILE);
    check_ownership(folder)?;
    check_ownership(&file)?;
    let size = std::fs::metadata(&file).map_err(|error| error.to_string())?.len();
    if size > MAX_MANIFEST_BYTES {
        return Err(format!("{FILE} is larger than {} KB", MAX_MANIFEST_BYTES >> 10));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{FILE}: {error}"))?;
    let written: HookManifest = serde_saphyr::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
    if written.events.is_empty() || written.events.len() > MAX_EVENTS {
        return Err(format!("{FILE} must name 1 to {MAX_EVENTS} events"));
    }
    if let Some(unknown) = written.events.iter().find(|event| !is_event(event)) {
        return Err(format!(
            "there is no event {unknown:?}; known are {}, command:<name>",
            EVENTS.join(", ")
        ));
    }
    let program = match written.command {
        Some(line) if !line.trim().is_empty() => Program::Shell(line),
        Some(_) | None => {
            let handler = folder.join(HANDLER);
            let found = std::fs::metadata(&handler).map_err(|_absent| {
                format!("there is neither a file {HANDLER:?} nor a `command:` in {FILE}")
            })?;
            if !found.is_file() || found.mode() & 0o111 == 0 {
                return Err(format!("{HANDLER} is not executable: chmod 755 {}", handler.display()));
            }
            check_ownership(&handler)?;
            Program::File(handler)
        }
    };
    let timeout = match written.timeout {
        None => DEFAULT_TIMEOUT,
        Some(seconds @ 1..=MAX_TIMEOUT_SECONDS) => Duration::from_secs(seconds),
        Some(_) => return Err(format!("timeout must be 1 to {MAX_TIMEOUT_SECONDS} seconds")),
    };
    let folder_name = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = written.name.filter(|name| !name.is_empty()).or_else(folder_name).unwrap_or_default();
    Ok(Hook { name, events: written.events, folder: folder.to_owned(), program, timeout })
}

fn is_event(event: &str) -> bool {
    let command = event.strip_prefix("command:").is_some_and(|name| !name.is_empty());
    command || EVENTS.contains(&event) || ["session:*", "agent:*", "gateway:*"].contains(&event)
}

/// Rejects paths that another user owns or can write, because their contents are executed.
fn check_ownership(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    let owner = found.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(format!("{shown} belongs to another user: chown it"));
    }
    if found.mode() & 0o022 != 0 {
        return Err(format!("others can write {shown}: chmod go-w {shown}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::expect_used, reason = "a test that cannot go on stops")]

    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn write_hook(home: &Path, name: &str, yaml: &str, handler: Option<u32>) {
        let folder = home.join("hooks").join(name);
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join(FILE), yaml).expect("written");
        if let Some(mode) = handler {
            std::fs::write(folder.join(HANDLER), "#!/bin/sh\n").expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(folder.join(HANDLER), mode).expect("set");
        }
    }

    #[test]
    fn reports_invalid_hooks_and_loads_the_others() {
        let home = tempfile::tempdir().expect("a home");
        let good = "name: good\nevents: [agent:end, 'command:*']\ndescription: mine\n";
        write_hook(home.path(), "a", good, Some(0o755));
        write_hook(home.path(), "b", "events: [session:start]\ncommand: cat\ntimeout: 3\n", None);
        for (name, yaml, handler) in [
            ("c-yaml", "events: [", Some(0o755)),
            ("d-none", "events: []\ncommand: cat", None),
            ("e-event", "events: [agent:dream]\ncommand: cat", None),
            ("f-handler", "events: [agent:end]", None),
            ("g-mode", "events: [agent:end]", Some(0o644)),
            ("h-open", "events: [agent:end]", Some(0o777)),
            ("i-time", "events: [agent:end]\ncommand: cat\ntimeout: 3600", None),
        ] {
            write_hook(home.path(), name, yaml, handler);
        }
        std::fs::create_dir(home.path().join("hooks/no-hook")).expect("a folder");
        let (good, broken) = read(home.path());
        let names: Vec<_> = good.iter().map(|hook| hook.name.as_str()).collect();
        assert_eq!(names, ["good", "b"]);
        assert_eq!(good[1].timeout, Duration::from_secs(3));
        let words = ["HOOK.yaml", "events", "agent:dream", "neither", "executable", "can write", "timeout"];
        assert_eq!(broken.len(), words.len(), "{broken:?}");
        for (broken, word) in broken.iter().zip(words) {
            assert!(broken.reason.contains(word), "{broken:?}");
        }
    }

    #[test]
    fn refuses_hooks_folder_writable_by_others() {
        let home = tempfile::tempdir().expect("a home");
        write_hook(home.path(), "a", "events: [agent:end]\ncommand: cat", None);
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(home.path().join("hooks"), open).expect("set");
        let (good, broken) = read(home.path());
        assert!(good.is_empty() && broken.len() == 1, "{broken:?}");
    }

    #[test]
    fn star_matches_every_event_of_its_kind() {
        let hook = |event: &str| Hook {
            name: "x".into(),
            events: vec![event.into()],
            folder: "/".into(),
            program: Program::Shell("true".into()),
            timeout: DEFAULT_TIMEOUT,
        };
        for (listed, event, matches, exact) in [
            ("command:*", "command:stop", true, false),
            ("command:stop", "command:stop", true, true),
            ("command:stop", "command:status", false, false),
            ("agent:*", "agent:end", true, false),
            ("agent:*", "session:end", false, false),
        ] {
            assert_eq!(
                (hook(listed).matches(event), hook(listed).lists_exactly(event)),
                (matches, exact),
                "{listed} {event}"
            );
        }
    }
}
