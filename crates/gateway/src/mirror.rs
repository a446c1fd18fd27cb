//! A copy of the routing table for older tools: `sessions/sessions.json`.
//!
//! Owns that file. Written some seconds after something changed, as a whole and atomically; a crash leaves the copy
//! before. Nothing here is read back, except once, when a home of another program is taken over.

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use petasos_store::{Error as StoreError, Reader, RoutingState};
use serde::Serializer;
use serde::ser::SerializeMap;
use tokio::time::Instant;

use crate::session::Shell;

/// How long a change may be missing from the copy.
const DEBOUNCE: Duration = Duration::from_secs(5);
/// A long table is copied less often: at most this part of the time is spent on it.
const PART: u32 = 50;
const README: &str =
    "Legacy copy of the routing table in petasos.db, for tools that read it. Changes here have no effect.";

pub(crate) fn path(home: &Path) -> PathBuf {
    home.join("sessions").join("sessions.json")
}

/// Runs until stopping begins.
pub(crate) async fn run(shell: Arc<Shell>) {
    // An empty table needs no copy.
    let (mut written, mut pause) = (RoutingState::default(), DEBOUNCE);
    loop {
        tokio::select! {
            () = shell.stopper.stopped() => return,
            () = tokio::time::sleep(pause) => {}
        }
        let state = match shell.db.read(|reader| reader.routing_state()).await {
            Ok(state) if state == written => continue,
            Ok(state) => state,
            Err(error) => {
                tracing::debug!(%error, "the routing table cannot be read");
                continue;
            }
        };
        let (path, began) = (path(&shell.home), Instant::now());
        match shell.db.read(move |reader| copy(reader, &path)).await {
            Ok(()) => written = state,
            Err(error) => {
                tracing::warn!(%error, "sessions.json could not be written; older tools see an old copy")
            }
        }
        pause = DEBOUNCE.max(began.elapsed() * PART);
    }
}

/// All of it or nothing, and not for everyone's eyes. One entry is in memory at a time.
fn copy(reader: &Reader, path: &Path) -> Result<(), StoreError> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
    let temporary = path.with_extension("json~");
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    let mut text = BufWriter::new(file);
    let mut json = serde_json::Serializer::pretty(&mut text);
    let mut all = json.serialize_map(None).map_err(io::Error::from)?;
    all.serialize_entry("_README", README).map_err(io::Error::from)?;
    reader.each_entry(|entry| {
        Ok(all.serialize_entry(&entry.session_key, &entry).map_err(io::Error::from)?)
    })?;
    all.end().map_err(io::Error::from)?;
    text.flush()?;
    text.get_ref().sync_all()?;
    Ok(std::fs::rename(&temporary, path)?)
}

#[cfg(test)]
mod tests {
    use petasos_core::session::{Entry, LocalTime, Routing};
    use petasos_core::{SessionId, SessionKey};
    use petasos_store::Store;

    use super::*;

    #[test]
    fn the_copy_reads_back_as_what_it_was_made_from_and_replaces_the_one_before() {
        let home = tempfile::TempDir::new().expect("a home");
        let mut store = Store::open(home.path().join("petasos.db")).expect("a store");
        let path = path(home.path());
        let now = LocalTime::parse("2026-11-15T18:12:05").expect("a time");
        let mut routing = Routing::default();
        for chat in ["agent:main:telegram:dm:7", "agent:main:telegram:dm:\"8\""] {
            let key = SessionKey(chat.into());
            let entry = Entry::new(key.clone(), SessionId(format!("20261115_181205_{chat}")), None, now);
            store.write(|tx| tx.put_entry(&entry)).expect("written");
            routing.0.insert(key, entry);
            copy(&store.place().reader().expect("a reader"), &path).expect("copied");
            let text = std::fs::read(&path).expect("there");
            assert!(text.starts_with(b"{\n  \"_README\""));
            assert_eq!(serde_json::from_slice::<Routing>(&text).expect("readable").0, routing.0);
        }
    }
}
