//! Damage found by reads and writes. The database thread records it for the next start when it ends.

use std::path::Path;
use std::sync::Arc;

use petasos_store::{Error as StoreError, Store};
use tokio::sync::watch;

const ADVICE: &str = "check the disk; a restart salvages the database";

/// The worst damage found so far; later variants are worse.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum DamageLevel {
    None,
    /// Some rows do not decode: the next start looks for them.
    Rows,
    /// Needs a salvage.
    Structure(String),
}

#[derive(Debug, Clone)]
pub(super) struct Damage(Arc<watch::Sender<DamageLevel>>);

impl Default for Damage {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(DamageLevel::None)))
    }
}

impl Damage {
    pub(super) fn note(&self, error: &StoreError) {
        match error {
            StoreError::Corrupt(_) | StoreError::NotDatabase => {
                self.raise(DamageLevel::Structure(error.to_string()));
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
        self.raise(DamageLevel::Rows);
    }

    /// Resolves when the structure of the database is found damaged.
    pub(super) async fn wait(&self) -> String {
        let mut level = self.0.subscribe();
        loop {
            if let DamageLevel::Structure(detail) = &*level.borrow_and_update() {
                return detail.clone();
            }
            // The sender lives as long as `self`.
            let _ = level.changed().await;
        }
    }

    /// For the status.
    pub(super) fn problem(&self) -> Option<String> {
        match &*self.0.borrow() {
            DamageLevel::None | DamageLevel::Rows => None,
            DamageLevel::Structure(detail) => Some(format!("{detail}; {ADVICE}")),
        }
    }

    /// Records the damage for the next start. Call it after the database is closed.
    pub(super) fn write_note(&self, path: &Path) {
        let noted = match &*self.0.borrow() {
            DamageLevel::None => Ok(()),
            DamageLevel::Rows => Store::note_unreadable_rows(path),
            DamageLevel::Structure(detail) => Store::note_damage(path, detail),
        };
        if let Err(error) = noted {
            tracing::error!(%error, "cannot record for the next start that the database is damaged");
        }
    }

    fn raise(&self, level: DamageLevel) {
        self.0.send_if_modified(|known| {
            // The first structural damage is the one reported.
            let worse = !matches!(known, DamageLevel::Structure(_)) && level > *known;
            if worse {
                *known = level;
            }
            worse
        });
    }
}
