//! A copy of the routing table for older tools: `sessions/sessions.json`.
//!
//! Owns that file. Written some seconds after something changed, as a whole and atomically; a crash leaves the copy
//! before. Nothing here is read back, except once, when a home of another program is taken over.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use petasos_core::session::Routing;
use petasos_store::RoutingState;
use serde_json::{Map, Value};

use crate::db::Db;
use crate::session::Shell;

/// How long a change may be missing from the copy.
const DEBOUNCE: Duration = Duration::from_secs(5);
const README: &str =
    "Legacy copy of the routing table in petasos.db, for tools that read it. Changes here have no effect.";

pub(crate) fn path(home: &Path) -> PathBuf {
    home.join("sessions").join("sessions.json")
}

/// Runs until stopping begins.
pub(crate) async fn run(shell: Arc<Shell>) {
    // An empty table needs no copy.
    let mut written = RoutingState::default();
    loop {
        tokio::select! {
            () = shell.stopper.stopped() => return,
            () = tokio::time::sleep(DEBOUNCE) => {}
        }
        let state = match shell.db.read(|reader| reader.routing_state()).await {
            Ok(state) if state == written => continue,
            Ok(state) => state,
            Err(error) => {
                tracing::debug!(%error, "the routing table cannot be read");
                continue;
            }
        };
        match copy(&shell.db, path(&shell.home)).await {
            Ok(()) => written = state,
            Err(error) => {
                tracing::warn!(%error, "sessions.json could not be written; older tools see an old copy")
            }
        }
    }
}

async fn copy(db: &Db, path: PathBuf) -> io::Result<()> {
    let routing = db.read(|reader| reader.routing()).await.map_err(io::Error::other)?;
    tokio::task::spawn_blocking(move || replace(&path, &text(&routing)?)).await.map_err(io::Error::other)?
}

fn text(routing: &Routing) -> io::Result<Vec<u8>> {
    let mut all = Map::new();
    all.insert("_README".into(), README.into());
    for (key, entry) in &routing.0 {
        all.insert(key.as_str().to_owned(), serde_json::to_value(entry)?);
    }
    Ok(serde_json::to_vec_pretty(&Value::Object(all))?)
}

/// All of it or nothing, and not for everyone's eyes.
fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;

    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let temporary = path.with_extension("json~");
    let mut options = std::fs::OpenOptions::new();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use petasos_core::session::{Entry, LocalTime};
    use petasos_core::{SessionId, SessionKey};

    use super::*;

    #[test]
    fn the_copy_reads_back_as_what_it_was_made_from() {
        let key = SessionKey("agent:main:telegram:dm:7".into());
        let id = SessionId("20261115_181205_13f6a7af".into());
        let now = LocalTime::parse("2026-11-15T18:12:05").expect("a time");
        let routing = Routing([(key.clone(), Entry::new(key, id, None, now))].into());
        let copy = text(&routing).expect("text");
        assert!(copy.starts_with(b"{\n  \"_README\""));
        assert_eq!(serde_json::from_slice::<Routing>(&copy).expect("readable").0, routing.0);
    }

    #[test]
    fn a_copy_replaces_the_one_before() {
        let home = tempfile::TempDir::new().expect("a home");
        let path = path(home.path());
        for words in ["one", "two"] {
            replace(&path, words.as_bytes()).expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("there"), words);
        }
    }
}
