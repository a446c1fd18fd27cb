//! What was said in a chat from elsewhere becomes part of the conversation there, so that the agent knows it.

use petasos_core::session::Entry;
use petasos_core::target::Place;
use petasos_core::transcript::Message;
use petasos_core::{Millis, SessionKey};
use petasos_store::{Error as StoreError, Reads, Tx};

use crate::background::notifications::Mirror;

/// In the transaction that owes it. A conversation whose turn is open is left alone: a row between a tool call and its
/// result would be taken for part of neither. Gives the conversation that has it.
pub(crate) fn append(
    tx: &Tx<'_>,
    place: &Place,
    text: &str,
    mirror: Mirror,
    now: Millis,
) -> Result<Option<SessionKey>, StoreError> {
    let message = match mirror {
        Mirror::No => return Ok(None),
        Mirror::Own => Message::assistant(text, now),
        Mirror::Brief => Message::user(text, now),
    };
    let entries = tx.entries_at(place.platform, &place.chat_id)?;
    let Some(entry) = conversation(&entries, place) else { return Ok(None) };
    if is_busy(tx, entry)? {
        tracing::debug!(session = %entry.session_key, "not mirrored: a turn is running there");
        return Ok(None);
    }
    tx.append(&entry.session_id, &message)?;
    Ok(Some(entry.session_key.clone()))
}

/// Whether something could be appended in a place now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Quiet,
    /// A turn is running there.
    Busy,
    /// There is no conversation.
    None,
}

pub(crate) fn standing(reads: &Reads, place: &Place) -> Result<Standing, StoreError> {
    let entries = reads.entries_at(place.platform, &place.chat_id)?;
    let Some(entry) = conversation(&entries, place) else { return Ok(Standing::None) };
    Ok(if is_busy(reads, entry)? { Standing::Busy } else { Standing::Quiet })
}

fn is_busy(reads: &Reads, entry: &Entry) -> Result<bool, StoreError> {
    Ok(reads.open_turn_of(&entry.session_key)?.is_some())
}

/// The one conversation in a place; of several people there, nobody's. `entries`: the latest first.
fn conversation<'a>(entries: &'a [Entry], place: &Place) -> Option<&'a Entry> {
    let here = |entry: &&Entry| entry.origin.as_ref().and_then(Place::of).as_ref() == Some(place);
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
        let place = Place { platform, chat_id: "-5".into(), thread_id: thread.map(Into::into) };
        assert_eq!(conversation(entries, &place).map(|it| it.session_key.as_str()), want);
    }

    #[test]
    fn a_place_with_one_conversation_has_it_and_one_with_several_people_has_none() {
        let (a, b) = (
            entry("agent:main:telegram:group:-5:1", "1", None),
            entry("agent:main:telegram:group:-5:2", "2", None),
        );
        let threaded = entry("agent:main:telegram:group:-5:7:1", "1", Some("7"));
        check(&[a.clone(), threaded.clone()], None, Some("agent:main:telegram:group:-5:1"));
        check(&[a.clone(), threaded.clone()], Some("7"), Some("agent:main:telegram:group:-5:7:1"));
        check(&[a, b, threaded.clone()], None, None);
        check(&[threaded], None, None);
    }
}
