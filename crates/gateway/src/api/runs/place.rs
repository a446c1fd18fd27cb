//! Which transcript a run goes into. Decided in the transaction that accepts it.
//!
//! A conversation has a key, by which its messages are kept in order, and a transcript. Programs name transcripts:
//! the one they name is the one they get. A program that names none tells the whole conversation each time; as long
//! as what it tells is what is stored, the stored one goes on, and otherwise a new one begins with what was told.

use petasos_core::ids::RowId;
use petasos_core::session::{Entry, KeyOptions};
use petasos_core::transcript::{Message, Role};
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use petasos_store::{Error as StoreError, RowState, RunRow, Said, Tx, local_time};

use super::bound::Bound;
use super::{Told, Wish};
use crate::clock;
use crate::lifecycle::config::Settings;

/// Where a run belongs, in its client's words.
#[derive(Debug, Clone)]
pub enum Place {
    /// This transcript; it begins if nobody knows it.
    Session(String),
    /// This transcript, if it is known.
    Known(String),
    /// A conversation that is told in full each time. `name` stays the same as long as its beginning does.
    Told { name: String, history: Vec<Told> },
    /// A conversation with a name of the client's; it begins if nobody knows it.
    Named(String),
    /// Where this run left off.
    After(String),
}

/// What goes into the decision besides the wish.
pub(super) struct Terms<'a> {
    pub(super) settings: &'a Settings,
    pub(super) keys: &'a KeyOptions,
    pub(super) hint: &'a str,
    pub(super) owner: &'a str,
    /// It may look at conversations that are not its own.
    pub(super) sees_all: bool,
    pub(super) run: &'a str,
}

impl Terms<'_> {
    fn may_enter(&self, tx: &Tx<'_>, id: &SessionId) -> Result<bool, StoreError> {
        let is_own = |from: &Source| {
            from.platform == Platform::API_SERVER && from.user_name.as_deref() == Some(self.owner)
        };
        Ok(self.sees_all || tx.session(id)?.is_none() || tx.session_origin(id)?.as_ref().is_some_and(is_own))
    }
}

pub(super) struct Placed {
    pub(super) bound: Bound,
    pub(super) key: SessionKey,
    pub(super) session: SessionId,
}

/// Rows of a conversation that are compared with what is told; a longer one begins anew.
const COMPARED: usize = 4000;

/// `None`: there is no such transcript, or no such run, or it is somebody else's. What the wish does not say is taken from
/// the run before.
pub(super) fn place(
    tx: &Tx<'_>,
    terms: &Terms<'_>,
    place: &Place,
    wish: &mut Wish,
    now: Millis,
) -> Result<Option<Placed>, StoreError> {
    match place {
        Place::Session(id) => enter(tx, terms, &SessionId(id.clone()), now),
        Place::Known(id) => {
            let id = SessionId(id.clone());
            if tx.session(&id)?.is_none() {
                return Ok(None);
            }
            enter(tx, terms, &id, now)
        }
        Place::Told { name, history } => told(tx, terms, name, history, wish, now),
        Place::Named(name) => {
            let key = Bound::new(name, terms.owner, terms.run).key(terms.keys);
            let session = tx.bound(&key)?.unwrap_or_else(|| SessionId(name.clone()));
            carry_over(tx.last_run(&session)?.map(|run| run.wish), wish);
            enter(tx, terms, &session, now)
        }
        Place::After(id) => {
            let before = tx.run(id)?.filter(|run| run.owner == terms.owner && !run.hidden);
            let Some(before) = before else { return Ok(None) };
            if !still_there(tx, &before)? {
                return Ok(None);
            }
            carry_over(Some(before.wish), wish);
            match before.last_row {
                Some(last) if tx.last_row(&before.session)? != Some(last) => {
                    branch(tx, terms, &before.session, last, now).map(Some)
                }
                Some(_) | None => enter(tx, terms, &before.session, now),
            }
        }
    }
}

/// Whether the transcript that a run ended in is in the database. Another one may have the same id by now.
fn still_there(tx: &Tx<'_>, run: &RunRow) -> Result<bool, StoreError> {
    let Some(last) = run.last_row else { return Ok(tx.session(&run.session)?.is_some()) };
    let found = tx.rows_after(&run.session, RowId(last.0 - 1), 1)?;
    Ok(found.first().is_some_and(|row| row.id == last) && tx.session(&run.session)?.is_some())
}

fn carry_over(before: Option<String>, wish: &mut Wish) {
    if wish.instructions.is_none() {
        wish.instructions = before.and_then(|text| Wish::read(&text)).and_then(|before| before.instructions);
    }
}

fn told(
    tx: &Tx<'_>,
    terms: &Terms<'_>,
    name: &str,
    history: &[Told],
    wish: &mut Wish,
    now: Millis,
) -> Result<Option<Placed>, StoreError> {
    let key = Bound::new(name, terms.owner, terms.run).key(terms.keys);
    let current = tx.bound(&key)?;
    if tx.is_busy(&key)? {
        // Somebody else tells a conversation with the same beginning at this moment.
        history.clone_into(&mut wish.history);
        return enter(tx, terms, &fresh(name), now);
    }
    let Some(current) = current else {
        history.clone_into(&mut wish.history);
        return enter(tx, terms, &SessionId(name.to_owned()), now);
    };
    if continues(&tx.rows_after(&current, RowId(0), COMPARED)?, history) {
        return enter(tx, terms, &current, now);
    }
    history.clone_into(&mut wish.history);
    let bound = Bound::new(name, terms.owner, terms.run);
    begin(tx, terms, bound, key, fresh(name), None, now).map(Some)
}

/// Goes on with this transcript, or begins it. `None`: it is somebody else's.
fn enter(tx: &Tx<'_>, terms: &Terms<'_>, id: &SessionId, now: Millis) -> Result<Option<Placed>, StoreError> {
    if !terms.may_enter(tx, id)? {
        return Ok(None);
    }
    let bound = Bound::new(id.as_str(), terms.owner, terms.run);
    let Some(row) = tx.session(id)? else {
        let key = bound.key(terms.keys);
        return begin(tx, terms, bound, key, id.clone(), None, now).map(Some);
    };
    if row.ended.is_some() {
        tx.reopen_session(id)?;
    }
    let home = tx.entry(&row.key)?.filter(|entry| entry.session_id == *id && !entry.suspended);
    let key = match home {
        Some(_) => row.key,
        // Its conversation has moved on without it.
        None => {
            let key = bound.key(terms.keys);
            tx.bind_session(
                &Entry::new(key.clone(), id.clone(), Some(bound.source().clone()), local_time(now)),
                now,
            )?;
            key
        }
    };
    Ok(Some(Placed { bound, key, session: id.clone() }))
}

/// A new transcript with what another one says up to a row.
fn branch(
    tx: &Tx<'_>,
    terms: &Terms<'_>,
    from: &SessionId,
    through: RowId,
    now: Millis,
) -> Result<Placed, StoreError> {
    let id = fresh("api");
    let bound = Bound::new(id.as_str(), terms.owner, terms.run);
    let key = bound.key(terms.keys);
    let placed = begin(tx, terms, bound, key, id.clone(), Some(from), now)?;
    tx.copy_rows(from, &id, through)?;
    Ok(placed)
}

pub(super) fn begin(
    tx: &Tx<'_>,
    terms: &Terms<'_>,
    bound: Bound,
    key: SessionKey,
    id: SessionId,
    parent: Option<&SessionId>,
    now: Millis,
) -> Result<Placed, StoreError> {
    tx.create_session(&id, &key, Some(bound.source()), parent, now)?;
    tx.put_system_prompt(&id, &terms.settings.system_prompt(terms.hint, None, now))?;
    tx.bind_session(
        &Entry::new(key.clone(), id.clone(), Some(bound.source().clone()), local_time(now)),
        now,
    )?;
    Ok(Placed { bound, key, session: id })
}

pub(super) fn fresh(name: &str) -> SessionId {
    SessionId(format!("{name}-{}", super::hex::<4>(&clock::random())))
}

/// Whether what is stored is what was told.
fn continues(rows: &[Said], history: &[Told]) -> bool {
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
        && stored
            .iter()
            .zip(history)
            .all(|((role, texts), told)| *role == told.role && says(texts, &told.text))
}

/// Pictures are lines below what was said; whoever tells it again tells them otherwise.
fn without_pictures(message: &Message) -> &str {
    let lines = message.content.rmatch_indices('\n').nth(message.pictures.len().saturating_sub(1));
    match lines {
        Some((end, _)) if !message.pictures.is_empty() => &message.content[..end],
        Some(_) | None => &message.content,
    }
}

/// What was said around tools reaches a client as the last of it, or as all of it.
fn says(texts: &[&str], told: &str) -> bool {
    let told = told.trim();
    let spoken: Vec<_> = texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect();
    spoken.last().copied().unwrap_or_default() == told || spoken.join("\n\n") == told
}

#[cfg(test)]
mod tests {
    use petasos_core::transcript::{Picture, ToolCall};

    use super::*;

    fn rows(messages: Vec<Message>) -> Vec<Said> {
        let rows = messages.into_iter().enumerate();
        rows.map(|(at, message)| Said { id: RowId(at as i64), message, state: RowState::Active }).collect()
    }

    fn told(said: &[(Role, &str)]) -> Vec<Told> {
        said.iter().map(|(role, text)| Told { role: *role, text: (*text).to_owned() }).collect()
    }

    #[test]
    fn a_conversation_goes_on_while_it_is_told_as_it_was() {
        let call = ToolCall { id: "1".into(), name: "clock".into(), arguments: "{}".into() };
        let stored = rows(vec![
            Message::user("what time is it", Millis(0)),
            Message::asking("Let me look.", vec![call.clone()], Millis(0)),
            Message::tool(&call, "noon", petasos_core::transcript::EffectState::Known, Millis(0)),
            Message::assistant("Noon.", Millis(0)),
            Message::notice("a note", Millis(0)),
        ]);
        let (user, answer) = ((Role::User, "what time is it"), Role::Assistant);
        for (history, want) in [
            (told(&[user, (answer, "Noon.")]), true),
            (told(&[user, (answer, "Let me look.\n\nNoon.")]), true),
            (told(&[user, (answer, "Noon. ")]), true),
            (told(&[user]), false),
            (told(&[user, (answer, "One o'clock.")]), false),
            (told(&[user, (answer, "Noon."), (Role::User, "thanks")]), false),
            (told(&[]), false),
        ] {
            assert_eq!(continues(&stored, &history), want, "{history:?}");
        }
    }

    #[test]
    fn a_picture_that_was_shown_does_not_begin_another_conversation() {
        let picture = || Picture { path: "/c/images/x/1.png".into(), mime: "image/png".into() };
        let mut question = Message::user("what is\nthis\n[photo: a]\n[photo: b]", Millis(0));
        question.pictures = vec![picture(), picture()];
        let stored = rows(vec![question, Message::assistant("A cat.", Millis(0))]);
        assert!(continues(&stored, &told(&[(Role::User, "what is\nthis"), (Role::Assistant, "A cat.")])));
        assert!(!continues(&stored, &told(&[(Role::User, "what is"), (Role::Assistant, "A cat.")])));
    }
}
