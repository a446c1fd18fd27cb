//! One question and its answer: said once, whatever happens to the connection, then followed to its end.

use std::time::{Duration, Instant};

use petasos_core::Millis;
use petasos_core::transcript::Role;
use serde_json::{Value, json};

use super::feed::{Feed, News};
use super::screen::Screen;
use crate::client::{Client, Error};
use crate::failure::Failure;
use crate::life::Life;
use crate::print::{now, warn_of};

/// A notice may be the whole answer, or come before one; this long nothing else may follow.
const AFTER_NOTICE: Duration = Duration::from_millis(1000);
/// A notice without a turn (the queue is full) is the end of it after this.
const BEFORE_TURN: Duration = Duration::from_secs(3);
const AFTER_COMMAND: Duration = Duration::from_millis(250);
/// A conversation that slept finds its transcript within this.
const WAKING: Duration = Duration::from_millis(150);
const AGAIN: Duration = Duration::from_millis(300);
/// A gateway that is gone longer than this is not waited for.
const ABSENCE: Duration = Duration::from_secs(60);
/// How the gateway marks an answer that somebody stopped.
const STOPPED: [&str; 2] = ["(stopped)", "(stopped before an answer)"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Answered,
    /// By somebody else, or by another message.
    Stopped,
    Interrupted,
}

#[derive(Debug)]
pub(super) struct Asker {
    client: Client,
    chat: String,
    feed: Feed,
    session: Option<String>,
    live: bool,
    /// When the last question was put: what was said before is not its answer.
    asked_at: Millis,
}

/// How far one question has come.
#[derive(Debug, Default)]
struct Progress {
    /// The id of the question; what another turn still says before its row is not our answer.
    id: String,
    begun: bool,
    answered: bool,
    noticed: bool,
    /// The person does not want the answer any more.
    interrupted: bool,
    stopped: bool,
    /// Since when nobody is there.
    lost: Option<Instant>,
}

impl Asker {
    pub(super) fn new(client: Client, chat: String, feed: Feed) -> Self {
        Self { client, chat, feed, session: None, live: false, asked_at: Millis(0) }
    }

    pub(super) fn session(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// Reads what was said before. The first news that is not a row says that this was all, except that a
    /// conversation which has just been woken needs a moment to find its transcript.
    pub(super) async fn catch_up(&mut self, screen: &mut Screen) {
        let mut earlier = Vec::new();
        loop {
            match tokio::time::timeout(WAKING, self.feed.next()).await {
                Ok(Some(News::Row(row))) => earlier.push(row),
                Ok(Some(News::Session(id))) => self.session = Some(id),
                Ok(Some(News::Idle)) if self.session.is_none() => {}
                Ok(Some(other)) => {
                    screen.earlier(&earlier);
                    return self.take(other, screen, &mut Progress::default());
                }
                Ok(None) | Err(_) => return screen.earlier(&earlier),
            }
        }
    }

    /// `None` only when nothing can come any more.
    pub(super) async fn news(&mut self) -> Option<News> {
        self.feed.next().await
    }

    /// What came while nobody asked.
    fn drain(&mut self, screen: &mut Screen) {
        while let Some(news) = self.feed.try_next() {
            self.take(news, screen, &mut Progress::default());
        }
        screen.settle();
    }

    /// Asks, and follows the answer to its end.
    pub(super) async fn ask(&mut self, text: &str, screen: &mut Screen) -> Result<Outcome, Failure> {
        self.drain(screen);
        self.asked_at = now();
        let id = self.say(text).await?;
        screen.begin();
        screen.asked(&id, text);
        let command = text.starts_with('/');
        let mut progress = Progress { id, begun: command, ..Progress::default() };
        loop {
            let quiet = progress.noticed && !self.live;
            let patience = match (command, progress.begun) {
                (true, _) => AFTER_COMMAND,
                (false, true) => AFTER_NOTICE,
                (false, false) => BEFORE_TURN,
            };
            tokio::select! {
                news = self.feed.next() => match news {
                    Some(news) => self.take(news, screen, &mut progress),
                    None => return Err(Error::Gone.into()),
                },
                () = tokio::time::sleep(patience), if quiet => progress.answered = true,
                () = absence(progress.lost), if progress.lost.is_some() => {
                    screen.settle();
                    return Err(gone().next("petasos run starts it again; the question is kept, and answered then"));
                }
                interrupt = tokio::signal::ctrl_c() => {
                    if interrupt.is_err() || progress.interrupted {
                        screen.settle();
                        return Ok(Outcome::Interrupted);
                    }
                    progress.interrupted = true;
                    if let Err(failure) = self.stop().await {
                        warn_of!("the answer could not be stopped: {failure}");
                    }
                }
            }
            if !self.live && progress.answered {
                screen.settle();
                return Ok(match (progress.interrupted, progress.stopped) {
                    (true, _) => Outcome::Interrupted,
                    (false, true) => Outcome::Stopped,
                    (false, false) => Outcome::Answered,
                });
            }
        }
    }

    fn take(&mut self, news: News, screen: &mut Screen, progress: &mut Progress) {
        match &news {
            News::Row(row) if row.message.at < self.asked_at => return,
            News::Row(row) => match row.message.role {
                Role::User if row.message.platform_message_id.as_ref() == Some(&progress.id) => {
                    progress.begun = true;
                    progress.noticed = false;
                    screen.begin();
                }
                Role::Assistant if row.message.tool_calls.is_empty() && progress.begun => {
                    progress.answered = true;
                    progress.stopped = STOPPED.iter().any(|mark| row.message.content.ends_with(mark));
                }
                Role::Notice => progress.noticed = true,
                Role::Assistant | Role::User | Role::Tool | Role::Summary => {}
            },
            News::Live { .. } => self.live = true,
            News::Idle => {
                // A turn that was interrupted may leave no answer behind.
                progress.answered |=
                    self.live && progress.begun && (progress.interrupted || progress.noticed);
                self.live = false;
            }
            News::Session(id) => self.session = Some(id.clone()),
            News::Lost => {
                progress.lost = Some(Instant::now());
                self.live = false;
                warn_of!("the gateway is gone; waiting up to {} s for it to come back", ABSENCE.as_secs());
            }
            News::Back => {
                progress.lost = None;
                warn_of!("connected again");
            }
        }
        screen.show(news);
    }

    /// The same id each time: a message whose acknowledgement was lost is not said twice. Gives back the id.
    pub(super) async fn say(&mut self, text: &str) -> Result<String, Failure> {
        let id: String = petasos_gateway::clock::secret().chars().take(32).collect();
        let path = format!("/api/chats/terminal/{}/messages", self.chat);
        let body = json!({ "text": text, "id": id });
        let since = Instant::now();
        loop {
            match self.client.post::<Value>(&path, &body).await {
                Ok(_) => return Ok(id),
                Err(Error::Gone) if since.elapsed() < ABSENCE => tokio::select! {
                    () = tokio::time::sleep(AGAIN) => {}
                    _ = tokio::signal::ctrl_c() => return Err(Error::Gone.into()),
                },
                Err(error) => return Err(self.refused(error).await),
            }
        }
    }

    /// A door that is closed can perhaps be opened.
    async fn refused(&self, error: Error) -> Failure {
        let closed = error.fact("code").and_then(Value::as_str) == Some("gateway_draining");
        let failure = Failure::from(error);
        if !closed {
            return failure;
        }
        let life: Result<Life, _> = self.client.get("/api/gateway/drain").await;
        failure.next(match life.is_ok_and(|life| !life.is_leaving()) {
            true => "petasos drain status shows who asked for the drain; petasos resume ends it",
            false => "petasos status shows when it is back; a gateway that stopped is started by petasos run",
        })
    }

    pub(super) async fn stop(&self) -> Result<(), Failure> {
        let path = format!("/api/chats/terminal/{}/stop", self.chat);
        self.client.post::<Value>(&path, &json!({})).await?;
        Ok(())
    }
}

async fn absence(since: Option<Instant>) {
    let waited = since.map(|since| since.elapsed()).unwrap_or_default();
    tokio::time::sleep(ABSENCE.saturating_sub(waited)).await;
}

fn gone() -> Failure {
    Failure::new(format!("the gateway has been gone for {} s", ABSENCE.as_secs()))
}
