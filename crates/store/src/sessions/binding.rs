//! Binds a session key to a session. Lookup, decision and write are one job, so that concurrent callers get the same
//! session.

use petasos_core::session::{
    self, BackgroundWork, EndReason, Entry, FreshnessWindow, Lookup, ResetPolicy, Resolution, ResolveMode,
    TranscriptState, resolve, session_id,
};
use petasos_core::{Millis, SessionId, SessionKey, Source};
use rusqlite::{OptionalExtension, params};

use crate::clock::local_time;
use crate::connection::{Reads, Tx};
use crate::error::{Error, Result};

/// Longest chain of compressed sessions that is followed.
const MAX_CHAIN: usize = 64;

#[derive(Debug, Clone, Copy)]
pub struct BindRequest<'a> {
    pub key: &'a SessionKey,
    pub source: &'a Source,
    pub mode: ResolveMode,
    pub policy: &'a ResetPolicy,
    pub window: FreshnessWindow,
    pub background: BackgroundWork,
}

/// The stored entry, and why it was chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct BoundSession {
    pub entry: Entry,
    pub resolution: Resolution,
}

impl Reads {
    /// Last session in the chain that continues `id` after compressions.
    pub fn compression_tip(&self, id: &SessionId) -> Result<SessionId> {
        let mut next = self.sql(
            "SELECT child.id FROM sessions JOIN sessions child ON child.parent = sessions.id
             WHERE sessions.id = ?1 AND sessions.end_reason = 'compression'
                 AND coalesce(child.platform, '') <> 'subagent'
             ORDER BY child.started_at DESC, child.id DESC LIMIT 1",
        )?;
        let mut tip = id.clone();
        for _ in 0..MAX_CHAIN {
            match next.query_row([tip.as_str()], |row| row.get(0)).optional()? {
                Some(child) => tip = SessionId(child),
                None => break,
            }
        }
        Ok(tip)
    }

    fn session_state(&self, entry: Option<&Entry>) -> Result<TranscriptState> {
        let Some(entry) = entry else {
            return Ok(TranscriptState::Unknown);
        };
        Ok(match self.session(&entry.session_id)? {
            None => TranscriptState::Unknown,
            Some(row) => row
                .ended
                .map_or(TranscriptState::Live, |end| TranscriptState::Ended(EndReason::parse(&end.reason))),
        })
    }
}

impl Tx<'_> {
    pub fn get_or_create(&self, binding: &BindRequest<'_>, now: Millis) -> Result<BoundSession> {
        let BindRequest { key, source, mode, policy, window, background } = *binding;
        let mut entry = self.entry(key)?;
        if let Some(entry) = &mut entry {
            entry.session_id = self.compression_tip(&entry.session_id)?;
        }
        let row = self.session_state(entry.as_ref())?;
        let recoverable = self.recoverable(key)?;
        let lookup =
            Lookup { entry: entry.as_ref(), transcript: &row, recoverable: recoverable.as_ref(), background };
        let resolution = resolve(&lookup, mode, policy, window, local_time(now));
        if let (Resolution::New { end: Some(reason), .. }, Some(old)) = (&resolution, &entry) {
            self.end_session(&old.session_id, reason.as_str(), now)?;
        }
        if let Resolution::Recover(id) = &resolution {
            self.reopen_session(id)?;
        }
        let entry = resolution.apply(entry, key, source, &self.fresh_id(now)?, local_time(now));
        self.bind_session(&entry, now)?;
        Ok(BoundSession { entry, resolution })
    }

    /// `/resume`. `None`: the key is already bound to that session.
    pub fn switch_session(&self, key: &SessionKey, target: &SessionId, now: Millis) -> Result<Option<Entry>> {
        let old = self.entry(key)?.ok_or(Error::Missing("conversation"))?;
        if self.session(target)?.is_none() {
            return Err(Error::Missing("session"));
        }
        let target = self.compression_tip(target)?;
        let Some((entry, reason)) = session::switch(&old, target, local_time(now)) else {
            return Ok(None);
        };
        self.end_session(&old.session_id, reason.as_str(), now)?;
        self.reopen_session(&entry.session_id)?;
        self.bind_session(&entry, now)?;
        Ok(Some(entry))
    }

    /// Binds a key to the session of the entry, which is created if it does not exist.
    pub fn bind_session(&self, entry: &Entry, now: Millis) -> Result<()> {
        self.create_session(&entry.session_id, &entry.session_key, entry.origin.as_ref(), None, now)?;
        // A session bound to another chat is listed under the chat that uses it now.
        self.sql("UPDATE sessions SET session_key = ?2 WHERE id = ?1 AND session_key <> ?2")?
            .execute(params![entry.session_id.as_str(), entry.session_key.as_str()])?;
        self.put_entry(entry)
    }

    fn fresh_id(&self, now: Millis) -> Result<SessionId> {
        let mut taken = self.sql("SELECT 1 FROM sessions WHERE id = ?1")?;
        loop {
            let mut entropy = [0_u8; 4];
            getrandom::fill(&mut entropy)
                .map_err(|_| Error::Io("the system provides no random numbers".into()))?;
            let id = session_id(local_time(now), u32::from_le_bytes(entropy));
            if !taken.exists([id.as_str()])? {
                return Ok(id);
            }
        }
    }
}
