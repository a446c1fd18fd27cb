//! The way in for every event: whose is it, was it here before, and then on disk in the queue of its instance.
//!
//! Owns nothing. The cursor moves when everything before it is on disk; what the platform repeats after a crash between
//! the two is known by its identity, which is in the transaction that appended it.

use std::collections::HashSet;
use std::sync::Arc;

use petasos_core::message::{Delivery, Inbound};
use petasos_core::session::session_key;
use petasos_core::{LinkId, Millis, Route, SessionKey, Source};
use petasos_gateway::Commit;
use petasos_gateway::shell::{Kept, Taker};
use petasos_gateway::{Error, clock};
use petasos_platforms::{Adapter, Post, Posted, Unreadable};
use petasos_relay::session::{Carries, Entry};
use petasos_relay::{Event, FromConnector, context};
use petasos_runtime::fault_injection::{Planted, planted};
use petasos_store::Unread;
use petasos_store::connector::{Arrival, Chat};
use tokio::sync::oneshot;

use crate::instance::Ask;
use crate::shell::Shell;
use crate::{belong, files, say, vault};

const LINKED: &str = "✅ Linked. From now on I pass on what you write to your agent.";
const UNLINKED: &str = "That code does not lead anywhere, or not any more. Ask your agent for a new one.";

#[derive(Debug, Clone)]
pub(crate) struct Intake(pub(crate) Arc<Shell>);

/// What is to become of one event.
enum Fate {
    For(String),
    Link(String),
    Known,
    Nobody,
}

impl Taker for Intake {
    async fn cursor(&self, link: LinkId) -> Result<Option<String>, Error> {
        self.0.db.read(move |reader| reader.cursor(&link)).await
    }

    async fn take(
        &self,
        link: LinkId,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<Kept, Error> {
        if planted(Planted::CursorBeforeQueue) {
            self.move_on(link.clone(), vec![], cursor.clone()).await?;
        }
        let mut kept = Kept { news: events.is_empty(), answered: Vec::with_capacity(events.len()) };
        let mut waiting = Vec::with_capacity(events.len());
        let mut here = HashSet::new();
        for event in events {
            let fate = match here.insert(event.dedup.clone()) {
                true => self.fate(&link, &event).await?,
                false => Fate::Known,
            };
            kept.news |= !matches!(fate, Fate::Known);
            kept.answered.push(!matches!(fate, Fate::Nobody));
            match fate {
                Fate::For(instance) => waiting.push(self.hand_on(&link, instance, event).await?),
                Fate::Link(code) => self.link(&link, event, code).await?,
                Fate::Nobody => tracing::debug!(%link, "nobody's message"),
                Fate::Known => {}
            }
        }
        for done in waiting {
            done.await.map_err(|_dropped| Error::Stopping)??;
        }
        self.move_on(link, unreadable, cursor).await?;
        Ok(kept)
    }

    /// No platform of a connector posts.
    fn post(&self, _platform: &'static str, _account: &str, post: Post) {
        let _ = post.done.send(Posted::NotTaken);
    }

    /// Nor does any of them run a conversation.
    fn interrupt(&self, _key: SessionKey) {}

    async fn came_up(&mut self, _adapter: &Arc<Adapter>) {}
}

impl Intake {
    async fn fate(&self, link: &LinkId, event: &Inbound) -> Result<Fate, Error> {
        let (shell, link, dedup) = (self.0.clone(), link.clone(), event.dedup.clone());
        let source = event.source.clone();
        let code = belong::link_code(&source, &event.text).map(str::to_owned);
        let fate = self.0.db.read(move |reader| {
            if reader.was_seen(&link, &dedup)? {
                return Ok(Fate::Known);
            }
            if let Some(code) = code {
                return Ok(Fate::Link(code));
            }
            Ok(belong::instance_for(reader, &shell, &source)?.map_or(Fate::Nobody, Fate::For))
        });
        fate.await
    }

    /// The receiver hears when it is on disk.
    async fn hand_on(
        &self,
        link: &LinkId,
        instance: String,
        mut event: Inbound,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let now = clock::now();
        // A gateway that lost its deduplication rows needs a time to recognise a redelivery; some platforms send none.
        event.sent_at = event.sent_at.or(Some(now));
        let back = Route::back_to(&event.source, Delivery::Push);
        let chat = self.chat(&event.source);
        vault::lock_up(&self.0, &instance, &chat.session_key, &mut event, now).await?;
        let files = files::offer(&self.0, &instance, &event, now).await?;
        let (payload, size) = told(Event::tell(&event, |file| files.get(&file.reference).cloned()));
        let platform = event.source.platform.as_str().to_owned();
        let entry = Entry { id: ulid(now), platform, carries: Carries::Inbound, size, at: now, strikes: 0 };
        let arrival = Arrival { entry, payload, seen: (link.clone(), event.dedup), chat: Some(chat) };
        let (done, answer) = oneshot::channel();
        let ask = Ask::Arrived { arrival: Box::new(arrival), back: Some(back), done };
        self.0.instances.ask(&self.0, &instance, ask).await?;
        Ok(answer)
    }

    fn chat(&self, source: &Source) -> Chat {
        Chat {
            platform: source.platform,
            chat_id: Route::back_to(source, Delivery::Push).chat_id,
            session_key: session_key(source, &self.0.keys).as_str().to_owned(),
            thread_id: source.thread_id.clone(),
            scope_id: source.scope_id.clone(),
            chat_type: source.chat_type.as_str().to_owned(),
            name: source.chat_name.clone(),
        }
    }

    /// The code is used up, the author bound and the message known in one commit.
    async fn link(&self, link: &LinkId, event: Inbound, code: String) -> Result<(), Error> {
        let back = Route::back_to(&event.source, Delivery::Push);
        let (link, now) = (link.clone(), clock::now());
        let linked = self.0.db.write(Commit::Connector, move |tx| {
            tx.see(&link, &event.dedup, now)?;
            belong::link(tx, &event.source, &code, now)
        });
        let text = if linked.await? { LINKED } else { UNLINKED };
        say::say(&self.0, back, text);
        Ok(())
    }

    async fn move_on(
        &self,
        link: LinkId,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<(), Error> {
        if cursor.is_none() && unreadable.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        let moved = self.0.db.write(Commit::Connector, move |tx| {
            for Unreadable { id, why, raw, size } in unreadable {
                let unread =
                    Unread { id: 0, link: link.to_string(), event: id, why, size: size as u64, at: now };
                tx.keep_unreadable(&unread, &raw)?;
            }
            cursor.map_or(Ok(()), |cursor| tx.put_cursor(&link, &cursor))
        });
        moved.await
    }
}

/// As short as it has to be for a line. The size is that of its line.
fn told(mut event: serde_json::Value) -> (String, u64) {
    loop {
        let frame = FromConnector::Inbound { event: event.clone(), buffer: Some("0".repeat(26)) };
        match frame.line() {
            Ok(line) => return (event.to_string(), line.len() as u64),
            Err(_too_long) if context::trim(&mut event) => {}
            // Longer than any line: it is put aside by that.
            Err(_too_long) => {
                let text = event.to_string();
                let size = text.len() as u64;
                return (text, size.max(petasos_relay::LONGEST_WRITTEN as u64 + 1));
            }
        }
    }
}

/// Time, then chance, in 26 letters: unique for all times, and in the order in which they were made.
fn ulid(now: Millis) -> String {
    const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let chance = u128::from_be_bytes(clock::random()) >> 48;
    let number = (u128::from(now.0) << 80) | chance;
    (0..26).rev().map(|at| char::from(LETTERS[(number >> (5 * at)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_26_letters_and_sorts_by_time() {
        let (early, late) = (ulid(Millis(1_000)), ulid(Millis(1_001)));
        assert_eq!((early.len(), late.len()), (26, 26));
        assert!(early < late, "{early} {late}");
        assert_ne!(ulid(Millis(7)), ulid(Millis(7)));
        assert_eq!(
            ulid(Millis(1_469_918_176_385)).get(..10),
            Some("01ARYZ6S41"),
            "as others write that time"
        );
    }

    #[test]
    fn what_is_too_long_for_a_line_is_trimmed_and_else_said_to_be() {
        let long = "x".repeat(600_000);
        let (text, size) = told(serde_json::json!({"text": long, "context": [{"text": long}]}));
        assert!(!text.contains("context") && size < 1_000_000, "{size}");
        let (_, size) = told(serde_json::json!({ "text": "x".repeat(1_000_000) }));
        assert!(size > 1_000_000);
    }
}
