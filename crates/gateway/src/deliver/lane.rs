//! One chat's way out. Owns its order, its budget and the preview it shows.
//!
//! One operation at a time: a part is marked as being sent (committed), handed to the platform, and its
//! outcome committed. A crash between the two commits leaves `sending`, which recovery treats as unknown.

use std::sync::Arc;
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lane::{self, Act, Budget, Setback};
use petasos_core::outbox::Item;
use petasos_core::{Fault, Millis, Platform, Reached};
use petasos_platforms::{Adapter, Error as SendError, Part, Receipt, SendOptions};
use petasos_store::Stagehand;
use tokio::sync::{mpsc, oneshot};

use super::preview::{Look, Shown};
use super::{Ask, Deliver, Following, Outward, Word};
use crate::{Error, clock};

/// An idle lane ends after this long.
const LINGER: Duration = Duration::from_secs(60);
/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);
/// Leads a part that may be a copy. Without characters that any markup reserves.
const RECOVERED: &str = "♻️ Recovered reply, may be a duplicate\n\n";

pub(super) async fn run(name: String, outward: Arc<Outward>, deliver: Deliver, words: mpsc::Receiver<Word>) {
    let Some(adapter) = adapter_of(&name, &outward) else {
        tracing::warn!(lane = name, "no adapter for this lane; what it owes stays in the outbox");
        return;
    };
    let budget = Budget::new(adapter.capabilities().pace);
    let lane =
        Lane { name, outward, deliver, words, adapter, budget, following: None, due_at: Some(clock::now()) };
    lane.run().await;
}

fn adapter_of(lane: &str, outward: &Outward) -> Option<Arc<Adapter>> {
    let (platform, _chat) = lane.split_once(':')?;
    outward.channels.adapter(Platform::parse(platform)?).cloned()
}

struct Lane {
    name: String,
    outward: Arc<Outward>,
    deliver: Deliver,
    words: mpsc::Receiver<Word>,
    adapter: Arc<Adapter>,
    budget: Budget,
    following: Option<Box<Following>>,
    /// When to look at the outbox again; `None`: when told.
    due_at: Option<Millis>,
}

/// What the outbox has for this lane.
enum Head {
    Nothing,
    NotBefore(Millis),
    /// Marked as being sent.
    Claimed(Box<Item>),
}

impl Lane {
    async fn run(mut self) {
        loop {
            let now = clock::now();
            if self.due_at.is_some_and(|at| at <= now) {
                self.due_at = self.deliver_due().await;
                continue;
            }
            if self.following.as_ref().is_some_and(|following| following.look_at <= now) {
                self.show(now).await;
                continue;
            }
            let look_at = self.following.as_ref().map(|following| following.look_at);
            let next = [self.due_at, look_at].into_iter().flatten().min();
            tokio::select! {
                word = self.words.recv() => match word {
                    Some(Word::Due) => self.due_at = Some(clock::now()),
                    Some(Word::Follow(following)) => self.following = Some(following),
                    None => return,
                },
                () = clock::sleep_until(next.unwrap_or(now.after(LINGER))) => {
                    if next.is_none() && self.leave().await {
                        return;
                    }
                }
            }
        }
    }

    /// Ends, unless something came in the meantime.
    async fn leave(&mut self) -> bool {
        let (granted, answer) = oneshot::channel();
        self.deliver.ask(Ask::Leave { lane: self.name.clone(), granted }).await;
        // Words that arrived before we were taken off the map. Nobody can send us any after that.
        if answer.await.is_err() {
            return true;
        }
        while let Ok(word) = self.words.try_recv() {
            match word {
                Word::Due => self.deliver.due(self.name.clone()).await,
                Word::Follow(following) => self.deliver.follow(self.name.clone(), *following).await,
            }
        }
        true
    }

    /// Sends what is due, in order. Gives back when to look again.
    async fn deliver_due(&mut self) -> Option<Millis> {
        loop {
            if self.outward.stopper.stopping() {
                return None;
            }
            let now = clock::now();
            let allowed = self.budget.message_at(now);
            if allowed > now {
                return Some(allowed);
            }
            match self.claim(now).await {
                Ok(Head::Nothing) => return None,
                Ok(Head::NotBefore(at)) => return Some(at),
                Ok(Head::Claimed(item)) => {
                    if let Some(at) = self.work(*item).await {
                        return Some(at);
                    }
                }
                Err(Error::Stopping) => return None,
                Err(error) => {
                    tracing::warn!(lane = self.name, %error, "the outbox cannot be read or written");
                    return Some(now.after(STORE_RETRY));
                }
            }
        }
    }

    async fn claim(&self, now: Millis) -> Result<Head, Error> {
        let lane = self.name.clone();
        let claim = self.outward.db.write(move |tx| {
            let Some(item) = tx.due_of_lane(&lane, 1)?.pop() else {
                return Ok(Head::Nothing);
            };
            if item.not_before > now {
                return Ok(Head::NotBefore(item.not_before));
            }
            tx.apply(&[Write::Sending { item: item.id }], now)?;
            Ok(Head::Claimed(Box::new(item)))
        });
        claim.await
    }

    /// Sends one claimed item, part by part. `Some`: not before then.
    async fn work(&mut self, mut item: Item) -> Option<Millis> {
        let parts = if item.draft.text.is_empty() { vec![] } else { self.adapter.render(&item.draft.text) };
        loop {
            let act = lane::act(&item, parts.len());
            match self.perform(&item, &act, &parts).await {
                Ok(receipt) => {
                    let more = item.sent.len() + 1 < parts.len();
                    let message = receipt.and_then(|receipt| receipt.message_id);
                    if !more {
                        let at = clock::now();
                        self.commit(vec![Write::Delivered { item: item.id, message, at }]).await;
                        return None;
                    }
                    let message = message.unwrap_or_default();
                    item.sent.push(message.clone());
                    item.doubtful = false;
                    self.commit(vec![
                        Write::PartSent { item: item.id, message },
                        Write::Sending { item: item.id },
                    ])
                    .await;
                    let allowed = self.budget.message_at(clock::now());
                    clock::sleep_until(allowed).await;
                }
                Err(error) => return self.failed(&mut item, &act, &error).await,
            }
        }
    }

    async fn perform(
        &mut self,
        item: &Item,
        act: &Act,
        parts: &[Part],
    ) -> Result<Option<Receipt>, SendError> {
        let route = &item.draft.route;
        self.budget.spend(clock::now());
        match act {
            Act::Hold | Act::Finish => Ok(None),
            Act::Withdraw { message } => self.adapter.delete(route, message).await.map(|()| None),
            Act::Replace { message } => self.adapter.edit(route, message, &parts[0]).await.map(Some),
            Act::Send { part, marked } => {
                let last = part + 1 == parts.len();
                let buttons = if last { &item.draft.buttons[..] } else { &[] };
                let options = SendOptions { reply: *part == 0, silent: !last, buttons };
                let part = if *marked { parts[*part].led_by(RECOVERED) } else { parts[*part].clone() };
                self.adapter.send(route, &part, &options).await.map(Some)
            }
        }
    }

    async fn failed(&mut self, item: &mut Item, act: &Act, error: &SendError) -> Option<Millis> {
        let (now, fault) = (clock::now(), error.fault());
        if let (Act::Replace { .. }, Fault::Refused, Some((turn, step))) = (act, fault, item.draft.turn) {
            // The preview is gone (deleted, too old): say it as a new message.
            self.commit(vec![Write::DropPreview { turn, step }]).await;
            return Some(now);
        }
        if let Fault::Later { after: Some(after) } = fault {
            self.budget.penalize(now.after(after));
        }
        match lane::setback(item, act, fault, error.reached(), now, clock::roll()) {
            Setback::Again { at, doubtful } => {
                tracing::warn!(lane = self.name, item = %item.id, attempt = item.attempts, %error, "delivery deferred");
                let error = error.to_string();
                self.commit(vec![Write::Postpone { item: item.id, not_before: at, doubtful, error }]).await;
                Some(at)
            }
            Setback::Bury => {
                tracing::error!(lane = self.name, item = %item.id, %error, "delivery given up; see `petasos outbox`");
                self.commit(vec![Write::Bury { item: item.id, error: error.to_string(), at: now }]).await;
                None
            }
        }
    }

    /// The outcome of something that has happened must be kept: asks the store until it takes it.
    async fn commit(&self, writes: Vec<Write>) {
        loop {
            let (these, now) = (writes.clone(), clock::now());
            match self.outward.db.write(move |tx| tx.apply(&these, now)).await {
                Ok(()) => return,
                Err(Error::Stopping) => return,
                Err(error) => {
                    tracing::error!(lane = self.name, %error, "an outcome cannot be stored; trying again");
                    tokio::time::sleep(STORE_RETRY).await;
                }
            }
        }
    }

    /// Looks at the growing answer and shows what is new, if the budget allows.
    async fn show(&mut self, now: Millis) {
        let Some(mut following) = self.following.take() else { return };
        let allowed = self.budget.preview_at(now);
        let capabilities = self.adapter.capabilities();
        let shows = self.outward.streaming.enabled && capabilities.edit;
        following.look_at = now.after(self.outward.streaming.gap);
        match following.look(now) {
            Look::Over => return,
            Look::Typing if capabilities.typing && allowed <= now => {
                following.typed(now);
                if let Err(error) = self.adapter.typing(&following.route).await {
                    self.heed(now, &error);
                }
            }
            Look::Show { step, text } if shows => match following.rhythm.next_at(now) {
                Some(at) if at.max(allowed) <= now => self.preview(&mut following, step, text).await,
                Some(at) => following.look_at = at.max(allowed),
                None => following.look_at = now.after(LINGER),
            },
            Look::Typing | Look::Nothing | Look::Show { .. } => {}
        }
        self.following = Some(following);
    }

    async fn preview(&mut self, following: &mut Following, step: u32, text: String) {
        let part = Part::plain(self.adapter.preview(&text, &self.outward.streaming.cursor));
        self.budget.spend(clock::now());
        let visible = following.shown.take().filter(|shown| shown.step == step);
        let outcome = match visible {
            Some(shown) => {
                let edited = self.adapter.edit(&following.route, &shown.message, &part).await;
                following.shown = Some(Shown { text, ..shown });
                edited.map(|_| ())
            }
            None => self.first_preview(following, step, text, &part).await,
        };
        let now = clock::now();
        match outcome {
            Ok(()) => following.rhythm.shown(now),
            Err(error) => {
                following.rhythm.failed(now, error.fault());
                self.heed(now, &error);
            }
        }
    }

    /// The intent is stored first: if we die now, the answer knows that something may be visible.
    async fn first_preview(
        &mut self,
        following: &mut Following,
        step: u32,
        text: String,
        part: &Part,
    ) -> Result<(), SendError> {
        let (turn, draft, now) = (following.turn, following.draft(step), clock::now());
        match self.outward.db.write(move |tx| tx.stage_preview(&draft, now)).await {
            Ok(Stagehand::Send) => {}
            Ok(Stagehand::Edit(message)) => {
                // Shown by the process before us: it goes on where that one stopped.
                let edited = self.adapter.edit(&following.route, &message, part).await;
                following.shown = Some(Shown { step, text, message });
                return edited.map(|_| ());
            }
            // The answer is complete by now, or the store refuses: the outbox has the rest.
            Ok(Stagehand::Stay) | Err(_) => return Ok(()),
        }
        let options = SendOptions { reply: true, silent: true, buttons: &[] };
        match self.adapter.send(&following.route, part, &options).await {
            Ok(Receipt { message_id: Some(message), .. }) => {
                self.commit(vec![Write::PreviewShown { turn, step, message: message.clone() }]).await;
                following.shown = Some(Shown { step, text, message });
                Ok(())
            }
            Ok(Receipt { message_id: None, .. }) => Ok(()),
            Err(error) => {
                if error.reached() == Reached::No {
                    self.commit(vec![Write::DropPreview { turn, step }]).await;
                }
                Err(error)
            }
        }
    }

    fn heed(&mut self, now: Millis, error: &SendError) {
        tracing::debug!(lane = self.name, %error, "preview not shown");
        if let Fault::Later { after: Some(after) } = error.fault() {
            self.budget.penalize(now.after(after));
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_platforms::MARK_ROOM;

    use super::*;

    #[test]
    fn the_mark_fits_into_the_room_left_for_it() {
        assert!(RECOVERED.encode_utf16().count() <= MARK_ROOM);
        assert!(!RECOVERED.contains([
            '_', '*', '[', ']', '(', ')', '~', '`', '>', '#', '+', '-', '=', '|', '{', '}', '.', '!'
        ]));
    }
}
