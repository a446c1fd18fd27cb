//! API operations on transcripts: create, rename, end, fork, delete.

use std::collections::BTreeMap;

use petasos_agent::{ToolSpec, Toolset};
use petasos_core::session::{Entry, ModelOverride};
use petasos_core::{Platform, SessionId};
use petasos_store::{SessionSummary, SessionSummaryQuery, Tx, local_time};

use super::source::RunSource;
use super::target::{RunContext, create, new_session_id};
use crate::runtime::commit::Commit;
use crate::{Error, Handle, clock};

#[derive(Debug, Clone, Default)]
pub struct NewSession {
    pub id: Option<SessionId>,
    pub title: Option<String>,
    pub model: Option<String>,
    /// Appended to the gateway's system prompt in every turn.
    pub system_prompt: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum SessionChangeError {
    #[error(transparent)]
    Error(#[from] Error),
    #[error("a session with this name exists already")]
    Exists,
    #[error("there is no such session")]
    Missing,
    /// A turn is running in it, or a platform chat uses it.
    #[error("the session is in use")]
    InUse,
}

const COPIES: usize = 10_000;

impl Handle {
    pub async fn session_summary(&self, id: &SessionId) -> Result<Option<SessionSummary>, Error> {
        let id = id.clone();
        self.0.handles.db.read(move |reader| reader.session_summary(&id)).await
    }

    pub async fn session_summaries(&self, query: SessionSummaryQuery) -> Result<Vec<SessionSummary>, Error> {
        self.0.handles.db.read(move |reader| reader.session_summaries(&query)).await
    }

    pub async fn create_session(
        &self,
        owner: &str,
        new: NewSession,
    ) -> Result<SessionSummary, SessionChangeError> {
        let id = new.id.clone().unwrap_or_else(|| {
            SessionId(format!("api_{}_{}", clock::now().0 / 1000, clock::random_hex::<4>()))
        });
        self.create_with(owner, id, move |tx, context, id| {
            if tx.session(id)?.is_some() {
                return Ok(Err(SessionChangeError::Exists));
            }
            let now = clock::now();
            let run_source = RunSource::new(id.as_str(), context.owner, context.run);
            let key = run_source.key(context.keys);
            let source = run_source.source().clone();
            create(tx, context, run_source, key.clone(), id.clone(), None, now)?;
            if let Some(title) = &new.title {
                tx.put_title(id, title)?;
            }
            if let Some(words) = &new.system_prompt {
                let own = context.settings.system_prompt(context.hint, None, now);
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

    /// Copies a transcript. If the original belongs to an API client, it ends.
    pub async fn fork_session(
        &self,
        owner: &str,
        from: &SessionId,
        id: Option<SessionId>,
        title: Option<String>,
    ) -> Result<SessionSummary, SessionChangeError> {
        let from = from.clone();
        let id = id.unwrap_or_else(|| new_session_id("api"));
        self.create_with(owner, id, move |tx, context, id| {
            let Some(source) = tx.session(&from)? else { return Ok(Err(SessionChangeError::Missing)) };
            if tx.session(id)?.is_some() {
                return Ok(Err(SessionChangeError::Exists));
            }
            let now = clock::now();
            let run_source = RunSource::new(id.as_str(), context.owner, context.run);
            let key = run_source.key(context.keys);
            create(tx, context, run_source, key, id.clone(), Some(&from), now)?;
            if let Some(last) = tx.last_row(&from)? {
                tx.copy_rows(&from, id, last)?;
            }
            let title = match title.clone() {
                Some(title) => Some(title),
                None => source.title.map(|title| numbered_title(tx, &title)).transpose()?,
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

    pub async fn rename_session(&self, id: &SessionId, title: String) -> Result<bool, Error> {
        let id = id.clone();
        self.0.handles.db.write(Commit::Operator, move |tx| tx.put_title(&id, &title)).await
    }

    pub async fn end_session(&self, id: &SessionId, reason: String) -> Result<(), Error> {
        let id = id.clone();
        self.0
            .handles
            .db
            .write(Commit::Operator, move |tx| tx.end_session(&id, &reason, clock::now()).map(drop))
            .await
    }

    pub async fn delete_session(&self, id: &SessionId) -> Result<(), SessionChangeError> {
        let id = id.clone();
        let removed = self.0.handles.db.write(Commit::Operator, move |tx| {
            let Some(row) = tx.session(&id)? else { return Ok(Err(SessionChangeError::Missing)) };
            let own = row.platform.as_deref() == Some(Platform::API_SERVER.as_str());
            if tx.is_busy(&row.key)? {
                return Ok(Err(SessionChangeError::InUse));
            }
            if own {
                tx.unbind_session(&id)?;
            }
            Ok(if tx.delete_session(&id)? { Ok(()) } else { Err(SessionChangeError::InUse) })
        });
        removed.await?
    }

    pub fn toolsets(&self) -> BTreeMap<Toolset, Vec<ToolSpec>> {
        self.0.handles.agent.tools.toolsets()
    }

    async fn create_with<F>(
        &self,
        owner: &str,
        id: SessionId,
        job: F,
    ) -> Result<SessionSummary, SessionChangeError>
    where
        F: FnOnce(
                &Tx<'_>,
                &RunContext<'_>,
                &SessionId,
            ) -> Result<Result<(), SessionChangeError>, petasos_store::Error>
            + Send
            + 'static,
    {
        let handles = self.0.handles.clone();
        let rules = self.0.ingest.rules.clone();
        let owner = owner.to_owned();
        let made = id.clone();
        let done = self.0.handles.db.write(Commit::Operator, move |tx| {
            let hint = &handles.channels.capabilities(Platform::API_SERVER).hint;
            let settings = &handles.settings;
            let keys = &rules.keys;
            let context = RunContext { settings, keys, hint, owner: &owner, sees_all: true, run: None };
            job(tx, &context, &id)
        });
        done.await??;
        self.session_summary(&made).await?.ok_or(SessionChangeError::Missing)
    }
}

/// The first free title of the form `base #n`.
fn numbered_title(tx: &Tx<'_>, title: &str) -> Result<String, petasos_store::Error> {
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
