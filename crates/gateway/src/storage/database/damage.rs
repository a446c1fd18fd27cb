//! Damage that reads and writes show. The database thread notes it for the next start as it ends.

use std::path::Path;
use std::sync::Arc;

use petasos_store::{Error as StoreError, Store};
use tokio::sync::watch;

const GATEWAY_ADVICE: &str =
    "check the disk; a restart salvages the database, or petasos stop and petasos doctor --repair";
const CONNECTOR_ADVICE: &str = "check the disk, stop the connector and restore connector.db from a backup";

/// The worst damage found so far; later variants are worse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Nothing,
    /// Single rows do not decode: the next start looks for them.
    Rows,
    /// Needs a salvage.
    Structure(String),
}

#[derive(Debug, Clone)]
pub(super) struct Damage {
    found: Arc<watch::Sender<Found>>,
    /// Whether the next start acts on a note.
    salvageable: bool,
}

impl Damage {
    pub(super) fn new(salvageable: bool) -> Self {
        Self { found: Arc::new(watch::Sender::new(Found::Nothing)), salvageable }
    }

    pub(super) fn note(&self, error: &StoreError) {
        match error {
            StoreError::Corrupt(_) | StoreError::NotDatabase => {
                self.found(Found::Structure(error.to_string()));
            }
            StoreError::Unreadable(_) => self.note_rows(),
            StoreError::Full
            | StoreError::ReadOnly
            | StoreError::Io(_)
            | StoreError::Detached(_)
            | StoreError::Busy
            | StoreError::Conflict(_)
            | StoreError::Missing(_)
            | StoreError::Broken
            | StoreError::Sql(_) => {}
        }
    }

    pub(super) fn note_rows(&self) {
        self.found(Found::Rows);
    }

    /// Resolves when the structure of the database is found damaged.
    pub(super) async fn wait(&self) -> String {
        let mut found = self.found.subscribe();
        loop {
            if let Found::Structure(detail) = &*found.borrow_and_update() {
                return detail.clone();
            }
            // The sender lives as long as `self`.
            let _ = found.changed().await;
        }
    }

    /// For the status.
    pub(super) fn trouble(&self) -> Option<String> {
        match &*self.found.borrow() {
            Found::Nothing | Found::Rows => None,
            Found::Structure(detail) => Some(format!("{detail}; {}", self.advice())),
        }
    }

    const fn advice(&self) -> &'static str {
        if self.salvageable { GATEWAY_ADVICE } else { CONNECTOR_ADVICE }
    }

    /// For the next start. To be called once the database is closed.
    pub(super) fn remember(&self, path: &Path) {
        if !self.salvageable {
            return;
        }
        let noted = match &*self.found.borrow() {
            Found::Nothing => Ok(()),
            Found::Rows => Store::note_unreadable_rows(path),
            Found::Structure(detail) => Store::note_damage(path, detail),
        };
        if let Err(error) = noted {
            tracing::error!(%error, "cannot note that the database is damaged; run petasos doctor --repair");
        }
    }

    fn found(&self, found: Found) {
        self.found.send_if_modified(|known| {
            // The first structural damage is the one reported.
            let worse = !matches!(known, Found::Structure(_)) && found > *known;
            if worse {
                // Of a gateway, `salvage::watch` reports it.
                if let (Found::Structure(detail), false) = (&found, self.salvageable) {
                    tracing::error!(detail, "the database is damaged; {}", self.advice());
                }
                *known = found;
            }
            worse
        });
    }
}
