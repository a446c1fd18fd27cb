//! Finding hooks: `<home>/hooks/<folder>/HOOK.yaml`, and a program beside it. One that cannot be used is named and
//! skipped.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

const FILE: &str = "HOOK.yaml";
/// The program, unless the file names another.
const HANDLER: &str = "handler";
const MOST_HOOKS: usize = 64;
const MOST_EVENTS: usize = 64;
/// Largest file that is read.
const LARGEST: u64 = 64 << 10;
const LIMIT: Duration = Duration::from_secs(10);
const LONGEST: u64 = 60;
const EVENTS: [&str; 7] = [
    "gateway:startup",
    "session:start",
    "session:end",
    "session:reset",
    "agent:start",
    "agent:step",
    "agent:end",
];

/// A program that wants to hear of some events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hook {
    pub name: String,
    pub events: Vec<String>,
    pub(super) folder: PathBuf,
    pub(super) program: Program,
    pub(super) limit: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Program {
    File(PathBuf),
    /// For the shell.
    Line(String),
}

/// A hook that cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    pub folder: PathBuf,
    pub why: String,
}

/// As it is written.
#[derive(Deserialize)]
struct Written {
    name: Option<String>,
    #[serde(default)]
    events: Vec<String>,
    command: Option<String>,
    /// Seconds.
    timeout: Option<u64>,
}

impl Hook {
    /// Whether it names this very event.
    pub(super) fn names(&self, event: &str) -> bool {
        self.events.iter().any(|it| it == event)
    }

    pub(super) fn hears(&self, event: &str) -> bool {
        let kind = event.split_once(':').map_or(event, |(kind, _)| kind);
        let all_of_them = |it: &String| it.strip_suffix(":*") == Some(kind);
        self.names(event) || self.events.iter().any(all_of_them)
    }
}

/// Every hook of a home, by the name of its folder.
pub fn read(home: &Path) -> (Vec<Hook>, Vec<Broken>) {
    let hooks = home.join("hooks");
    let (mut good, mut broken) = (vec![], vec![]);
    let entries = match std::fs::read_dir(&hooks) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return (good, broken),
        Err(error) => return (good, vec![Broken { folder: hooks, why: error.to_string() }]),
    };
    if let Err(why) = is_ours(&hooks) {
        return (good, vec![Broken { folder: hooks, why }]);
    }
    let mut folders: Vec<PathBuf> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.join(FILE).exists()).collect();
    folders.sort();
    for folder in folders {
        match one(&folder) {
            Ok(_) if good.len() >= MOST_HOOKS => {
                broken.push(Broken { folder, why: format!("there are more than {MOST_HOOKS} hooks") });
            }
            Ok(hook) => good.push(hook),
            Err(why) => broken.push(Broken { folder, why }),
        }
    }
    (good, broken)
}

fn one(folder: &Path) -> Result<Hook, String> {
    let file = folder.join(FILE);
    is_ours(folder)?;
    is_ours(&file)?;
    let size = std::fs::metadata(&file).map_err(|error| error.to_string())?.len();
    if size > LARGEST {
        return Err(format!("{FILE} is larger than {} KB", LARGEST >> 10));
    }
    let text = std::fs::read_to_string(&file).map_err(|error| format!("{FILE}: {error}"))?;
    let written: Written = serde_saphyr::from_str(&text).map_err(|error| format!("{FILE}: {error}"))?;
    if written.events.is_empty() || written.events.len() > MOST_EVENTS {
        return Err(format!("{FILE} must name 1 to {MOST_EVENTS} events"));
    }
    if let Some(unknown) = written.events.iter().find(|event| !is_event(event)) {
        return Err(format!(
            "there is no event {unknown:?}; known are {}, command:<name>",
            EVENTS.join(", ")
        ));
    }
    let program = match written.command {
        Some(line) if !line.trim().is_empty() => Program::Line(line),
        Some(_) | None => {
            let handler = folder.join(HANDLER);
            let found = std::fs::metadata(&handler).map_err(|_absent| {
                format!("there is neither a file {HANDLER:?} nor a `command:` in {FILE}")
            })?;
            if !found.is_file() || found.mode() & 0o111 == 0 {
                return Err(format!("{HANDLER} is not executable: chmod 755 {}", handler.display()));
            }
            is_ours(&handler)?;
            Program::File(handler)
        }
    };
    let limit = match written.timeout {
        None => LIMIT,
        Some(seconds @ 1..=LONGEST) => Duration::from_secs(seconds),
        Some(_) => return Err(format!("timeout must be 1 to {LONGEST} seconds")),
    };
    let folder_name = || folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = written.name.filter(|name| !name.is_empty()).or_else(folder_name).unwrap_or_default();
    Ok(Hook { name, events: written.events, folder: folder.to_owned(), program, limit })
}

fn is_event(event: &str) -> bool {
    let command = event.strip_prefix("command:").is_some_and(|name| !name.is_empty());
    command || EVENTS.contains(&event) || ["session:*", "agent:*", "gateway:*"].contains(&event)
}

/// What others can write, others can make us run.
fn is_ours(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let found = std::fs::metadata(path).map_err(|error| format!("{shown}: {error}"))?;
    let owner = found.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(format!("{shown} belongs to somebody else: chown it"));
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

    fn made(home: &Path, name: &str, yaml: &str, handler: Option<u32>) {
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
    fn one_that_is_broken_is_named_and_the_others_are_read() {
        let home = tempfile::tempdir().expect("a home");
        let good = "name: good\nevents: [agent:end, 'command:*']\ndescription: mine\n";
        made(home.path(), "a", good, Some(0o755));
        made(home.path(), "b", "events: [session:start]\ncommand: cat\ntimeout: 3\n", None);
        for (name, yaml, handler) in [
            ("c-yaml", "events: [", Some(0o755)),
            ("d-none", "events: []\ncommand: cat", None),
            ("e-event", "events: [agent:dream]\ncommand: cat", None),
            ("f-handler", "events: [agent:end]", None),
            ("g-mode", "events: [agent:end]", Some(0o644)),
            ("h-open", "events: [agent:end]", Some(0o777)),
            ("i-time", "events: [agent:end]\ncommand: cat\ntimeout: 3600", None),
        ] {
            made(home.path(), name, yaml, handler);
        }
        std::fs::create_dir(home.path().join("hooks/no-hook")).expect("a folder");
        let (good, broken) = read(home.path());
        let names: Vec<_> = good.iter().map(|hook| hook.name.as_str()).collect();
        assert_eq!(names, ["good", "b"]);
        assert_eq!(good[1].limit, Duration::from_secs(3));
        let words = ["HOOK.yaml", "events", "agent:dream", "neither", "executable", "can write", "timeout"];
        assert_eq!(broken.len(), words.len(), "{broken:?}");
        for (broken, word) in broken.iter().zip(words) {
            assert!(broken.why.contains(word), "{broken:?}");
        }
    }

    #[test]
    fn a_folder_that_others_can_write_is_not_looked_into() {
        let home = tempfile::tempdir().expect("a home");
        made(home.path(), "a", "events: [agent:end]\ncommand: cat", None);
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(home.path().join("hooks"), open).expect("set");
        let (good, broken) = read(home.path());
        assert!(good.is_empty() && broken.len() == 1, "{broken:?}");
    }

    #[test]
    fn a_star_stands_for_all_of_a_kind() {
        let hook = |event: &str| Hook {
            name: "x".into(),
            events: vec![event.into()],
            folder: "/".into(),
            program: Program::Line("true".into()),
            limit: LIMIT,
        };
        for (wants, event, hears, names) in [
            ("command:*", "command:stop", true, false),
            ("command:stop", "command:stop", true, true),
            ("command:stop", "command:status", false, false),
            ("agent:*", "agent:end", true, false),
            ("agent:*", "session:end", false, false),
        ] {
            assert_eq!(
                (hook(wants).hears(event), hook(wants).names(event)),
                (hears, names),
                "{wants} {event}"
            );
        }
    }
}
