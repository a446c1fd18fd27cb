//! A simulated platform, as the gateway's adapter speaks to it.

use std::time::Duration;

use petasos_core::capability::{Capabilities, Dialect, ReplyTo};
use petasos_core::message::{Attachment, Delivery};
use petasos_core::rate_limit::PenaltyScope;
use petasos_core::text::Unit;
use petasos_core::{Fault, OutboxId, Platform, Reached, Route, TurnId};
use petasos_platforms::simulated::{BoxFuture, Error, SimulatedAdapter};
use petasos_platforms::{
    CommitError, Fetched, InboundSink, Kind, LinkHealth, Part, RateLimits, Receipt, SendOptions, download,
};
use petasos_runtime::clock;
use petasos_runtime::simulation::Process;
use tokio::sync::oneshot;

use super::state::{Outside, State};
use crate::outside::{About, Answer, Ask, Class, Failed, Trouble, tag_of};

/// Characters in one part. The relay adapter splits at no fewer than 256, whatever the descriptor says.
const fn part(class: Class) -> usize {
    match class {
        Class::Plain | Class::Keyed | Class::Pull => 80,
        Class::Relayed => 300,
    }
}

/// The longest a platform keeps us waiting for news, in milliseconds.
const POLL: u64 = 50_000;

/// All chats of one class.
#[derive(Debug)]
pub(crate) struct Simulated {
    outside: Outside,
    class: Class,
    capabilities: Capabilities,
    limits: RateLimits,
}

impl Simulated {
    pub(crate) fn new(outside: Outside, class: Class) -> Self {
        let sends_files = outside.lock().plan.file_odds > 0;
        let capabilities = Capabilities {
            label: class.platform().to_string(),
            delivery: Delivery::Push,
            max_message: part(class),
            max_edit: part(class),
            unit: Unit::Chars,
            split_hint: None,
            dialect: Dialect::Plain,
            edit: true,
            finalize: false,
            typing: false,
            reply_to: ReplyTo::Off,
            buttons: false,
            status_reactions: false,
            threads_are_separate: false,
            files: sends_files.then_some(1 << 20),
            async_delivery: true,
            pace: Duration::from_secs(1),
            longest_silence: Some(Duration::from_secs(120)),
            hint: String::new(),
        };
        Self { outside, class, capabilities, limits: RateLimits::new(class.platform()) }
    }

    /// One request: it arrives in the world even if we are gone by then.
    async fn ask(&self, to: &Route, ask: Ask, about: About) -> Result<Option<String>, Error> {
        let (answer, heard) = oneshot::channel();
        {
            let mut state = self.outside.lock();
            let Some(chat) = state.world.chat_of(self.class, &to.chat_id) else {
                return Err(refused(Kind::ChatNotFound));
            };
            let trouble = state.trouble();
            let (there, back) = state.travel(trouble);
            let outside = self.outside.clone();
            drop(state.simulation.spawn_in(Process::default(), async move {
                clock::sleep(Duration::from_millis(there)).await;
                let answered = outside.arrives(chat, &ask, about, trouble);
                clock::sleep(Duration::from_millis(back)).await;
                // The process of the request may be dead.
                let _ = answer.send(answered);
            }));
        }
        let answered = heard.await.unwrap_or_else(|_gone| Err(Failed::later(Reached::Maybe)));
        answered.map_err(|failed| self.failed(to, failed))
    }

    fn failed(&self, to: &Route, failed: Failed) -> Error {
        let Failed { fault, reached, dead_chat } = failed;
        if let Fault::Later { after: Some(after) } = fault {
            self.limits.record(to.platform, PenaltyScope::chat_of(to), after, "simulated");
        }
        let kind = match fault {
            _ if dead_chat => Kind::Forbidden,
            Fault::Later { after: Some(_) } => Kind::RateLimited,
            Fault::Later { after: None } => Kind::Transient,
            Fault::Refused | Fault::Fatal => Kind::BadFormat,
        };
        Error { fault, reached, kind, code: "simulated" }
    }

    async fn listen(
        &self,
        cursor: Option<String>,
        intake: &InboundSink,
        health: &mut (dyn FnMut(LinkHealth) + Send),
    ) {
        health(LinkHealth::Connecting);
        let mut offset: Option<u64> = cursor.and_then(|cursor| cursor.parse().ok());
        let mut first = true;
        loop {
            let wait = self.outside.lock().luck.between(5, 200);
            clock::sleep(Duration::from_millis(wait)).await;
            let Some((batch, wait)) = self.poll(offset, first).await else { return };
            let Some(batch) = batch else {
                clock::sleep(Duration::from_millis(wait)).await;
                if wait == POLL {
                    self.heard();
                    health(LinkHealth::Connected);
                }
                continue;
            };
            first = false;
            clock::sleep(Duration::from_millis(wait)).await;
            self.heard();
            health(LinkHealth::Connected);
            if batch.is_empty() {
                continue;
            }
            let highest = batch.iter().max().map(|number| *number as u64).max(offset);
            let events = {
                let state = self.outside.lock();
                batch.into_iter().map(|number| state.inbound(number)).collect()
            };
            match intake.commit(events, vec![], highest.map(|highest| highest.to_string())).await {
                // Only now: the offset moves with the next poll.
                Ok(()) => offset = highest,
                Err(CommitError::Refused | CommitError::Invalid) => {
                    let wait = self.outside.lock().luck.between(1_000, 5_000);
                    clock::sleep(Duration::from_millis(wait)).await;
                }
                Err(CommitError::Closed) => return,
            }
        }
    }

    fn heard(&self) {
        let mut state = self.outside.lock();
        let now = state.time();
        match self.class {
            // The gateway's link is alive by what the connector sends.
            Class::Relayed => state.relay().heard = Some(now),
            Class::Plain | Class::Keyed | Class::Pull => drop(state.heard.insert(self.class, now)),
        }
    }

    /// The next batch and its delay; no batch: nothing yet. `None`: the connection broke.
    async fn poll(&self, offset: Option<u64>, first: bool) -> Option<(Option<Vec<usize>>, u64)> {
        let broken = {
            let mut state = self.outside.lock();
            // Whatever lies before the offset, the platform forgets.
            if let Some(offset) = offset {
                state.world.acknowledged(self.class, offset);
                let kept = state.all_kept();
                drop(state);
                self.outside.check(kept);
                state = self.outside.lock();
            }
            let odds = state.plan.poll_odds;
            if state.fails(odds) {
                // Broken at once, or silent for ever: then only the gateway's own watch ends it.
                Some(state.luck.chance(700).then(|| state.luck.between(10, 40_000)))
            } else {
                None
            }
        };
        match broken {
            Some(Some(wait)) => {
                clock::sleep(Duration::from_millis(wait)).await;
                return None;
            }
            Some(None) => std::future::pending().await,
            None => {}
        }
        let mut state = self.outside.lock();
        let mut batch = state.world.updates(self.class, offset);
        batch.truncate(10);
        if batch.is_empty() && !first {
            let wait = state.until_somebody_writes(POLL);
            return Some((None, if wait == POLL { POLL } else { wait + 1 }));
        }
        let odds = state.plan.poll_odds;
        if state.fails(odds) {
            let again = batch.clone();
            batch.extend(again);
        }
        let wait = state.luck.between(1, 300);
        Some((Some(batch), wait))
    }
}

impl Outside {
    /// A platform is asked for something. Gives what it answers.
    fn arrives(&self, chat: usize, ask: &Ask, about: About, trouble: Trouble) -> Answer {
        let mut guard = self.lock();
        let state: &mut State = &mut guard;
        state.figures.sends += 1;
        state.note(&format!("chat {chat}: {trouble:?} {ask:?}"));
        let before = state.world.chats[chat].shown.len();
        // A text without a number takes the place of the answer that the message was to become.
        let about =
            match ask {
                Ask::Edit { message, .. } => state.world.chats[chat].about(message).map_or(about, |was| {
                    About { item: about.item.or(was.item), step: about.step.or(was.step), ..about }
                }),
                Ask::Send { .. } | Ask::Delete { .. } => about,
            };
        if let (true, Some(step)) = (about.preview, about.step) {
            state.truth.streamed.insert(step);
        }
        let now = state.time();
        let answer = state.world.take(chat, ask, about, trouble, now);
        let sent = about.item.filter(|_| state.world.chats[chat].shown.len() > before);
        let check = state.truth.shown(&state.world, chat, sent.map(|(id, _)| id));
        drop(guard);
        self.check(check);
        answer
    }
}

fn refused(kind: Kind) -> Error {
    Error { fault: Fault::Refused, reached: Reached::No, kind, code: "simulated" }
}

/// The identity of a message, by its text and its idempotency key.
fn about(text: &str, key: Option<&str>) -> About {
    let item = key.and_then(item_of);
    About { item, step: tag_of(text).map(|tag| (TurnId(tag), 0)), preview: item.is_none() }
}

/// The item and part of a key (`core::lane::key`).
fn item_of(key: &str) -> Option<(OutboxId, usize)> {
    let mut words = key.split(':');
    let _made = words.next()?;
    let item = words.next()?;
    let part = words.next()?;
    let part: String = part.chars().take_while(char::is_ascii_digit).collect();
    Some((OutboxId(item.parse().ok()?), part.parse().ok()?))
}

/// Parts of at most `most` characters, split between words; each part names its answer.
fn parts(text: &str, most: usize) -> Vec<String> {
    let tag = tag_of(text).map(|tag| format!("‹{tag}› ")).unwrap_or_default();
    let mut parts = vec![String::new()];
    for word in text.split_inclusive([' ', '\n']) {
        let last = parts.last_mut().expect("never empty");
        if !last.is_empty() && last.chars().count() + word.chars().count() > most {
            parts.push(tag.clone());
        }
        parts.last_mut().expect("never empty").push_str(word);
    }
    parts
}

impl SimulatedAdapter for Simulated {
    fn platform(&self) -> Platform {
        self.class.platform()
    }

    fn account(&self) -> &str {
        "bot"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn limits(&self) -> &RateLimits {
        &self.limits
    }

    fn receive<'a>(
        &'a self,
        cursor: Option<String>,
        intake: &'a InboundSink,
        health: &'a mut (dyn FnMut(LinkHealth) + Send),
    ) -> BoxFuture<'a, Error> {
        Box::pin(async move {
            self.listen(cursor, intake, health).await;
            Error {
                fault: Fault::Later { after: None },
                reached: Reached::Maybe,
                kind: Kind::Transient,
                code: "reset",
            }
        })
    }

    fn fetch<'a>(
        &'a self,
        attachment: &'a Attachment,
        _most: u64,
        to: &'a mut tokio::fs::File,
    ) -> BoxFuture<'a, Result<Fetched, download::Error>> {
        Box::pin(async move { self.outside.hand_out(&attachment.reference, to).await })
    }

    fn render(&self, text: &str) -> Vec<Part> {
        parts(text, part(self.class)).into_iter().map(Part::plain).collect()
    }

    fn preview(&self, text: &str, cursor: &str) -> String {
        let first = parts(text, part(self.class)).into_iter().next().unwrap_or_default();
        let room = part(self.class) - cursor.chars().count();
        let shown: String = first.chars().take(room).collect();
        shown + cursor
    }

    fn send<'a>(
        &'a self,
        to: &'a Route,
        part: &'a Part,
        _options: &'a SendOptions<'a>,
        key: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Receipt, Error>> {
        Box::pin(async move {
            // The connector passes no key on; the request id of the gateway is one.
            let key = match self.class {
                Class::Relayed => self.outside.lock().simulation.annotation(),
                Class::Plain | Class::Keyed | Class::Pull => key.map(str::to_owned),
            };
            let text = match &part.file {
                Some(file) => self.outside.shown_file(file, &part.text),
                None => part.text.clone(),
            };
            let about = about(&text, key.as_deref());
            let known = key.unwrap_or_else(|| format!("preview {}", self.outside.lock().number()));
            let ask = Ask::Send { text, key: known };
            let message_id = self.ask(to, ask, about).await?;
            Ok(Receipt { message_id, ..Receipt::default() })
        })
    }

    fn idempotency_window(&self) -> Option<Duration> {
        self.class.memory()
    }

    fn edit<'a>(
        &'a self,
        to: &'a Route,
        message_id: &'a str,
        part: &'a Part,
    ) -> BoxFuture<'a, Result<Receipt, Error>> {
        Box::pin(async move {
            let ask = Ask::Edit { message: message_id.to_owned(), text: part.text.clone() };
            let about = About { preview: false, ..about(&part.text, None) };
            let message_id = self.ask(to, ask, about).await?;
            Ok(Receipt { message_id, ..Receipt::default() })
        })
    }

    fn delete<'a>(&'a self, to: &'a Route, message_id: &'a str) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            let ask = Ask::Delete { message: message_id.to_owned() };
            self.ask(to, ask, About::default()).await.map(drop)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_item_and_part() {
        assert_eq!(item_of("1790000000000:12:0"), Some((OutboxId(12), 0)));
        assert_eq!(item_of("1790000000000:12:3m2"), Some((OutboxId(12), 3)));
        assert_eq!(item_of("preview 3"), None);
    }

    #[test]
    fn every_part_names_its_answer_and_no_name_is_broken() {
        let text = format!("‹7› re {}", "[m12] ".repeat(40));
        let parts = parts(&text, 80);
        assert!(parts.len() > 2);
        assert!(parts.iter().all(|part| tag_of(part) == Some(7) && part.chars().count() <= 88));
        assert_eq!(parts.iter().flat_map(|part| crate::outside::cited(part, 'm')).count(), parts.len());
    }
}
