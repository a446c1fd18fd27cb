//! Cleanup of folders that grow with every conversation and job: removes unused ones and bounds the rest.
//!
//! After a crash a folder may be partly removed; the next pass removes the rest.

use std::collections::HashMap;
use std::fs::{self, DirEntry, ReadDir};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use petasos_agent::file_name;
use petasos_core::SessionKey;

/// For folders of conversations without routing entry.
const RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);
const MAX_OUTPUTS_PER_JOB: usize = 200;
/// Jobs with output, and full texts of long messages.
const MAX_JOBS: usize = 1000;

/// Entries per step of a pass.
const STEP_ENTRIES: usize = 500;
/// Folders collected per pass; the next pass finds the rest.
const MAX_UNUSED: usize = 10_000;

/// Folders of conversations without recent writes, by folder name.
#[derive(Debug, Default)]
pub(crate) struct UnusedFolders(HashMap<String, Vec<PathBuf>>);

impl UnusedFolders {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Excludes the folders of a session.
    pub(crate) fn exclude(&mut self, key: &SessionKey) {
        self.0.remove(&file_name(key.as_str()));
    }
}

/// One pass over the folders of all conversations, a bounded number of entries per step.
#[derive(Debug)]
pub(crate) struct FolderPass {
    /// The last one is being read.
    folders: Vec<SessionFolder>,
    reading: Option<ReadDir>,
    unused: UnusedFolders,
}

#[derive(Debug)]
struct SessionFolder {
    path: PathBuf,
    /// Prefix of entries that belong to a conversation.
    prefix: &'static str,
}

impl FolderPass {
    pub(crate) fn new(home: &Path) -> Self {
        let terminals = SessionFolder { path: home.join("terminal/sessions"), prefix: "" };
        // The memory of an unnamed person belongs to the conversation; the memory of a named person is kept.
        let memories = SessionFolder { path: home.join("memories/people"), prefix: "agent_" };
        Self { folders: vec![memories, terminals], reading: None, unused: UnusedFolders::default() }
    }

    /// Checks the next entries. Returns the result when the pass is complete.
    pub(crate) fn step(mut self, now: SystemTime) -> io::Result<Result<UnusedFolders, Self>> {
        for _ in 0..STEP_ENTRIES {
            let Some(folder) = self.folders.last().filter(|_| self.unused.0.len() < MAX_UNUSED) else {
                return Ok(Ok(self.unused));
            };
            let reading = match self.reading.take() {
                Some(reading) => Some(reading),
                None => read(&folder.path)?,
            };
            let prefix = folder.prefix;
            let entry = reading.map(|mut reading| (reading.next(), reading));
            let Some((Some(entry), reading)) = entry else {
                self.folders.pop();
                continue;
            };
            self.reading = Some(reading);
            self.collect_if_old(prefix, &entry?, now);
        }
        Ok(Err(self))
    }

    fn collect_if_old(&mut self, prefix: &str, entry: &DirEntry, now: SystemTime) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let last = last_change(&entry.path());
        let is_old = last.is_some_and(|last| now.duration_since(last).is_ok_and(|age| age > RETENTION));
        if is_old && name.starts_with(prefix) {
            self.unused.0.entry(name).or_default().push(entry.path());
        }
    }
}

/// Removes these folders and the oldest output of jobs. Returns the number of removed files and folders.
pub(crate) fn remove_old(home: &Path, unused: &UnusedFolders) -> io::Result<usize> {
    let mut gone = 0;
    for path in unused.0.values().flatten() {
        gone += remove(path)?;
    }
    let output = home.join("cron/output");
    gone += keep_latest(&output, MAX_JOBS, |entry| !is_folder(entry))?;
    gone += keep_latest(&output, MAX_JOBS, is_folder)?;
    for job in entries(&output)?.iter().filter(|entry| is_folder(entry)) {
        gone += keep_latest(&job.path(), MAX_OUTPUTS_PER_JOB, |_| true)?;
    }
    Ok(gone)
}

/// Empty if the folder does not exist.
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

/// Time of the last write in a folder.
fn last_change(path: &Path) -> Option<SystemTime> {
    let written = |path: &Path| fs::symlink_metadata(path).and_then(|meta| meta.modified()).ok();
    let inside = entries(path).unwrap_or_default();
    inside.iter().filter_map(|entry| written(&entry.path())).chain(written(path)).max()
}

fn keep_latest(folder: &Path, most: usize, of: impl Fn(&DirEntry) -> bool) -> io::Result<usize> {
    let mut found: Vec<DirEntry> = entries(folder)?.into_iter().filter(of).collect();
    let Some(too_many) = found.len().checked_sub(most).filter(|count| *count > 0) else { return Ok(0) };
    // Files of the same second are sorted by name.
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
    use crate::clock;
    use petasos_agent::memory::{Memory, MemoryChange, MemoryFile};
    use petasos_core::person::Person;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            entries(folder).unwrap().iter().map(|it| it.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn whole_pass(home: &Path, now: SystemTime) -> (UnusedFolders, usize) {
        let mut pass = FolderPass::new(home);
        for steps in 1.. {
            match pass.step(now).unwrap() {
                Ok(unused) => return (unused, steps),
                Err(next) => pass = next,
            }
        }
        unreachable!("a pass ends");
    }

    #[test]
    fn each_step_checks_a_bounded_number_of_folders() {
        let home = tempfile::tempdir().unwrap();
        let sessions = home.path().join("terminal/sessions");
        for number in 0..STEP_ENTRIES + 3 {
            fs::create_dir_all(sessions.join(format!("agent_{number}"))).unwrap();
        }
        let later = clock::file_time() + 31 * DAY;
        let first = FolderPass::new(home.path()).step(later).unwrap().expect_err("not over after one step");
        assert!(first.unused.0.len() <= STEP_ENTRIES, "{}", first.unused.0.len());
        let (unused, steps) = whole_pass(home.path(), later);
        assert_eq!((unused.0.len(), steps), (STEP_ENTRIES + 3, 2));
    }

    #[test]
    fn removes_folders_of_forgotten_conversations_only() {
        let home = tempfile::tempdir().unwrap();
        let key = |chat: &str| SessionKey(format!("agent:main:api_server:dm:{chat}"));
        let sessions = home.path().join("terminal/sessions");
        let people = home.path().join("memories/people");
        for chat in ["here", "gone"] {
            let own = sessions.join(file_name(key(chat).as_str()));
            fs::create_dir_all(&own).unwrap();
            fs::write(own.join("cwd"), "/").unwrap();
        }
        for person in [key("here").as_str(), key("gone").as_str(), "telegram:7", "owner"] {
            let memory = Memory::of(home.path(), &Person::named(person));
            memory.change(MemoryFile::User, &[MemoryChange::Add("likes tea".into())]).unwrap();
        }
        let clear_at = |later| {
            let (mut unused, _steps) = whole_pass(home.path(), later);
            unused.exclude(&key("here"));
            remove_old(home.path(), &unused).unwrap()
        };
        assert_eq!(clear_at(clock::file_time() + 29 * DAY), 0, "too early");
        assert_eq!(clear_at(clock::file_time() + 31 * DAY), 2);
        assert_eq!(names(&sessions), [file_name(key("here").as_str())]);
        assert_eq!(names(&people), [file_name(key("here").as_str()), file_name("telegram:7")]);
        assert!(home.path().join("memories/USER.md").exists());
        assert_eq!(remove_old(&home.path().join("nowhere"), &UnusedFolders::default()).unwrap(), 0);
    }

    #[test]
    fn keeps_latest_output_of_jobs() {
        let home = tempfile::tempdir().unwrap();
        let output = home.path().join("cron/output");
        let page = |job: &str, at: usize| output.join(job).join(format!("20261116_{at:06}.md"));
        fs::create_dir_all(output.join("often")).unwrap();
        for at in 0..MAX_OUTPUTS_PER_JOB + 3 {
            fs::write(page("often", at), "x").unwrap();
        }
        for at in 0..MAX_JOBS + 2 {
            fs::write(output.join(format!("job_20261116_{at:06}.txt")), "x").unwrap();
            fs::create_dir_all(output.join(format!("once{at}"))).unwrap();
        }
        // Written last, so its folder is the latest.
        fs::write(page("often", 999), "x").unwrap();
        let gone = remove_old(home.path(), &UnusedFolders::default()).unwrap();
        assert_eq!(gone, 4 + 2 + 3);
        let pages = names(&output.join("often"));
        assert_eq!((pages.len(), pages[0].as_str()), (MAX_OUTPUTS_PER_JOB, "20261116_000004.md"));
        assert!(page("often", 999).exists());
        assert_eq!(names(&output).len(), 2 * MAX_JOBS);
        assert!(!output.join("job_20261116_000001.txt").exists());
        assert_eq!(remove_old(home.path(), &UnusedFolders::default()).unwrap(), 0);
    }
}
