//! The news of one conversation, for as long as anybody listens; a gateway that restarts is found again.

use std::time::Duration;

use petasos_config::Home;
use petasos_core::transcript::Message;
use serde::Deserialize;
use tokio::sync::mpsc;

use crate::client::{Client, Error, Event};

/// A reader that is slow makes the gateway wait, never this queue grow.
const DEPTH: usize = 64;
const AGAIN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(super) enum News {
    /// A finished row of the transcript.
    Row(Box<Row>),
    /// `text` continues the running answer at byte `offset`; at 0 it replaces it.
    Live {
        step: (i64, u32),
        offset: usize,
        text: String,
    },
    Idle,
    /// Another transcript from here on.
    Session(String),
    Lost,
    Back,
}

#[derive(Debug, Deserialize)]
pub(super) struct Row {
    id: i64,
    #[serde(flatten)]
    pub(super) message: Message,
}

#[derive(Deserialize)]
struct Live {
    turn: i64,
    step: u32,
    offset: usize,
    text: String,
}

/// Dropping it ends the task behind it.
#[derive(Debug)]
pub(super) struct Feed {
    news: mpsc::Receiver<News>,
}

impl Feed {
    pub(super) fn follow(home: Home, client: Client, chat: String) -> Self {
        let (tell, news) = mpsc::channel(DEPTH);
        tokio::spawn(Follower { home, chat, after: 0, session: None, tell }.run(client));
        Self { news }
    }

    /// `None` only when the task behind it has ended.
    pub(super) async fn next(&mut self) -> Option<News> {
        self.news.recv().await
    }

    pub(super) fn try_next(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }
}

struct Follower {
    home: Home,
    chat: String,
    /// The last row that was told, and the transcript it is in.
    after: i64,
    session: Option<String>,
    tell: mpsc::Sender<News>,
}

impl Follower {
    async fn run(mut self, mut client: Client) {
        loop {
            // Every way the stream can end leads to the same place: come back for the rest.
            let _ = self.listen(&client).await;
            if self.tell.send(News::Lost).await.is_err() {
                return;
            }
            client = match self.found_again().await {
                Some(client) => client,
                None => return,
            };
            if self.tell.send(News::Back).await.is_err() {
                return;
            }
        }
    }

    async fn found_again(&self) -> Option<Client> {
        while !self.tell.is_closed() {
            tokio::time::sleep(AGAIN).await;
            if let Ok(Some(client)) = Client::connect(&self.home) {
                return Some(client);
            }
        }
        None
    }

    async fn listen(&mut self, client: &Client) -> Result<(), Error> {
        let mut events = client.events(&self.chat, self.after, self.session.as_deref()).await?;
        loop {
            let event = events.next().await?;
            let Some(news) = read(event) else { continue };
            match &news {
                News::Row(row) => self.after = row.id,
                News::Session(id) => self.enter(id),
                News::Live { .. } | News::Idle | News::Lost | News::Back => {}
            }
            if self.tell.send(news).await.is_err() {
                return Ok(());
            }
        }
    }

    fn enter(&mut self, id: &str) {
        if self.session.as_deref().is_some_and(|known| known != id) {
            self.after = 0;
        }
        self.session = Some(id.to_owned());
    }
}

/// `None` for what this terminal does not show.
fn read(event: Event) -> Option<News> {
    match event.name.as_str() {
        "row" => serde_json::from_value(event.data).ok().map(|row| News::Row(Box::new(row))),
        "live" => {
            let live: Live = serde_json::from_value(event.data).ok()?;
            Some(News::Live { step: (live.turn, live.step), offset: live.offset, text: live.text })
        }
        "idle" => Some(News::Idle),
        "session" => Some(News::Session(event.data["id"].as_str()?.to_owned())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn events_of_the_gateway_are_understood_and_others_skipped() {
        let event = |name: &str, data| read(Event { name: name.into(), data });
        let row = json!({"id": 4, "role": "assistant", "content": "hi", "at": 5});
        assert!(
            matches!(event("row", row), Some(News::Row(row)) if row.id == 4 && row.message.content == "hi")
        );
        let live = json!({"turn": 7, "step": 1, "offset": 2, "text": "x"});
        assert!(matches!(event("live", live), Some(News::Live { step: (7, 1), offset: 2, .. })));
        assert!(matches!(event("session", json!({"id": "s"})), Some(News::Session(id)) if id == "s"));
        assert!(event("queued", json!({"count": 1})).is_none());
        assert!(event("row", json!({"nonsense": true})).is_none());
    }
}
