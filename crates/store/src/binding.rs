//! Binding a conversation to a transcript: looked up, decided by core, and written in one job, so that
//! any number of callers for one key agree on one transcript.

use petasos_core::session::{
    self, Ask, Background, EndReason, Entry, Lookup, ResetPolicy, Resolution, Row, Window, resolve,
    session_id,
};
use petasos_core::{Millis, SessionId, SessionKey, Source};
use rusqlite::{OptionalExtension, params};

use crate::clock::local_time;
use crate::error::{Error, Result};
use crate::group::{Reads, Tx};

/// A chain of compressed transcripts longer than this is not followed.
const CHAIN: usize = 64;

/// Who asks for a transcript, and under which rules.
#[derive(Debug, Clone, Copy)]
pub struct Binding<'a> {
    pub key: &'a SessionKey,
    pub source: &'a Source,
    pub ask: Ask,
    pub policy: &'a ResetPolicy,
    pub window: Window,
    pub background: Background,
}

/// The entry as stored now, and why it is this one.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    pub entry: Entry,
    pub resolution: Resolution,
}

impl Reads {
    /// The end of the chain of transcripts that continue `id` after compression.
    pub fn compression_tip(&self, id: &SessionId) -> Result<SessionId> {
        let mut next = self.sql(
            "SELECT child.id FROM sessions JOIN sessions child ON child.parent = sessions.id
             WHERE sessions.id = ?1 AND sessions.end_reason = 'compression'
                 AND coalesce(child.platform, '') <> 'subagent'
             ORDER BY child.started_at DESC, child.id DESC LIMIT 1",
        )?;
        let mut tip = id.clone();
        for _ in 0..CHAIN {
            match next.query_row([tip.as_str()], |row| row.get(0)).optional()? {
                Some(child) => tip = SessionId(child),
                None => break,
            }
        }
        Ok(tip)
    }

    fn row(&self, entry: Option<&Entry>) -> Result<Row> {
        let Some(entry) = entry else {
            return Ok(Row::Unknown);
        };
        Ok(match self.session(&entry.session_id)? {
            None => Row::Unknown,
            Some(row) => row.ended.map_or(Row::Live, |end| Row::Ended(EndReason::parse(&end.reason))),
        })
    }
}

impl Tx<'_> {
    /// The transcript that the next message of this conversation belongs to.
    pub fn get_or_create(&self, binding: &Binding<'_>, now: Millis) -> Result<Bound> {
        let Binding { key, source, ask, policy, window, background } = *binding;
        let mut entry = self.entry(key)?;
        if let Some(entry) = &mut entry {
            entry.session_id = self.compression_tip(&entry.session_id)?;
        }
        let row = self.row(entry.as_ref())?;
        let recoverable = self.recoverable(key)?;
        let lookup =
            Lookup { entry: entry.as_ref(), row: &row, recoverable: recoverable.as_ref(), background };
        let resolution = resolve(&lookup, ask, policy, window, local_time(now));
        if let (Resolution::New { end: Some(reason), .. }, Some(old)) = (&resolution, &entry) {
            self.end_session(&old.session_id, reason.as_str(), now)?;
        }
        if let Resolution::Recover(id) = &resolution {
            self.reopen_session(id)?;
        }
        let entry = resolution.apply(entry, key, source, &self.fresh_id(now)?, local_time(now));
        self.bind(&entry, None, now)?;
        Ok(Bound { entry, resolution })
    }

    /// `/new`. `None`: the conversation is unknown.
    pub fn reset_session(&self, key: &SessionKey, now: Millis) -> Result<Option<Entry>> {
        let Some(old) = self.entry(key)? else {
            return Ok(None);
        };
        let (entry, reason) = session::reset(&old, self.fresh_id(now)?, local_time(now));
        self.end_session(&old.session_id, reason.as_str(), now)?;
        self.bind(&entry, None, now)?;
        Ok(Some(entry))
    }

    /// `/resume`. `None`: it is bound to that transcript already.
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
        self.bind(&entry, None, now)?;
        Ok(Some(entry))
    }

    /// A new transcript that continues the present one after its history was compressed; everything else
    /// about the entry stays. `None`: the conversation is unknown.
    pub fn compress_session(&self, key: &SessionKey, now: Millis) -> Result<Option<Entry>> {
        let Some(old) = self.entry(key)? else {
            return Ok(None);
        };
        let entry = Entry { session_id: self.fresh_id(now)?, updated_at: local_time(now), ..old.clone() };
        self.end_session(&old.session_id, EndReason::Compression.as_str(), now)?;
        self.bind(&entry, Some(&old.session_id), now)?;
        Ok(Some(entry))
    }

    /// Binds a conversation to a transcript that is named from outside.
    pub fn bind_session(&self, entry: &Entry, now: Millis) -> Result<()> {
        self.bind(entry, None, now)
    }

    fn bind(&self, entry: &Entry, parent: Option<&SessionId>, now: Millis) -> Result<()> {
        self.create_session(&entry.session_id, &entry.session_key, entry.origin.as_ref(), parent, now)?;
        // A transcript taken over from another chat is listed where it is used.
        self.sql("UPDATE sessions SET session_key = ?2 WHERE id = ?1 AND session_key <> ?2")?
            .execute(params![entry.session_id.as_str(), entry.session_key.as_str()])?;
        self.put_entry(entry)
    }

    /// A name that no transcript has.
    fn fresh_id(&self, now: Millis) -> Result<SessionId> {
        let mut taken = self.sql("SELECT 1 FROM sessions WHERE id = ?1")?;
        loop {
            let mut entropy = [0_u8; 4];
            getrandom::fill(&mut entropy)
                .map_err(|_| Error::Io("the system gives no random numbers".into()))?;
            let id = session_id(local_time(now), u32::from_le_bytes(entropy));
            if !taken.exists([id.as_str()])? {
                return Ok(id);
            }
        }
    }
}
