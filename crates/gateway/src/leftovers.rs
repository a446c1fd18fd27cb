//! Folders that grow with every conversation and every job. What nobody comes back for goes; the rest has a bound.
//!
//! A crash leaves a folder half removed: the next look removes the rest.

use std::collections::HashSet;
use std::fs::{self, DirEntry};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use petasos_agent::file_name;
use petasos_core::SessionKey;

/// How long the things of a conversation that is forgotten stay.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Pages of one job.
const PAGES: usize = 200;
/// Jobs of which there are pages, and texts that were too long for one message.
const JOBS: usize = 1000;

/// Folders of conversations in which nothing was written for long, by name.
#[derive(Debug, Default)]
pub(crate) struct Unused(HashSet<String>);

impl Unused {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This conversation may go on.
    pub(crate) fn keep(&mut self, key: &SessionKey) {
        self.0.remove(&file_name(key.as_str()));
    }
}

pub(crate) fn unused(home: &Path, now: SystemTime) -> io::Result<Unused> {
    let old = |entry: &DirEntry| {
        let last = last_change(&entry.path());
        last.is_some_and(|last| now.duration_since(last).is_ok_and(|age| age > KEPT))
    };
    let terminals = entries(&home.join("terminal/sessions"))?.into_iter();
    // Memory of an unnamed person belongs to the conversation and goes with it; memory of a named person stays.
    let memories =
        entries(&home.join("memories/people"))?.into_iter().filter(|it| name(it).starts_with("agent_"));
    Ok(Unused(terminals.chain(memories).filter(old).map(|entry| name(&entry)).collect()))
}

fn name(entry: &DirEntry) -> String {
    entry.file_name().to_string_lossy().into_owned()
}

/// Removes these, and what jobs wrote long ago. Gives how many files and folders are gone.
pub(crate) fn clear(home: &Path, unused: &Unused) -> io::Result<usize> {
    let mut gone = 0;
    for folder in ["terminal/sessions", "memories/people"] {
        if unused.is_empty() {
            break;
        }
        for entry in entries(&home.join(folder))? {
            gone += remove_if(unused.0.contains(&name(&entry)), &entry)?;
        }
    }
    let output = home.join("cron/output");
    gone += keep_latest(&output, JOBS, |entry| !is_folder(entry))?;
    gone += keep_latest(&output, JOBS, is_folder)?;
    for job in entries(&output)?.iter().filter(|entry| is_folder(entry)) {
        gone += keep_latest(&job.path(), PAGES, |_| true)?;
    }
    Ok(gone)
}

/// Nothing, if there is no such folder.
fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    match fs::read_dir(folder) {
        Ok(entries) => entries.collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_ok_and(|kind| kind.is_dir())
}

/// When something in a folder was written last.
fn last_change(path: &Path) -> Option<SystemTime> {
    let written = |path: &Path| fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
    let inside = entries(path).unwrap_or_default();
    inside.iter().filter_map(|entry| written(&entry.path())).chain(written(path)).max()
}

fn keep_latest(folder: &Path, most: usize, of: impl Fn(&DirEntry) -> bool) -> io::Result<usize> {
    let mut found: Vec<DirEntry> = entries(folder)?.into_iter().filter(of).collect();
    let Some(too_many) = found.len().checked_sub(most).filter(|count| *count > 0) else { return Ok(0) };
    // Two of one second are told apart by their names.
    found.sort_by_cached_key(|entry| (last_change(&entry.path()), entry.file_name()));
    found.iter().take(too_many).try_fold(0, |gone, entry| Ok(gone + remove_if(true, entry)?))
}

fn remove_if(unwanted: bool, entry: &DirEntry) -> io::Result<usize> {
    if !unwanted {
        return Ok(0);
    }
    let removed =
        if is_folder(entry) { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
    match removed {
        Ok(()) => Ok(1),
        // Somebody was faster.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_agent::memory::{Change, Memory, Shelf};
    use petasos_core::person::Person;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            entries(folder).unwrap().iter().map(|it| it.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_conversations_left_goes_when_they_are_forgotten_and_people_are_not() {
        let home = tempfile::tempdir().unwrap();
        let key = |chat: &str| SessionKey(format!("agent:main:api_server:dm:{chat}"));
        let (sessions, people) = (home.path().join("terminal/sessions"), home.path().join("memories/people"));
        for chat in ["here", "gone"] {
            let own = sessions.join(file_name(key(chat).as_str()));
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("cwd"), "/").unwrap();
        }
        for person in [key("here").as_str(), key("gone").as_str(), "telegram:7", "owner"] {
            let memory = Memory::of(home.path(), &Person::named(person));
            memory.change(Shelf::User, &[Change::Add("likes tea".into())]).unwrap();
        }
        let clear_at = |later| {
            let mut unused = unused(home.path(), later).unwrap();
            unused.keep(&key("here"));
            clear(home.path(), &unused).unwrap()
        };
        assert_eq!(clear_at(SystemTime::now() + 29 * DAY), 0, "too early");
        assert_eq!(clear_at(SystemTime::now() + 31 * DAY), 2);
        assert_eq!(names(&sessions), [file_name(key("here").as_str())]);
        assert_eq!(names(&people), [file_name(key("here").as_str()), file_name("telegram:7")]);
        assert!(home.path().join("memories/USER.md").exists());
        assert_eq!(clear(&home.path().join("nowhere"), &Unused::default()).unwrap(), 0);
    }

    #[test]
    fn of_what_jobs_said_the_latest_stay() {
        let home = tempfile::tempdir().unwrap();
        let output = home.path().join("cron/output");
        let page = |job: &str, at: usize| output.join(job).join(format!("20261116_{at:06}.md"));
        fs::create_dir_all(output.join("often")).unwrap();
        for at in 0..PAGES + 3 {
            fs::write(page("often", at), "x").unwrap();
        }
        for at in 0..JOBS + 2 {
            fs::write(output.join(format!("job_20261116_{at:06}.txt")), "x").unwrap();
            fs::create_dir_all(output.join(format!("once{at}"))).unwrap();
        }
        // Written to just now, so the latest of all folders.
        fs::write(page("often", 999), "x").unwrap();
        let gone = clear(home.path(), &Unused::default()).unwrap();
        assert_eq!(gone, 4 + 2 + 3);
        let pages = names(&output.join("often"));
        assert_eq!((pages.len(), pages[0].as_str()), (PAGES, "20261116_000004.md"));
        assert!(page("often", 999).exists());
        assert_eq!(names(&output).len(), 2 * JOBS);
        assert!(!output.join("job_20261116_000001.txt").exists());
        assert_eq!(clear(home.path(), &Unused::default()).unwrap(), 0);
    }
}
