//! A copy of the routing table for older tools: `sessions/sessions.json`.
//!
//! Owns that file. A small table is copied some seconds after it changed; a large one an hour after the file was last
//! written, across restarts, and in small pieces, so that the copy costs the same part of the time however many
//! conversations are stored. The file is replaced as a whole; a crash leaves the copy before. Nothing here is read
//! back, except once, when a home of another program is taken over.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::SessionKey;
use petasos_core::session::Entry;
use petasos_store::{Reader, RoutingState};
use tokio::time::Instant;

use crate::Error;
use crate::lifecycle::shutdown::Stopper;
use crate::storage::database::Db;

/// How long a change may be missing from the copy of a small table, and how often it is looked for.
const DEBOUNCE: Duration = Duration::from_secs(5);
/// The same of a large table.
const RARELY: Duration = Duration::from_secs(3600);
/// A table with more entries is large.
const LARGE: usize = 2000;
/// Entries of a large table that are copied at a time, and the pause between two pieces.
const PAGE: usize = 200;
const PAGE_PAUSE: Duration = Duration::from_secs(1);
const README: &str =
    "Legacy copy of the routing table in petasos.db, for tools that read it. Changes here have no effect.";

pub(crate) fn path(home: &Path) -> PathBuf {
    home.join("sessions").join("sessions.json")
}

/// Change marker of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Small(RoutingState),
    /// The time of its latest entry. A change that is not a use of a conversation is copied with the next one.
    Large(Option<i64>),
}

impl State {
    fn of(reader: &Reader) -> Result<Self, petasos_store::Error> {
        if reader.routing_exceeds(LARGE)? {
            return Ok(Self::Large(reader.routing_latest()?));
        }
        Ok(Self::Small(reader.routing_state()?))
    }
}

/// Runs until stopping begins.
pub(crate) async fn run(db: Db, home: PathBuf, stopper: Stopper) {
    petasos_runtime::select! {
        () = stopper.stopped() => {}
        () = keep(&home, &db) => {}
    }
}

async fn keep(home: &Path, db: &Db) {
    // An empty table needs no copy.
    let mut written = State::Small(RoutingState::default());
    let mut large_at = Instant::now() + RARELY.saturating_sub(age(&path(home)));
    loop {
        tokio::time::sleep(DEBOUNCE).await;
        let state = match db.read(State::of).await {
            Ok(state) => state,
            Err(error) => {
                tracing::debug!(%error, "the routing table cannot be read");
                continue;
            }
        };
        let pause = match state {
            State::Small(_) => Duration::ZERO,
            State::Large(_) if Instant::now() < large_at => continue,
            State::Large(_) => PAGE_PAUSE,
        };
        if state == written {
            continue;
        }
        match copy(home, db, pause).await {
            Ok(()) => written = state,
            Err(error) => {
                tracing::warn!(%error, "sessions.json could not be written; older tools see an old copy");
            }
        }
        large_at = Instant::now() + RARELY;
    }
}

/// Time since the last copy. A missing copy, or one from the future (the clock was set back), is due at once.
fn age(copy: &Path) -> Duration {
    let written = std::fs::metadata(copy).and_then(|file| file.modified());
    written.ok().and_then(|at| at.elapsed().ok()).unwrap_or(RARELY)
}

/// Page by page: entries that are changed meanwhile are copied as they were before or after.
async fn copy(home: &Path, db: &Db, pause: Duration) -> Result<(), Error> {
    let mut draft = Draft::new(&path(home)).map_err(|error| Error::Io(error.to_string()))?;
    let mut after = SessionKey(String::new());
    loop {
        let (page, written) = db
            .read(move |reader| {
                let page = reader.entries_after(&after, PAGE)?;
                draft.add(&page.entries)?;
                Ok((page.next, draft))
            })
            .await?;
        draft = written;
        match page {
            Some(next) => after = next,
            None => break,
        }
        tokio::time::sleep(pause).await;
    }
    let finished = petasos_runtime::blocking(move || draft.finish()).await;
    let finished = finished.map_err(|_panicked| Error::Io("writing sessions.json panicked".into()))?;
    finished.map_err(|error| Error::Io(error.to_string()))
}

/// The next copy, beside the current one and not readable by others.
#[derive(Debug)]
struct Draft {
    path: PathBuf,
    temporary: PathBuf,
    text: BufWriter<File>,
}

impl Draft {
    fn new(path: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
        let temporary = path.with_extension("json~");
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
        let mut text = BufWriter::new(file);
        write!(text, "{{\n  \"_README\": {}", serde_json::to_string(README)?)?;
        Ok(Self { path: path.into(), temporary, text })
    }

    fn add(&mut self, entries: &[Entry]) -> io::Result<()> {
        for entry in entries {
            let key = serde_json::to_string(&entry.session_key)?;
            write!(self.text, ",\n  {key}: {}", serde_json::to_string(entry)?)?;
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.text.write_all(b"\n}\n")?;
        self.text.flush()?;
        self.text.get_ref().sync_all()?;
        std::fs::rename(&self.temporary, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use petasos_core::SessionId;
    use petasos_core::session::{LocalTime, Routing};
    use petasos_store::Store;

    use super::*;
    use crate::DATABASE;
    use crate::lifecycle::shutdown::Stopper;
    use crate::storage::database;

    const MINUTE: Duration = Duration::from_secs(60);

    fn entry(key: &str) -> Entry {
        let now = LocalTime::parse("2026-11-15T18:12:05").expect("a time");
        Entry::new(SessionKey(key.into()), SessionId(format!("20261115_181205_{key}")), None, now)
    }

    /// Starts on a large table, with a copy of this age; gives whether it was replaced within `watched`.
    async fn replaces_copy(age: Duration, watched: Duration) -> bool {
        let home = tempfile::TempDir::new().expect("a home");
        let mut store = Store::open(home.path().join(DATABASE)).expect("a store");
        store
            .write(|tx| (0..=LARGE).try_for_each(|chat| tx.put_entry(&entry(&format!("{chat}")))))
            .expect("a large table");
        let copy = path(home.path());
        std::fs::create_dir_all(copy.parent().expect("a folder")).expect("made");
        let mut file = File::create(&copy).expect("a copy");
        file.write_all(b"old").expect("written");
        file.set_modified(std::time::SystemTime::now() - age).expect("a time");
        let (db, writer) = database::start(store, Stopper::default()).expect("a database thread");
        let ended = tokio::time::timeout(watched, keep(home.path(), &db)).await;
        assert!(ended.is_err(), "it goes on until it is stopped");
        drop(db);
        writer.join();
        std::fs::read(&copy).expect("a copy") != b"old"
    }

    #[tokio::test(start_paused = true)]
    async fn copies_a_large_table_one_hour_after_the_last_copy_across_restarts() {
        assert!(!replaces_copy(50 * MINUTE, 9 * MINUTE).await, "before the hour is over");
        assert!(replaces_copy(50 * MINUTE, 12 * MINUTE).await, "the hour began before the start");
        assert!(replaces_copy(90 * MINUTE, 2 * MINUTE).await, "due at the start");
    }

    #[test]
    fn the_copy_reads_back_as_what_it_was_made_from_and_replaces_the_one_before() {
        let home = tempfile::TempDir::new().expect("a home");
        let path = path(home.path());
        let mut routing = Routing::default();
        for chat in ["agent:main:telegram:dm:7", "agent:main:telegram:dm:\"8\""] {
            routing.0.insert(SessionKey(chat.into()), entry(chat));
            let mut draft = Draft::new(&path).expect("begun");
            routing.0.values().for_each(|entry| draft.add(std::slice::from_ref(entry)).expect("added"));
            draft.finish().expect("copied");
            let text = std::fs::read(&path).expect("there");
            assert!(text.starts_with(b"{\n  \"_README\""));
            assert_eq!(serde_json::from_slice::<Routing>(&text).expect("readable").0, routing.0);
        }
    }
}
