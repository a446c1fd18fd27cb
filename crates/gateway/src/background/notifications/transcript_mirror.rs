//! Appends messages sent from elsewhere to the transcript of their chat.

use petasos_core::session::Entry;
use petasos_core::target::ChatAddress;
use petasos_core::transcript::Message;
use petasos_core::{Millis, SessionKey};
use petasos_store::{Error as StoreError, Reads, Tx};

use crate::background::notifications::MirrorMode;

/// Runs in the transaction that enqueues the message. Skips a session with an open turn, because a row between a tool
/// call and its result would break the transcript. Returns the session that was appended to.
pub(crate) fn append(
    tx: &Tx<'_>,
    place: &ChatAddress,
    text: &str,
    mirror: MirrorMode,
    now: Millis,
) -> Result<Option<SessionKey>, StoreError> {
    let message = match mirror {
        MirrorMode::No => return Ok(None),
        MirrorMode::Assistant => Message::assistant(text, now),
        MirrorMode::User => Message::user(text, now),
    };
    let entries = tx.entries_of_chat(place.platform, &place.chat_id)?;
    let Some(entry) = sole_session(&entries, place) else { return Ok(None) };
    if is_busy(tx, entry)? {
        tracing::debug!(session = %entry.session_key, "not mirrored: a turn is running");
        return Ok(None);
    }
    tx.append(&entry.session_id, &message)?;
    Ok(Some(entry.session_key.clone()))
}

/// Whether the transcript of a chat can be appended to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SessionActivity {
    Idle,
    Busy,
    None,
}

pub(crate) fn session_activity(reads: &Reads, place: &ChatAddress) -> Result<SessionActivity, StoreError> {
    let entries = reads.entries_of_chat(place.platform, &place.chat_id)?;
    let Some(entry) = sole_session(&entries, place) else { return Ok(SessionActivity::None) };
    Ok(if is_busy(reads, entry)? { SessionActivity::Busy } else { SessionActivity::Idle })
}

fn is_busy(reads: &Reads, entry: &Entry) -> Result<bool, StoreError> {
    Ok(reads.open_turn_of(&entry.session_key)?.is_some())
}

/// The only session in a chat. `None` if several people have one each. `entries`: newest first.
fn sole_session<'a>(entries: &'a [Entry], place: &ChatAddress) -> Option<&'a Entry> {
    let here = |entry: &&Entry| entry.origin.as_ref().and_then(ChatAddress::of).as_ref() == Some(place);
    let person = |entry: &'a Entry| entry.origin.as_ref().and_then(|origin| origin.user_id.as_deref());
    let mut found = entries.iter().filter(here);
    let latest = found.next()?;
    found.all(|other| person(other) == person(latest)).then_some(latest)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(key: &str, user: &str, thread: Option<&str>) -> Entry {
        serde_json::from_value(json!({
            "session_key": key, "session_id": "20261115_181205_13f6a7af",
            "created_at": "2026-11-15T18:12:05", "updated_at": "2026-11-15T18:12:05",
            "origin": { "platform": "telegram", "chat_id": "-5", "user_id": user, "thread_id": thread },
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(entries: &[Entry], thread: Option<&str>, want: Option<&str>) {
        let platform = petasos_core::Platform::parse("telegram").unwrap();
        let place = ChatAddress { platform, chat_id: "-5".into(), thread_id: thread.map(Into::into) };
        assert_eq!(sole_session(entries, &place).map(|it| it.session_key.as_str()), want);
    }

    #[test]
    fn finds_session_of_chat_only_if_one_person_uses_it() {
        let a = entry("agent:main:telegram:group:-5:1", "1", None);
        let b = entry("agent:main:telegram:group:-5:2", "2", None);
        let threaded = entry("agent:main:telegram:group:-5:7:1", "1", Some("7"));
        check(&[a.clone(), threaded.clone()], None, Some("agent:main:telegram:group:-5:1"));
        check(&[a.clone(), threaded.clone()], Some("7"), Some("agent:main:telegram:group:-5:7:1"));
        check(&[a, b, threaded.clone()], None, None);
        check(&[threaded], None, None);
    }
}
