//! Carrying out one owed message.
//!
//! Part by part: it is marked as being sent (committed), handed to the platform, and its outcome committed.
//! A crash between the two commits leaves `sending`: the next start, or after a panic the next lane, treats
//! its fate as unknown.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lane::{self, Act, Setback};
use petasos_core::media::{self, Media};
use petasos_core::outbox::{Item, Kind, Left, Preview, State};
use petasos_core::{Fault, Millis, OutboxId, Reached, Route, SessionKey};
use petasos_platforms::{Error as SendError, Kind as Failed, Part, Receipt, SendOptions};

use super::lane::{LINGER, Lane, STORE_RETRY, fault};
use crate::delivery::attachments::{self, Reach};
use crate::inbound::downloads;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Broken, Planted, breaks, planted};
use crate::{Error, clock};

/// Leads a part that may be a copy. Without characters that any markup reserves.
const RECOVERED: &str = "♻️ Recovered reply, may be a duplicate\n\n";

/// How a lane goes on after it has worked on its first item.
pub(super) enum Next {
    /// With whatever is first now, once this is kept.
    Ahead(Vec<Write>),
    /// Not before then.
    Wait(Millis),
}

/// A refusal that another message to the same chat need not meet.
fn is_about_the_file(error: &SendError) -> bool {
    error.fault() == Fault::Refused && error.reached() == Reached::No && !error.kind().is_dead_chat()
}

/// A preview can only be replaced by a text: an answer that turned out to be files alone says which.
fn said(media: &Media, preview: &Preview) -> String {
    let shown = matches!(preview, Preview::Shown(_));
    if !media.text.is_empty() || media.files.is_empty() || !shown {
        return media.text.clone();
    }
    let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
    format!("📎 {}", media.files.iter().map(name).collect::<Vec<_>>().join(", "))
}

impl Lane {
    /// Takes the first item of the outbox, as it was when it was claimed, as far as it gets.
    pub(super) async fn carry_out(&mut self, mut item: Item, now: Millis) -> Next {
        let at = lane::due_at(&item, now);
        if at > now {
            return Next::Wait(at);
        }
        if item.state == State::Sending {
            // Nobody else sends for this chat: whoever was sending it has panicked, or could not note the end.
            return self.crashed(&item, Reached::Maybe, "its outcome was lost").await;
        }
        if let Err(error) = self.adapter.described() {
            return self.failed(&item, &Act::Hold, &error).await;
        }
        let topic = match self.find_topic(&mut item).await {
            Ok(topic) => topic,
            Err(next) => return next,
        };
        match self.parts(&item).await {
            Some(parts) => self.send_parts(item, topic.as_deref(), &parts).await,
            // Nothing has been handed over yet, so what cannot be rendered is not doubtful.
            None => self.crashed(&item, Reached::No, "rendering it panicked").await,
        }
    }

    /// The text in parts of the platform's size, then one part per file: the same parts at every try, so that what
    /// was sent can be counted. `None`: rendering panicked.
    async fn parts(&self, item: &Item) -> Option<Vec<Part>> {
        let render = || {
            let text = item.draft.text.as_str();
            let media = match item.draft.kind {
                Kind::Answer => media::extract(text),
                Kind::Notice | Kind::Banner => Media { text: text.to_owned(), ..Media::default() },
            };
            let text = said(&media, &item.preview);
            (if text.is_empty() { vec![] } else { self.adapter.render(&text) }, media)
        };
        let (mut parts, media) = catch_unwind(AssertUnwindSafe(render)).ok()?;
        let policy = &self.outward.policy;
        let sent = item.draft.session_key.as_ref().map(|key| downloads::folders(&policy.home, key));
        let reach = match media.files.is_empty() {
            true => Reach::Anyone,
            false => self.outward.owners.reach(&self.outward.db, item).await,
        };
        let policy = policy.with(sent.unwrap_or_default()).reaching(reach);
        parts.extend(policy.parts(&media, &self.adapter.capabilities()).await);
        Some(parts)
    }

    /// `topic`: the name by which the thread was asked for.
    async fn send_parts(&mut self, mut item: Item, topic: Option<&str>, parts: &[Part]) -> Next {
        loop {
            let memory = match self.key_memory(&item).await {
                Ok(memory) => memory,
                Err(error) => return self.failed(&item, &Act::Hold, &error).await,
            };
            let act = lane::act(&item, parts.len(), memory, clock::now());
            if act == Act::Hold {
                tracing::error!(lane = %self.name, item = %item.id, "a growing answer was taken for a due one");
                return Next::Wait(clock::now().after(LINGER));
            }
            if let Act::Replace { message } = &act
                && self.outgrew(&parts[0])
            {
                return self.send_anew(&item, message).await;
            }
            let Receipt { message_id: message, opened: thread, thread_fallback } =
                match self.perform(&item, &act, parts).await {
                    Ok(receipt) => receipt,
                    Err(error) => return self.failed(&item, &act, &error).await,
                };
            self.arrived(&act).await;
            if thread_fallback {
                tracing::warn!(lane = %self.name, item = %item.id, "the thread is gone; sent beside it");
                self.gone_thread.clone_from(&item.draft.route.thread_id);
                if let Some(name) = topic {
                    self.topic_gone(&item, name).await;
                }
            }
            let now = clock::now();
            if item.sent.len() + 1 >= parts.len() {
                return Next::Ahead(vec![Write::Delivered { item: item.id, message, at: now }]);
            }
            let message = message.unwrap_or_default();
            let sent = Write::PartSent { item: item.id, message: message.clone(), thread: thread.clone() };
            self.commit(Commit::PartSent, vec![sent]).await;
            item.sent.push(message);
            item.draft.route.thread_id = thread.or(item.draft.route.thread_id);
            (item.doubtful, item.attempts, item.spent) = (false, 0, 0);
            let allowed = self.free_at(now);
            if self.outward.stopper.stopping() || allowed > now {
                return Next::Wait(allowed);
            }
            match self.mark_sending(item.id).await {
                Ok(()) => {}
                // A person dropped it meanwhile.
                Err(error) if fault(&error) == Fault::Refused => return Next::Ahead(vec![]),
                Err(error) => return Next::Wait(self.store_refused(&error)),
            }
        }
    }

    /// The route without a thread that is known to be gone: asking for it again would cost two refusals each time.
    fn standing(&self, route: &Route) -> Route {
        let gone = route.thread_id.is_some() && route.thread_id == self.gone_thread;
        Route { thread_id: if gone { None } else { route.thread_id.clone() }, ..route.clone() }
    }

    /// Only what may be a copy needs to be recognised. Without an answer it waits: an unmarked copy after a marked one
    /// would be a duplicate that nobody marked.
    async fn key_memory(&self, item: &Item) -> Result<Option<Duration>, SendError> {
        if item.doubtful { self.adapter.key_memory(&item.draft.route).await } else { Ok(None) }
    }

    /// Refused when a person has dropped the item meanwhile.
    async fn mark_sending(&self, item: OutboxId) -> Result<(), Error> {
        let now = clock::now();
        self.outward.db.write(Commit::Sending, move |tx| tx.apply(&[Write::Sending { item }], now)).await
    }

    async fn perform(&mut self, item: &Item, act: &Act, parts: &[Part]) -> Result<Receipt, SendError> {
        let route = &self.standing(&item.draft.route);
        self.budget.spend(clock::now());
        match act {
            // Nothing to ask of the platform.
            Act::Hold | Act::Finish => Ok(Receipt::default()),
            Act::Withdraw { message } => {
                self.adapter.delete(route, message).await.map(|()| Receipt::default())
            }
            // Without buttons: what replaces a message needs none, and an edit takes those of the old one away.
            Act::Replace { message } => self.adapter.edit(route, message, &parts[0]).await,
            Act::Send { part, marked } => {
                let marked = *marked && !breaks(Broken::Marks) && !planted(Planted::UnmarkedCopy);
                let last = part + 1 == parts.len();
                let buttons = if last { &item.draft.buttons[..] } else { &[] };
                let reply = self.adapter.capabilities().reply_to.quotes(*part);
                let session = item.draft.session_key.as_ref().map(SessionKey::as_str);
                let options = SendOptions { reply, silent: !last, buttons, session };
                let key = lane::key(item, *part, marked);
                let part = if marked { parts[*part].led_by(RECOVERED) } else { parts[*part].clone() };
                let sent = self.adapter.send_once(route, &part, &options, &key).await;
                match (sent, &part.file) {
                    (Err(error), Some(file)) if is_about_the_file(&error) => {
                        tracing::warn!(lane = %self.name, item = %item.id, %error, "a file was not accepted");
                        let why = match error.kind() {
                            Failed::NoFiles => "I may not send such files here",
                            _other => "it was not accepted here",
                        };
                        let notice = attachments::notice(&file.name, why);
                        // An earlier one may have been seen, whatever it was about.
                        let notice = if marked { notice.led_by(RECOVERED) } else { notice };
                        self.adapter.send_once(route, &notice, &options, &format!("{key}n")).await
                    }
                    (sent, _) => sent,
                }
            }
        }
    }

    pub(super) async fn failed(&mut self, item: &Item, act: &Act, error: &SendError) -> Next {
        let (now, fault) = (clock::now(), error.fault());
        // Where nothing of ours is let through, no other way is tried.
        let declined = error.kind() == Failed::Declined;
        if let (Act::Replace { message }, Fault::Refused, false) = (act, fault, declined) {
            // What it replaces is gone or too old.
            return self.send_anew(item, message).await;
        }
        if let (Act::Withdraw { .. }, Fault::Refused) = (act, fault) {
            // It is gone already, or stays: either way there is nothing left to say.
            return Next::Ahead(vec![Write::Delivered { item: item.id, message: None, at: now }]);
        }
        let setback = lane::setback(item, act, fault, error.reached(), now, clock::roll());
        let dead = (declined || matches!(act, Act::Send { .. })).then(|| self.dead_chat(error)).flatten();
        let spent = lane::spends_key(act, error.reached()).then_some(Write::KeySpent { item: item.id });
        // With the item: a crash right after the refusal must not send into it.
        let limits = self.adapter.limits().of_chat(self.platform(), self.chat());
        let also = spent.into_iter().chain(limits.into_iter().map(Write::RateLimited)).collect();
        self.set_back(item, setback, error.to_string(), also, dead).await
    }

    /// What a refusal says of the chat itself.
    pub(super) fn dead_chat(&self, error: &SendError) -> Option<Write> {
        if error.fault() != Fault::Refused || !error.kind().is_dead_chat() {
            return None;
        }
        let (platform, chat_id) = (self.platform(), self.chat().to_owned());
        tracing::warn!(lane = %self.name, %error, "the chat takes nothing from us any more");
        Some(Write::ChatDead { platform, chat_id, reason: error.to_string(), at: clock::now() })
    }

    /// A new message in a chat that was taken for dead proves the contrary.
    async fn arrived(&mut self, act: &Act) {
        if !self.probing || !matches!(act, Act::Send { .. }) {
            return;
        }
        self.probing = false;
        let (platform, chat_id) = (self.platform(), self.chat().to_owned());
        self.commit(Commit::ChatAlive, vec![Write::ChatAlive { platform, chat_id }]).await;
    }

    /// The platform takes shorter texts for a change than for a new message.
    fn outgrew(&self, part: &Part) -> bool {
        let capabilities = self.adapter.capabilities();
        capabilities.unit.len(&part.text) > capabilities.max_edit
    }

    /// The preview cannot become the answer: that is a new message. First what may be left of the other is taken back:
    /// as long as it may be there, a second message beside it would be a copy that nobody marked. A deletion whose fate is
    /// unknown may still come: nothing is written into that message any more.
    async fn send_anew(&mut self, item: &Item, preview: &str) -> Next {
        let deleted = match planted(Planted::LeavesPreview) {
            true => Ok(()),
            false => self.adapter.delete(&item.draft.route, preview).await,
        };
        let left = match deleted {
            // One that is gone already counts as taken back.
            Ok(()) => Left::Nothing,
            Err(error) if error.fault() == Fault::Refused && error.kind() != Failed::Declined => {
                tracing::debug!(lane = %self.name, item = %item.id, %error, "an old preview was not taken back");
                Left::Perhaps
            }
            Err(error) if error.reached() != Reached::No => {
                tracing::warn!(lane = %self.name, item = %item.id, %error, "nobody knows whether a preview is gone");
                Left::Perhaps
            }
            Err(error) => {
                // To take it back is a part of replacing it; if that is not let through, neither is the rest.
                let act = match error.fault() {
                    Fault::Refused => Act::Replace { message: preview.to_owned() },
                    Fault::Later { .. } | Fault::Fatal => Act::Withdraw { message: preview.to_owned() },
                };
                return Box::pin(self.failed(item, &act, &error)).await;
            }
        };
        self.commit(Commit::DropPreview, vec![Write::SendAnew { item: item.id, left }]).await;
        Next::Ahead(vec![])
    }

    async fn crashed(&self, item: &Item, reached: Reached, what: &str) -> Next {
        let setback = lane::crashed(item, reached, clock::now(), clock::roll());
        self.set_back(item, setback, what.to_owned(), vec![], None).await
    }

    /// `also`: what is stored either way; `dead`: what else is if it is given up.
    async fn set_back(
        &self,
        item: &Item,
        setback: Setback,
        error: String,
        also: Vec<Write>,
        dead: Option<Write>,
    ) -> Next {
        match setback {
            Setback::Again { at, doubtful } => {
                tracing::warn!(lane = %self.name, item = %item.id, attempt = item.attempts, error, "delivery deferred");
                let postpone = Write::Postpone { item: item.id, not_before: at, doubtful, error };
                self.commit(Commit::Postpone, [postpone].into_iter().chain(also).collect()).await;
                Next::Wait(at)
            }
            Setback::Bury { doubtful } => {
                tracing::error!(lane = %self.name, item = %item.id, error, "delivery given up; see `petasos outbox`");
                let bury = Write::Bury { item: item.id, doubtful, error, at: clock::now() };
                self.commit(Commit::Bury, [bury].into_iter().chain(also).chain(dead).collect()).await;
                Next::Ahead(vec![])
            }
        }
    }

    /// The outcome of something that has happened must be kept: asks the store while time may help. What is
    /// not kept leaves its item in `sending`, whose fate is then unknown.
    pub(super) async fn commit(&self, commit: Commit, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        loop {
            let (these, now) = (writes.clone(), clock::now());
            let Err(error) = self.outward.db.write(commit, move |tx| tx.apply(&these, now)).await else {
                return;
            };
            match fault(&error) {
                Fault::Refused => {
                    tracing::error!(lane = %self.name, %error, "the store refused an outcome");
                    // Whoever goes on finds the item as it was: not in a hurry, then.
                    return tokio::time::sleep(STORE_RETRY).await;
                }
                Fault::Later { .. } | Fault::Fatal if self.outward.stopper.stopping() => {
                    tracing::error!(lane = %self.name, %error, "an outcome could not be stored before the stop");
                    return;
                }
                Fault::Later { .. } | Fault::Fatal => {
                    tracing::error!(lane = %self.name, %error, "an outcome cannot be stored; trying again");
                    tokio::time::sleep(STORE_RETRY).await;
                }
            }
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
