//! Taking over a `sessions.json`. Reading is tolerant: a bad entry is left out, a bad file is nothing.

use petasos_core::session::{Entry, Routing};
use serde_json::Value;

use crate::clock::unix_time;
use crate::error::Result;
use crate::group::Tx;

/// What became of a file's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Imported {
    pub taken: usize,
    /// The conversation is known here; our entry stays.
    pub known: usize,
    /// No sound entry.
    pub skipped: usize,
}

impl Tx<'_> {
    /// Fills in conversations that are not known here. `None`: the file as a whole cannot be read.
    pub fn import_sessions(&self, file: &str) -> Result<Option<Imported>> {
        let Ok(Value::Object(lines)) = serde_json::from_str::<Value>(file) else {
            return Ok(None);
        };
        let offered = lines.keys().filter(|key| !key.starts_with('_')).count();
        let Ok(Routing(entries)) = serde_json::from_value(Value::Object(lines)) else {
            return Ok(None);
        };
        let mut imported = Imported { skipped: offered.saturating_sub(entries.len()), ..Imported::default() };
        for (key, entry) in entries {
            if self.entry(&key)?.is_some() {
                imported.known += 1;
                continue;
            }
            let entry = Entry { session_key: key, ..entry };
            let (id, origin) = (&entry.session_id, entry.origin.as_ref());
            self.create_session(id, &entry.session_key, origin, None, unix_time(entry.created_at))?;
            self.put_entry(&entry)?;
            imported.taken += 1;
        }
        Ok(Some(imported))
    }
}
