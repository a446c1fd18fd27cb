//! The event stream of one conversation. Reconnects when the gateway restarts.

use std::time::Duration;

use petasos_config::Home;
use petasos_core::transcript::Message;
use petasos_runtime::clock;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::client::{Client, Error, Event};

/// Bounded: a slow reader makes the gateway wait.
const QUEUE_CAPACITY: usize = 64;
const RETRY_DELAY: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) enum FeedEvent {
    Row(Box<FeedRow>),
    /// `text` continues the streamed answer at byte `offset`; at 0 it replaces it.
    Live {
        step: (i64, u32),
        offset: usize,
        text: String,
    },
    Idle,
    Session(String),
    Disconnected,
    Reconnected,
}

#[derive(Debug, Deserialize)]
pub(super) struct FeedRow {
    id: i64,
    #[serde(flatten)]
    pub(super) message: Message,
}

#[derive(Deserialize)]
struct LiveText {
    turn: i64,
    step: u32,
    offset: usize,
    text: String,
}

#[derive(Debug)]
pub(super) struct Feed {
    events: mpsc::Receiver<FeedEvent>,
}

impl Feed {
    pub(super) fn follow(home: Home, client: Client, chat: String) -> Self {
        let (sender, events) = mpsc::channel(QUEUE_CAPACITY);
        petasos_runtime::spawn(FeedTask { home, chat, after: 0, session: None, sender }.run(client));
        Self { events }
    }

    /// `None` once its task has ended.
    pub(super) async fn next(&mut self) -> Option<FeedEvent> {
        self.events.recv().await
    }

    pub(super) fn try_next(&mut self) -> Option<FeedEvent> {
        self.events.try_recv().ok()
    }
}

struct FeedTask {
    home: Home,
    chat: String,
    /// The last row that was forwarded, and its transcript.
    after: i64,
    session: Option<String>,
    sender: mpsc::Sender<FeedEvent>,
}

impl FeedTask {
    async fn run(mut self, mut client: Client) {
        loop {
            // However the stream ended, reconnect and continue after the last row.
            let _ = self.forward(&client).await;
            if self.sender.send(FeedEvent::Disconnected).await.is_err() {
                return;
            }
            client = match self.reconnect().await {
                Some(client) => client,
                None => return,
            };
            if self.sender.send(FeedEvent::Reconnected).await.is_err() {
                return;
            }
        }
    }

    async fn reconnect(&self) -> Option<Client> {
        while !self.sender.is_closed() {
            clock::sleep(RETRY_DELAY).await;
            if let Ok(Some(client)) = Client::connect(&self.home) {
                return Some(client);
            }
        }
        None
    }

    async fn forward(&mut self, client: &Client) -> Result<(), Error> {
        let mut events = client.events(&self.chat, self.after, self.session.as_deref()).await?;
        loop {
            let received = events.next().await?;
            let Some(event) = parse(received) else { continue };
            match &event {
                FeedEvent::Row(row) => self.after = row.id,
                FeedEvent::Session(id) => self.set_session(id),
                FeedEvent::Live { .. }
                | FeedEvent::Idle
                | FeedEvent::Disconnected
                | FeedEvent::Reconnected => {}
            }
            if self.sender.send(event).await.is_err() {
                return Ok(());
            }
        }
    }

    fn set_session(&mut self, id: &str) {
        if self.session.as_deref().is_some_and(|known| known != id) {
            self.after = 0;
        }
        self.session = Some(id.to_owned());
    }
}

/// `None` for events that the chat does not show.
fn parse(event: Event) -> Option<FeedEvent> {
    match event.name.as_str() {
        "row" => serde_json::from_value(event.data).ok().map(|row| FeedEvent::Row(Box::new(row))),
        "live" => {
            let live: LiveText = serde_json::from_value(event.data).ok()?;
            Some(FeedEvent::Live { step: (live.turn, live.step), offset: live.offset, text: live.text })
        }
        "idle" => Some(FeedEvent::Idle),
        "session" => Some(FeedEvent::Session(event.data["id"].as_str()?.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parses_known_events_and_skips_others() {
        let event = |name: &str, data| parse(Event { name: name.into(), data });
        let row = json!({"id": 4, "role": "assistant", "content": "hi", "at": 5});
        assert!(
            matches!(event("row", row), Some(FeedEvent::Row(row)) if row.id == 4 && row.message.content == "hi")
        );
        let live = json!({"turn": 7, "step": 1, "offset": 2, "text": "x"});
        assert!(matches!(event("live", live), Some(FeedEvent::Live { step: (7, 1), offset: 2, .. })));
        assert!(matches!(event("session", json!({"id": "s"})), Some(FeedEvent::Session(id)) if id == "s"));
        assert!(event("queued", json!({"count": 1})).is_none());
        assert!(event("row", json!({"nonsense": true})).is_none());
    }
}
