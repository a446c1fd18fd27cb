//! Chooses the transcript of a run, in the transaction that accepts it.
//!
//! A conversation has a key, which orders its messages, and a transcript. A client that names a transcript gets it. A client that
//! names none sends the full history each time: if it equals the stored transcript, that one continues; otherwise a new one
//! starts with the sent history.

use petasos_core::ids::RowId;
use petasos_core::session::{Entry, KeyOptions};
use petasos_core::transcript::{Message, Role};
use petasos_core::{Millis, Platform, RunId, SessionId, SessionKey, Source};
use petasos_store::{Error as StoreError, RowState, RunRow, TranscriptRow, Tx, local_time};

use super::source::RunSource;
use super::{HistoryMessage, RunOptions};
use crate::clock;
use crate::lifecycle::config::Settings;

#[derive(Debug, Clone)]
pub enum RunTarget {
    /// This transcript; created if missing.
    Session(SessionId),
    /// This transcript, which must exist.
    Existing(SessionId),
    /// The full history. `name` stays the same as long as the beginning of the history does.
    FullHistory {
        name: String,
        history: Vec<HistoryMessage>,
    },
    /// A conversation named by the client; created if missing.
    Conversation(String),
    ContinueRun(RunId),
}

pub(super) struct RunContext<'a> {
    pub(super) settings: &'a Settings,
    pub(super) keys: &'a KeyOptions,
    pub(super) hint: &'a str,
    pub(super) owner: &'a str,
    /// May use conversations of other owners.
    pub(super) sees_all: bool,
    pub(super) run: Option<&'a RunId>,
}

impl RunContext<'_> {
    fn may_enter(&self, tx: &Tx<'_>, id: &SessionId) -> Result<bool, StoreError> {
        let is_own = |from: &Source| {
            from.platform == Platform::API_SERVER && from.user_name.as_deref() == Some(self.owner)
        };
        Ok(self.sees_all || tx.session(id)?.is_none() || tx.session_origin(id)?.as_ref().is_some_and(is_own))
    }
}

pub(super) struct ResolvedTarget {
    pub(super) source: RunSource,
    pub(super) key: SessionKey,
    pub(super) session: SessionId,
}

/// Rows compared with the sent history; a longer conversation starts anew.
const MAX_COMPARED_ROWS: usize = 4000;

/// `None`: the target does not exist or belongs to another owner. Missing options are taken from the previous run.
pub(super) fn resolve_target(
    tx: &Tx<'_>,
    context: &RunContext<'_>,
    resolve_target: &RunTarget,
    options: &mut RunOptions,
    now: Millis,
) -> Result<Option<ResolvedTarget>, StoreError> {
    match resolve_target {
        RunTarget::Session(id) => continue_or_create(tx, context, id, now),
        RunTarget::Existing(id) if tx.session(id)?.is_none() => Ok(None),
        RunTarget::Existing(id) => continue_or_create(tx, context, id, now),
        RunTarget::FullHistory { name, history } => resolve_history(tx, context, name, history, options, now),
        RunTarget::Conversation(name) => {
            let key = RunSource::new(name, context.owner, context.run).key(context.keys);
            let session = tx.bound(&key)?.unwrap_or_else(|| SessionId(name.clone()));
            inherit_instructions(tx.last_run(&session)?.map(|run| run.options), options);
            continue_or_create(tx, context, &session, now)
        }
        RunTarget::ContinueRun(id) => {
            let before = tx.run(id)?.filter(|run| run.owner == context.owner && !run.hidden);
            let Some(before) = before else { return Ok(None) };
            if !transcript_exists(tx, &before)? {
                return Ok(None);
            }
            inherit_instructions(Some(before.options), options);
            match before.last_row {
                Some(last) if tx.last_row(&before.session)? != Some(last) => {
                    branch(tx, context, &before.session, last, now).map(Some)
                }
                Some(_) | None => continue_or_create(tx, context, &before.session, now),
            }
        }
    }
}

/// Whether the transcript of a run still exists; its id may have been reused.
fn transcript_exists(tx: &Tx<'_>, run: &RunRow) -> Result<bool, StoreError> {
    let Some(last) = run.last_row else { return Ok(tx.session(&run.session)?.is_some()) };
    let found = tx.rows_after(&run.session, RowId(last.0 - 1), 1)?;
    Ok(found.first().is_some_and(|row| row.id == last) && tx.session(&run.session)?.is_some())
}

fn inherit_instructions(before: Option<String>, options: &mut RunOptions) {
    if options.instructions.is_none() {
        options.instructions =
            before.and_then(|text| RunOptions::parse(&text)).and_then(|before| before.instructions);
    }
}

fn resolve_history(
    tx: &Tx<'_>,
    context: &RunContext<'_>,
    name: &str,
    history: &[HistoryMessage],
    options: &mut RunOptions,
    now: Millis,
) -> Result<Option<ResolvedTarget>, StoreError> {
    let key = RunSource::new(name, context.owner, context.run).key(context.keys);
    let current = tx.bound(&key)?;
    if tx.is_busy(&key)? {
        // Another client is using a conversation with the same beginning.
        history.clone_into(&mut options.history);
        return continue_or_create(tx, context, &new_session_id(name), now);
    }
    let Some(current) = current else {
        history.clone_into(&mut options.history);
        return continue_or_create(tx, context, &SessionId(name.to_owned()), now);
    };
    if matches_history(&tx.rows_after(&current, RowId(0), MAX_COMPARED_ROWS)?, history) {
        return continue_or_create(tx, context, &current, now);
    }
    history.clone_into(&mut options.history);
    let source = RunSource::new(name, context.owner, context.run);
    create(tx, context, source, key, new_session_id(name), None, now).map(Some)
}

/// Continues or creates this transcript. `None`: it belongs to another owner.
fn continue_or_create(
    tx: &Tx<'_>,
    context: &RunContext<'_>,
    id: &SessionId,
    now: Millis,
) -> Result<Option<ResolvedTarget>, StoreError> {
    if !context.may_enter(tx, id)? {
        return Ok(None);
    }
    let source = RunSource::new(id.as_str(), context.owner, context.run);
    let Some(row) = tx.session(id)? else {
        let key = source.key(context.keys);
        return create(tx, context, source, key, id.clone(), None, now).map(Some);
    };
    if row.ended.is_some() {
        tx.reopen_session(id)?;
    }
    let home = tx.entry(&row.key)?.filter(|entry| entry.session_id == *id && !entry.suspended);
    let key = match home {
        Some(_) => row.key,
        // The key is bound to another transcript now.
        None => {
            let key = source.key(context.keys);
            tx.bind_session(
                &Entry::new(key.clone(), id.clone(), Some(source.source().clone()), local_time(now)),
                now,
            )?;
            key
        }
    };
    Ok(Some(ResolvedTarget { source, key, session: id.clone() }))
}

/// A new transcript with a copy of another one's rows up to `through`.
fn branch(
    tx: &Tx<'_>,
    context: &RunContext<'_>,
    from: &SessionId,
    through: RowId,
    now: Millis,
) -> Result<ResolvedTarget, StoreError> {
    let id = new_session_id("api");
    let source = RunSource::new(id.as_str(), context.owner, context.run);
    let key = source.key(context.keys);
    let placed = create(tx, context, source, key, id.clone(), Some(from), now)?;
    tx.copy_rows(from, &id, through)?;
    Ok(placed)
}

pub(super) fn create(
    tx: &Tx<'_>,
    context: &RunContext<'_>,
    source: RunSource,
    key: SessionKey,
    id: SessionId,
    parent: Option<&SessionId>,
    now: Millis,
) -> Result<ResolvedTarget, StoreError> {
    tx.create_session(&id, &key, Some(source.source()), parent, now)?;
    tx.put_system_prompt(&id, &context.settings.system_prompt(context.hint, None, now))?;
    tx.bind_session(
        &Entry::new(key.clone(), id.clone(), Some(source.source().clone()), local_time(now)),
        now,
    )?;
    Ok(ResolvedTarget { source, key, session: id })
}

pub(super) fn new_session_id(name: &str) -> SessionId {
    SessionId(format!("{name}-{}", clock::random_hex::<4>()))
}

/// Whether the stored rows equal the sent history.
fn matches_history(rows: &[TranscriptRow], history: &[HistoryMessage]) -> bool {
    let mut stored: Vec<(Role, Vec<&str>)> = Vec::new();
    for row in rows.iter().filter(|row| row.state != RowState::Undone) {
        let text = without_pictures(&row.message);
        match (row.message.role, stored.last_mut()) {
            (Role::Assistant, Some((Role::Assistant, texts))) => texts.push(text),
            (role @ (Role::User | Role::Assistant), _) => stored.push((role, vec![text])),
            (Role::Tool | Role::Notice | Role::Summary, _) => {}
        }
    }
    stored.len() == history.len()
        && stored.iter().zip(history).all(|((role, texts), resolve_history)| {
            *role == resolve_history.role && matches_text(texts, &resolve_history.text)
        })
}

/// The text without its picture lines, which clients represent differently.
fn without_pictures(message: &Message) -> &str {
    let lines = message.content.rmatch_indices('\n').nth(message.pictures.len().saturating_sub(1));
    match lines {
        Some((end, _)) if !message.pictures.is_empty() => &message.content[..end],
        Some(_) | None => &message.content,
    }
}

/// A client may have received the texts around tool calls joined, or only the last one.
fn matches_text(texts: &[&str], resolve_history: &str) -> bool {
    let resolve_history = resolve_history.trim();
    let spoken: Vec<_> = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    spoken.last().copied().unwrap_or_default() == resolve_history || spoken.join("\n\n") == resolve_history
}

#[cfg(test)]
mod tests {
    use petasos_core::transcript::{Picture, ToolCall};

    use super::*;

    fn rows(messages: Vec<Message>) -> Vec<TranscriptRow> {
        let rows = messages.into_iter().enumerate();
        rows.map(|(at, message)| TranscriptRow { id: RowId(at as i64), message, state: RowState::Active })
            .collect()
    }

    fn history(messages: &[(Role, &str)]) -> Vec<HistoryMessage> {
        messages.iter().map(|(role, text)| HistoryMessage { role: *role, text: (*text).to_owned() }).collect()
    }

    #[test]
    fn continues_while_the_sent_history_matches() {
        let call = ToolCall { id: "1".into(), name: "clock".into(), arguments: "{}".into() };
        let stored = rows(vec![
            Message::user("what time is it", Millis(0)),
            Message::tool_request("Let me look.", vec![call.clone()], Millis(0)),
            Message::tool(&call, "noon", petasos_core::transcript::EffectState::Known, Millis(0)),
            Message::assistant("Noon.", Millis(0)),
            Message::notice("a note", Millis(0)),
        ]);
        let user = (Role::User, "what time is it");
        let answer = Role::Assistant;
        for (history, want) in [
            (history(&[user, (answer, "Noon.")]), true),
            (history(&[user, (answer, "Let me look.\n\nNoon.")]), true),
            (history(&[user, (answer, "Noon. ")]), true),
            (history(&[user]), false),
            (history(&[user, (answer, "One o'clock.")]), false),
            (history(&[user, (answer, "Noon."), (Role::User, "thanks")]), false),
            (history(&[]), false),
        ] {
            assert_eq!(matches_history(&stored, &history), want, "{history:?}");
        }
    }

    #[test]
    fn pictures_do_not_break_the_history_match() {
        let picture = || Picture { path: "/c/images/x/1.png".into(), mime: "image/png".into() };
        let mut question = Message::user("what is\nthis\n[photo: a]\n[photo: b]", Millis(0));
        question.pictures = vec![picture(), picture()];
        let stored = rows(vec![question, Message::assistant("A cat.", Millis(0))]);
        assert!(matches_history(
            &stored,
            &history(&[(Role::User, "what is\nthis"), (Role::Assistant, "A cat.")])
        ));
        assert!(!matches_history(&stored, &history(&[(Role::User, "what is"), (Role::Assistant, "A cat.")])));
    }
}
