//! Inbound events: routing, deduplication, and the commit to the queue of an instance. The cursor moves when everything
//! before it is on disk; events repeated after a crash are recognised by their identity, which is in the same commit.

use std::collections::HashSet;
use std::sync::Arc;

use petasos_core::message::{Delivery, Inbound};
use petasos_core::session::session_key;
use petasos_core::{InstanceId, LinkId, Millis, Route, SessionKey, Source};
use petasos_gateway::shell::{AcceptedBatch, Db, LinkSink};
use petasos_gateway::{Commit, Error, clock};
use petasos_platforms::{Adapter, Post, PostOutcome, Unreadable};
use petasos_relay::session::{Carries, Entry};
use petasos_relay::{Event, FromConnector, context};
use petasos_runtime::fault_injection::{PlantedBug, planted};
use petasos_store::UnreadableEvent;
use petasos_store::connector::{Arrival, InstanceChat};
use tokio::sync::oneshot;

use super::routing::{self, RoutingRules};
use crate::adapters::Adapters;
use crate::http::files::MediaFiles;
use crate::instances::task::{InstanceCommand, Instances};
use crate::outbound::{notice, vault};

const LINKED_NOTICE: &str = "✅ Linked. From now on your messages go to your agent.";
const INVALID_CODE_NOTICE: &str = "That code is invalid or has expired. Ask your agent for a new one.";

#[derive(Debug, Clone)]
pub(crate) struct ConnectorSink {
    pub(crate) db: Db,
    pub(crate) adapters: Arc<Adapters>,
    pub(crate) rules: Arc<RoutingRules>,
    pub(crate) media: Arc<MediaFiles>,
    pub(crate) instances: Arc<Instances>,
}

enum Routing {
    Deliver(InstanceId),
    Link(String),
    Duplicate,
    Dropped,
}

impl LinkSink for ConnectorSink {
    async fn cursor(&self, link: LinkId) -> Result<Option<String>, Error> {
        self.db.read(move |reader| reader.cursor(&link)).await
    }

    async fn accept_batch(
        &self,
        link: LinkId,
        events: Vec<Inbound>,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<AcceptedBatch, Error> {
        if planted(PlantedBug::CursorBeforeQueue) {
            self.store_cursor(link.clone(), vec![], cursor.clone()).await?;
        }
        let mut accepted =
            AcceptedBatch { has_new: events.is_empty(), answered: Vec::with_capacity(events.len()) };
        let mut waiting = Vec::with_capacity(events.len());
        let mut seen = HashSet::new();
        for event in events {
            let routing = if seen.insert(event.dedup.clone()) {
                self.classify(&link, &event).await?
            } else {
                Routing::Duplicate
            };
            accepted.has_new |= !matches!(routing, Routing::Duplicate);
            accepted.answered.push(!matches!(routing, Routing::Dropped));
            match routing {
                Routing::Deliver(instance) => waiting.push(self.enqueue(&link, instance, event).await?),
                Routing::Link(code) => self.link(&link, event, code).await?,
                Routing::Dropped => tracing::debug!(%link, "event dropped: no instance"),
                Routing::Duplicate => {}
            }
        }
        for done in waiting {
            done.await.map_err(|_dropped| Error::Stopping)??;
        }
        self.store_cursor(link, unreadable, cursor).await?;
        Ok(accepted)
    }

    fn post(&self, _platform: &'static str, _account: &str, post: Post) {
        let _ = post.done.send(PostOutcome::NotStored);
    }

    fn interrupt(&self, _key: SessionKey) {}

    async fn came_up(&mut self, _adapter: &Arc<Adapter>) {}
}

impl ConnectorSink {
    async fn classify(&self, link: &LinkId, event: &Inbound) -> Result<Routing, Error> {
        let rules = self.rules.clone();
        let link = link.clone();
        let dedup = event.dedup.clone();
        let source = event.source.clone();
        let code = routing::link_code(&source, &event.text).map(str::to_owned);
        let routing = self.db.read(move |reader| {
            if reader.was_seen(&link, &dedup)? {
                return Ok(Routing::Duplicate);
            }
            if let Some(code) = code {
                return Ok(Routing::Link(code));
            }
            Ok(routing::instance_for(reader, &rules, &source)?.map_or(Routing::Dropped, Routing::Deliver))
        });
        routing.await
    }

    /// The receiver resolves when the event is on disk.
    async fn enqueue(
        &self,
        link: &LinkId,
        instance: InstanceId,
        mut event: Inbound,
    ) -> Result<oneshot::Receiver<Result<(), Error>>, Error> {
        let now = clock::now();
        // Lets a gateway that lost its deduplication rows recognise a redelivery; some platforms send no time.
        event.sent_at = event.sent_at.or(Some(now));
        let back = Route::to_source(&event.source, Delivery::Push);
        let chat = self.chat(&event.source);
        if let Some(adapter) = self.adapters.of(event.source.platform) {
            vault::seal(&self.db, adapter, (&instance, &chat), &mut event, now).await?;
        }
        let files = self.media.offer(&instance, &event, now).await?;
        let (payload, size) =
            encode_event(Event::to_value(&event, |file| files.get(&file.reference).cloned()));
        let platform = event.source.platform.as_str().to_owned();
        let entry =
            Entry { id: new_ulid(now), platform, carries: Carries::Inbound, size, at: now, strikes: 0 };
        let arrival = Arrival { entry, payload, seen: (link.clone(), event.dedup), chat: Some(chat) };
        let (done, answer) = oneshot::channel();
        let command = InstanceCommand::Arrived { arrival: Box::new(arrival), back: Some(back), done };
        self.instances.send(&instance, command).await?;
        Ok(answer)
    }

    fn chat(&self, source: &Source) -> InstanceChat {
        InstanceChat {
            platform: source.platform,
            chat_id: Route::to_source(source, Delivery::Push).chat_id,
            session_key: session_key(source, &self.rules.keys),
            thread_id: source.thread_id.clone(),
            scope_id: source.scope_id.clone(),
            chat_type: source.chat_type.as_str().to_owned(),
            name: source.chat_name.clone(),
        }
    }

    /// One commit redeems the code, binds the author and records the event.
    async fn link(&self, link: &LinkId, event: Inbound, code: String) -> Result<(), Error> {
        let back = Route::to_source(&event.source, Delivery::Push);
        let link = link.clone();
        let now = clock::now();
        let linked = self.db.write(Commit::Connector, move |tx| {
            tx.record_identity(&link, &event.dedup, now)?;
            routing::bind_author(tx, &event.source, &code, now)
        });
        let text = if linked.await? { LINKED_NOTICE } else { INVALID_CODE_NOTICE };
        notice::send(&self.adapters, back, text);
        Ok(())
    }

    async fn store_cursor(
        &self,
        link: LinkId,
        unreadable: Vec<Unreadable>,
        cursor: Option<String>,
    ) -> Result<(), Error> {
        if cursor.is_none() && unreadable.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        let stored = self.db.write(Commit::Connector, move |tx| {
            for Unreadable { id, why, raw, size } in unreadable {
                let record = UnreadableEvent {
                    id: 0,
                    link: link.to_string(),
                    event: id,
                    why,
                    size: size as u64,
                    at: now,
                };
                tx.record_unreadable(&record, &raw)?;
            }
            cursor.map_or(Ok(()), |cursor| tx.put_cursor(&link, &cursor))
        });
        stored.await
    }
}

/// Trims an event to the length of a line. Returns it and the size of its line.
fn encode_event(mut event: serde_json::Value) -> (String, u64) {
    loop {
        let frame = FromConnector::Inbound { event: event.clone(), buffer: Some("0".repeat(26)) };
        match frame.line() {
            Ok(line) => return (event.to_string(), line.len() as u64),
            Err(_too_long) if context::trim(&mut event) => {}
            // Longer than a line even when trimmed: dead-lettered for its size.
            Err(_too_long) => {
                let text = event.to_string();
                let size = text.len() as u64;
                return (text, size.max(petasos_relay::LONGEST_WRITTEN as u64 + 1));
            }
        }
    }
}

/// ULID: a unique id that sorts by time.
fn new_ulid(now: Millis) -> String {
    const LETTERS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    let chance = u128::from_be_bytes(clock::random()) >> 48;
    let number = (u128::from(now.0) << 80) | chance;
    (0..26).rev().map(|at| char::from(LETTERS[(number >> (5 * at)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ulids_have_26_letters_and_sort_by_time() {
        let early = new_ulid(Millis(1_000));
        let late = new_ulid(Millis(1_001));
        assert_eq!((early.len(), late.len()), (26, 26));
        assert!(early < late, "{early} {late}");
        assert_ne!(new_ulid(Millis(7)), new_ulid(Millis(7)));
        assert_eq!(
            new_ulid(Millis(1_469_918_176_385)).get(..10),
            Some("01ARYZ6S41"),
            "matches other implementations"
        );
    }

    #[test]
    fn trims_long_events_or_reports_their_size() {
        let long = "x".repeat(600_000);
        let (text, size) = encode_event(serde_json::json!({"text": long, "context": [{"text": long}]}));
        assert!(!text.contains("context") && size < 1_000_000, "{size}");
        let (_, size) = encode_event(serde_json::json!({ "text": "x".repeat(1_000_000) }));
        assert!(size > 1_000_000);
    }
}
