//! Transcripts as programs keep them: made, renamed, ended, branched and removed by name.

use std::collections::BTreeMap;

use petasos_agent::{ToolSpec, Toolset};
use petasos_core::session::{Entry, ModelOverride};
use petasos_core::{Platform, SessionId};
use petasos_store::{CardQuery, SessionCard, Tx, local_time};

use super::bound::Bound;
use super::place::{Terms, begin, fresh};
use crate::runtime::commit::Commit;
use crate::{Error, Handle, clock};

#[derive(Debug, Clone, Default)]
pub struct NewSession {
    pub id: Option<String>,
    pub title: Option<String>,
    pub model: Option<String>,
    /// Told to the model after the gateway's own words, in every turn.
    pub system_prompt: Option<String>,
}

/// Why a transcript was not changed.
#[derive(Debug, thiserror::Error)]
pub enum NotChanged {
    #[error(transparent)]
    Error(#[from] Error),
    #[error("there is one with this name")]
    Exists,
    #[error("there is no such transcript")]
    Missing,
    /// Something works in it, or a chat of a platform is in it.
    #[error("it is in use")]
    InUse,
}

/// The highest number that is tried behind a title.
const COPIES: usize = 10_000;

impl Handle {
    pub async fn session_card(&self, id: &str) -> Result<Option<SessionCard>, Error> {
        let id = SessionId(id.to_owned());
        self.0.handles.db.read(move |reader| reader.session_card(&id)).await
    }

    pub async fn session_cards(&self, query: CardQuery) -> Result<Vec<SessionCard>, Error> {
        self.0.handles.db.read(move |reader| reader.session_cards(&query)).await
    }

    /// A transcript of a program's own.
    pub async fn create_session(&self, owner: &str, new: NewSession) -> Result<SessionCard, NotChanged> {
        let id = new.id.clone().unwrap_or_else(|| {
            format!("api_{}_{}", clock::now().0 / 1000, super::hex::<4>(&clock::random()))
        });
        self.make(owner, SessionId(id), move |tx, terms, id| {
            if tx.session(id)?.is_some() {
                return Ok(Err(NotChanged::Exists));
            }
            let now = clock::now();
            let bound = Bound::new(id.as_str(), terms.owner, terms.run);
            let (key, source) = (bound.key(terms.keys), bound.source().clone());
            begin(tx, terms, bound, key.clone(), id.clone(), None, now)?;
            if let Some(title) = &new.title {
                tx.put_title(id, title)?;
            }
            if let Some(words) = &new.system_prompt {
                let own = terms.settings.system_prompt(terms.hint, None, now);
                tx.put_system_prompt(id, &format!("{own}\n\n{words}"))?;
            }
            if let Some(model) = &new.model {
                tx.put_model(id, Some(model))?;
                let chosen = ModelOverride { model: Some(model.clone()), ..ModelOverride::default() };
                let entry = Entry::new(key, id.clone(), Some(source), local_time(now));
                tx.put_entry(&Entry { model_override: Some(chosen), ..entry })?;
            }
            Ok(Ok(()))
        })
        .await
    }

    /// A new transcript with everything that `from` says. One of a program's own ends with it.
    pub async fn fork_session(
        &self,
        owner: &str,
        from: &str,
        id: Option<String>,
        title: Option<String>,
    ) -> Result<SessionCard, NotChanged> {
        let from = SessionId(from.to_owned());
        let id = id.map_or_else(|| fresh("api"), SessionId);
        self.make(owner, id, move |tx, terms, id| {
            let Some(source) = tx.session(&from)? else { return Ok(Err(NotChanged::Missing)) };
            if tx.session(id)?.is_some() {
                return Ok(Err(NotChanged::Exists));
            }
            let now = clock::now();
            let bound = Bound::new(id.as_str(), terms.owner, terms.run);
            let key = bound.key(terms.keys);
            begin(tx, terms, bound, key, id.clone(), Some(&from), now)?;
            if let Some(last) = tx.last_row(&from)? {
                tx.copy_rows(&from, id, last)?;
            }
            let title = match title.clone() {
                Some(title) => Some(title),
                None => source.title.map(|title| numbered(tx, &title)).transpose()?,
            };
            if let Some(title) = title {
                tx.put_title(id, &title)?;
            }
            if let Some(words) = tx.system_prompt(&from)? {
                tx.put_system_prompt(id, &words)?;
            }
            if source.platform.as_deref() == Some(Platform::API_SERVER.as_str()) {
                tx.end_session(&from, "branched", now)?;
            }
            Ok(Ok(()))
        })
        .await
    }

    pub async fn rename_session(&self, id: &str, title: String) -> Result<bool, Error> {
        let id = SessionId(id.to_owned());
        self.0.handles.db.write(Commit::Operator, move |tx| tx.put_title(&id, &title)).await
    }

    pub async fn end_session(&self, id: &str, reason: String) -> Result<(), Error> {
        let id = SessionId(id.to_owned());
        self.0
            .handles
            .db
            .write(Commit::Operator, move |tx| tx.end_session(&id, &reason, clock::now()).map(drop))
            .await
    }

    /// Removes a transcript with everything in it.
    pub async fn delete_session(&self, id: &str) -> Result<(), NotChanged> {
        let id = SessionId(id.to_owned());
        let removed = self.0.handles.db.write(Commit::Operator, move |tx| {
            let Some(row) = tx.session(&id)? else { return Ok(Err(NotChanged::Missing)) };
            let own = row.platform.as_deref() == Some(Platform::API_SERVER.as_str());
            if tx.is_busy(&row.key)? {
                return Ok(Err(NotChanged::InUse));
            }
            if own {
                tx.unbind_session(&id)?;
            }
            Ok(if tx.delete_session(&id)? { Ok(()) } else { Err(NotChanged::InUse) })
        });
        removed.await?
    }

    /// How jobs are shown.
    pub fn cron_settings(&self) -> &crate::background::cron::Settings {
        &self.0.handles.settings.cron
    }

    /// The agent's tools by toolset.
    pub fn toolsets(&self) -> BTreeMap<Toolset, Vec<ToolSpec>> {
        self.0.handles.agent.tools.toolsets()
    }

    async fn make<F>(&self, owner: &str, id: SessionId, job: F) -> Result<SessionCard, NotChanged>
    where
        F: FnOnce(&Tx<'_>, &Terms<'_>, &SessionId) -> Result<Result<(), NotChanged>, petasos_store::Error>
            + Send
            + 'static,
    {
        let (handles, rules) = (self.0.handles.clone(), self.0.ingest.rules.clone());
        let (owner, made) = (owner.to_owned(), id.clone());
        let done = self.0.handles.db.write(Commit::Operator, move |tx| {
            let hint = &handles.channels.capabilities(Platform::API_SERVER).hint;
            let (settings, keys) = (&handles.settings, &rules.keys);
            let terms = Terms { settings, keys, hint, owner: &owner, sees_all: true, run: "" };
            job(tx, &terms, &id)
        });
        done.await??;
        self.session_card(made.as_str()).await?.ok_or(NotChanged::Missing)
    }
}

/// `base #n`, the first that is free.
fn numbered(tx: &Tx<'_>, title: &str) -> Result<String, petasos_store::Error> {
    let base = match title.rsplit_once(" #") {
        Some((base, number)) if number.parse::<usize>().is_ok() => base,
        Some(_) | None => title,
    };
    for number in 2..COPIES {
        let title = format!("{base} #{number}");
        if !tx.has_title(&title)? {
            return Ok(title);
        }
    }
    Ok(base.to_owned())
}
