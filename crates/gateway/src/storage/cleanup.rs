//! Folders that grow with every conversation and every job. What nobody comes back for goes; the rest has a bound.
//!
//! A crash leaves a folder half removed: the next look removes the rest.

use std::collections::HashMap;
use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use petasos_agent::file_name;
use petasos_core::SessionKey;

/// How long the things of a conversation that is forgotten stay.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Pages of one job.
const PAGES: usize = 200;
/// Jobs of which there are pages, and texts that were too long for one message.
const JOBS: usize = 1000;

/// Entries that one step of a pass looks at.
const STEP: usize = 500;
/// Names that one pass collects. The next pass finds the rest.
const MOST_UNUSED: usize = 10_000;

/// Folders of conversations without recent writes, by the name that they share.
#[derive(Debug, Default)]
pub(crate) struct Unused(HashMap<String, Vec<PathBuf>>);

impl Unused {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// This conversation may go on.
    pub(crate) fn keep(&mut self, key: &SessionKey) {
        self.0.remove(&file_name(key.as_str()));
    }
}

/// One pass over the folders of all conversations, a bounded number of entries per step.
#[derive(Debug)]
pub(crate) struct Pass {
    /// The folder being read is the last one.
    folders: Vec<Folder>,
    reading: Option<ReadDir>,
    unused: Unused,
}

#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// Only entries whose names start like this belong to a conversation.
    prefix: &'static str,
}

impl Pass {
    pub(crate) fn new(home: &Path) -> Self {
        let terminals = Folder { path: home.join("terminal/sessions"), prefix: "" };
        // Memory of an unnamed person belongs to the conversation and goes with it; memory of a named person stays.
        let memories = Folder { path: home.join("memories/people"), prefix: "agent_" };
        Self { folders: vec![memories, terminals], reading: None, unused: Unused::default() }
    }

    /// Looks at the next entries. The result of the pass when it is over.
    pub(crate) fn step(mut self, now: SystemTime) -> io::Result<Result<Unused, Self>> {
        for _ in 0..STEP {
            let Some(folder) = self.folders.last().filter(|_| self.unused.0.len() < MOST_UNUSED) else {
                return Ok(Ok(self.unused));
            };
            let reading = match self.reading.take() {
                Some(reading) => Some(reading),
                None => read(&folder.path)?,
            };
            let (prefix, entry) = (folder.prefix, reading.map(|mut reading| (reading.next(), reading)));
            let Some((Some(entry), reading)) = entry else {
                self.folders.pop();
                continue;
            };
            self.reading = Some(reading);
            self.note(prefix, &entry?, now);
        }
        Ok(Err(self))
    }

    fn note(&mut self, prefix: &str, entry: &DirEntry, now: SystemTime) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let last = last_change(&entry.path());
        let is_old = last.is_some_and(|last| now.duration_since(last).is_ok_and(|age| age > KEPT));
        if is_old && name.starts_with(prefix) {
            self.unused.0.entry(name).or_default().push(entry.path());
        }
    }
}

/// Removes these, and the oldest output of jobs. Gives how many files and folders are gone.
pub(crate) fn clear(home: &Path, unused: &Unused) -> io::Result<usize> {
    let mut gone = 0;
    for path in unused.0.values().flatten() {
        gone += remove(path)?;
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
    read(folder)?.into_iter().flatten().collect()
}

fn read(folder: &Path) -> io::Result<Option<ReadDir>> {
    match fs::read_dir(folder) {
        Ok(reading) => Ok(Some(reading)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
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
    found.iter().take(too_many).try_fold(0, |gone, entry| Ok(gone + remove(&entry.path())?))
}

fn remove(path: &Path) -> io::Result<usize> {
    let removed = fs::symlink_metadata(path)
        .and_then(|meta| if meta.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) });
    match removed {
        Ok(()) => Ok(1),
        // Removed meanwhile.
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

    fn whole_pass(home: &Path, now: SystemTime) -> (Unused, usize) {
        let mut pass = Pass::new(home);
        for steps in 1.. {
            match pass.step(now).unwrap() {
                Ok(unused) => return (unused, steps),
                Err(next) => pass = next,
            }
        }
        unreachable!("a pass ends");
    }

    #[test]
    fn a_step_looks_at_a_bounded_number_of_folders() {
        let home = tempfile::tempdir().unwrap();
        let sessions = home.path().join("terminal/sessions");
        for number in 0..STEP + 3 {
            fs::create_dir_all(sessions.join(format!("agent_{number}"))).unwrap();
        }
        let later = SystemTime::now() + 31 * DAY;
        let first = Pass::new(home.path()).step(later).unwrap().expect_err("not over after one step");
        assert!(first.unused.0.len() <= STEP, "{}", first.unused.0.len());
        let (unused, steps) = whole_pass(home.path(), later);
        assert_eq!((unused.0.len(), steps), (STEP + 3, 2));
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
            let (mut unused, _steps) = whole_pass(home.path(), later);
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
