//! Writes `sessions/sessions.json`, a copy of the routing table for older tools.
//!
//! Owns that file. A small table is copied seconds after a change. A large one is copied page by page, at most once an
//! hour across restarts, which bounds the cost. The file is replaced atomically; a crash leaves the previous copy. It is
//! read only once, when the home of another program is imported.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use petasos_core::SessionKey;
use petasos_core::session::Entry;
use petasos_store::{Reader, RoutingState};

use crate::Error;
use crate::clock;
use crate::lifecycle::shutdown::ShutdownHandle;
use crate::storage::database::Db;

/// Interval between copies of a small table.
const DEBOUNCE: Duration = Duration::from_secs(5);
/// Interval between copies of a large table.
const LARGE_INTERVAL: Duration = Duration::from_secs(3600);
/// Entries above which a table is large.
const LARGE: usize = 2000;
/// Entries of a large table that are copied at a time.
const PAGE_ENTRIES: usize = 200;
const PAGE_PAUSE: Duration = Duration::from_secs(1);
const README: &str =
    "Legacy copy of the routing table in petasos.db, for tools that read it. Changes here have no effect.";

pub(crate) fn path(home: &Path) -> PathBuf {
    home.join("sessions").join("sessions.json")
}

/// Detects changes of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TableVersion {
    Small(RoutingState),
    /// Time of the latest entry. Changes without use of a conversation are copied with the next use.
    Large(Option<i64>),
}

impl TableVersion {
    fn of(reader: &Reader) -> Result<Self, petasos_store::Error> {
        if reader.routing_exceeds(LARGE)? {
            return Ok(Self::Large(reader.routing_latest()?));
        }
        Ok(Self::Small(reader.routing_state()?))
    }
}

pub(crate) async fn run(db: Db, home: PathBuf, shutdown: ShutdownHandle) {
    petasos_runtime::select! {
        () = shutdown.stopped() => {}
        () = copy_when_changed(&home, &db) => {}
    }
}

async fn copy_when_changed(home: &Path, db: &Db) {
    // An empty table is not copied.
    let mut written = TableVersion::Small(RoutingState::default());
    let mut large_at = clock::monotonic() + LARGE_INTERVAL.saturating_sub(age(&path(home)));
    loop {
        clock::sleep(DEBOUNCE).await;
        let state = match db.read(TableVersion::of).await {
            Ok(state) => state,
            Err(error) => {
                tracing::debug!(%error, "cannot read the routing table");
                continue;
            }
        };
        let pause = match state {
            TableVersion::Small(_) => Duration::ZERO,
            TableVersion::Large(_) if clock::monotonic() < large_at => continue,
            TableVersion::Large(_) => PAGE_PAUSE,
        };
        if state == written {
            continue;
        }
        match copy(home, db, pause).await {
            Ok(()) => written = state,
            Err(error) => {
                tracing::warn!(%error, "cannot write sessions.json; older tools see an old copy");
            }
        }
        large_at = clock::monotonic() + LARGE_INTERVAL;
    }
}

/// Age of the copy. A missing copy, or one from the future, is due at once.
fn age(copy: &Path) -> Duration {
    let written = std::fs::metadata(copy).and_then(|file| file.modified());
    written.ok().and_then(|at| at.elapsed().ok()).unwrap_or(LARGE_INTERVAL)
}

/// Copies page by page; entries changed meanwhile are copied in either version.
async fn copy(home: &Path, db: &Db, pause: Duration) -> Result<(), Error> {
    let mut draft = CopyWriter::new(&path(home)).map_err(|error| Error::Io(error.to_string()))?;
    let mut after = SessionKey(String::new());
    loop {
        let (page, written) = db
            .read(move |reader| {
                let page = reader.entries_after(&after, PAGE_ENTRIES)?;
                draft.add(&page.entries)?;
                Ok((page.next, draft))
            })
            .await?;
        draft = written;
        match page {
            Some(next) => after = next,
            None => break,
        }
        clock::sleep(pause).await;
    }
    let finished = petasos_runtime::blocking(move || draft.finish()).await;
    let finished = finished.map_err(|_panicked| Error::Io("writing sessions.json panicked".into()))?;
    finished.map_err(|error| Error::Io(error.to_string()))
}

/// Writes the next copy to a private temporary file.
#[derive(Debug)]
struct CopyWriter {
    path: PathBuf,
    temporary: PathBuf,
    text: BufWriter<File>,
}

impl CopyWriter {
    fn new(path: &Path) -> io::Result<Self> {
        let folder = path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
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
    use crate::lifecycle::shutdown::ShutdownHandle;
    use crate::storage::database;

    const MINUTE: Duration = Duration::from_secs(60);

    fn entry(key: &str) -> Entry {
        let now = LocalTime::parse("2026-11-15T18:12:05").expect("a time");
        Entry::new(SessionKey(key.into()), SessionId(format!("20261115_181205_{key}")), None, now)
    }

    /// Starts with a large table and a copy of this age. Returns whether the copy was replaced within `watched`.
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
        file.set_modified(clock::file_time() - age).expect("a time");
        let (db, writer) = database::start(store, ShutdownHandle::default()).expect("a database thread");
        let ended = tokio::time::timeout(watched, copy_when_changed(home.path(), &db)).await;
        assert!(ended.is_err(), "it runs until it is stopped");
        drop(db);
        writer.join();
        std::fs::read(&copy).expect("a copy") != b"old"
    }

    #[tokio::test(start_paused = true)]
    async fn copies_large_table_hourly_across_restarts() {
        assert!(!replaces_copy(50 * MINUTE, 9 * MINUTE).await, "before the hour is over");
        assert!(replaces_copy(50 * MINUTE, 12 * MINUTE).await, "the hour began before the start");
        assert!(replaces_copy(90 * MINUTE, 2 * MINUTE).await, "due at the start");
    }

    #[test]
    fn copy_round_trips_and_replaces_previous_one() {
        let home = tempfile::TempDir::new().expect("a home");
        let path = path(home.path());
        let mut routing = Routing::default();
        for chat in ["agent:main:telegram:dm:7", "agent:main:telegram:dm:\"8\""] {
            routing.0.insert(SessionKey(chat.into()), entry(chat));
            let mut draft = CopyWriter::new(&path).expect("begun");
            routing.0.values().for_each(|entry| draft.add(std::slice::from_ref(entry)).expect("added"));
            draft.finish().expect("copied");
            let text = std::fs::read(&path).expect("there");
            assert!(text.starts_with(b"{\n  \"_README\""));
            assert_eq!(serde_json::from_slice::<Routing>(&text).expect("readable").0, routing.0);
        }
    }
}
