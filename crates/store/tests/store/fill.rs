//! Quickly fills a database with many sessions. Also used by the benchmarks.

use petasos_core::message::ChatType;
use petasos_core::session::Entry;
use petasos_core::transcript::Message;
use petasos_core::{Millis, Platform, SessionId, SessionKey, Source};
use petasos_store::{Result, Store, Tx, local_time};

/// Sessions per transaction.
const BATCH: usize = 500;
/// Time between sessions, in milliseconds.
const APART: u64 = 1000;

/// Creates `chats` Telegram sessions, numbered from `first`, with `messages` messages each; the last was used at `latest`.
pub(crate) fn fill(
    store: &mut Store,
    first: usize,
    chats: usize,
    messages: usize,
    latest: Millis,
) -> Result<()> {
    for batch in (0..chats).step_by(BATCH) {
        store.write(|tx| {
            for number in batch..chats.min(batch + BATCH) {
                let age = (chats - number) as u64 * APART;
                conversation(tx, first + number, messages, Millis(latest.0.saturating_sub(age)))?;
            }
            Ok(())
        })?;
    }
    store.checkpoint_truncate()
}

fn conversation(tx: &Tx<'_>, number: usize, messages: usize, at: Millis) -> Result<()> {
    let platform = Platform::all().into_iter().find(|it| it.as_str() == "telegram");
    let source = platform.map(|platform| Source {
        chat_name: Some(format!("chat number {number}")),
        user_id: Some(number.to_string()),
        ..Source::new(platform, ChatType::Dm, number.to_string())
    });
    let key = SessionKey(format!("agent:main:telegram:dm:{number}"));
    let id = SessionId(format!("20261101_000000_{number:08x}"));
    tx.create_session(&id, &key, source.as_ref(), None, at)?;
    tx.put_entry(&Entry::new(key, id.clone(), source, local_time(at)))?;
    for message in 0..messages {
        let text =
            format!("message {message} of conversation {number}, with some words that can be searched for");
        let row = if message % 2 == 0 { Message::user(text, at) } else { Message::assistant(text, at) };
        tx.append(&id, &row)?;
    }
    Ok(())
}
