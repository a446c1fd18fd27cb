//! Import of a legacy `sessions.json`. Invalid entries are skipped; an invalid file is ignored.

use petasos_core::session::{Entry, Routing};
use serde_json::Value;

use crate::clock::unix_time;
use crate::connection::Tx;
use crate::error::Result;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SessionImport {
    pub imported: usize,
    /// The session key is already known; the existing entry stays.
    pub existing: usize,
    pub skipped: usize,
}

impl Tx<'_> {
    /// Imports entries with unknown session keys. `None`: the file cannot be parsed.
    pub fn import_sessions(&self, file: &str) -> Result<Option<SessionImport>> {
        let Ok(Value::Object(lines)) = serde_json::from_str::<Value>(file) else {
            return Ok(None);
        };
        let offered = lines.keys().filter(|key| !key.starts_with('_')).count();
        let Ok(Routing(entries)) = serde_json::from_value(Value::Object(lines)) else {
            return Ok(None);
        };
        let mut imported =
            SessionImport { skipped: offered.saturating_sub(entries.len()), ..SessionImport::default() };
        for (key, entry) in entries {
            if self.entry(&key)?.is_some() {
                imported.existing += 1;
                continue;
            }
            let entry = Entry { session_key: key, ..entry };
            let id = &entry.session_id;
            let origin = entry.origin.as_ref();
            self.create_session(id, &entry.session_key, origin, None, unix_time(entry.created_at))?;
            self.put_entry(&entry)?;
            imported.imported += 1;
        }
        Ok(Some(imported))
    }
}
