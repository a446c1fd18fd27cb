//! Delivers one outbox item, part by part.
//!
//! Each part is marked as being sent (committed), handed to the platform, and its outcome committed. A crash between the two
//! commits leaves `sending`: the next start, or after a panic the next lane, treats its outcome as unknown.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::lane::{self, FailureAction, LaneAction};
use petasos_core::media::{self, ExtractedMedia};
use petasos_core::outbox::{Item, Kind, OldPreview, Preview, State};
use petasos_core::{Fault, Millis, OutboxId, Reached, Route, SessionKey};
use petasos_platforms::{Error as SendError, Kind as Failed, Part, Receipt, SendOptions};

use super::lane::{LINGER, Lane, STORE_RETRY, fault};
use crate::delivery::attachments::{self, FileAccess};
use crate::inbound::downloads;
use crate::notices::files as notices;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Guarantee, PlantedBug, is_disabled, planted};
use crate::{Error, clock};

/// The next action of a lane after it has worked on its first item.
pub(super) enum LaneStep {
    /// Commit these writes, then claim the next item.
    Continue(Vec<Write>),
    WaitUntil(Millis),
}

/// The platform refused the file, not the chat.
fn is_file_refusal(error: &SendError) -> bool {
    error.fault() == Fault::Refused && error.reached() == Reached::No && !error.kind().is_dead_chat()
}

/// The text of an answer. A preview can only be replaced by text, so an answer of files alone names them.
fn text_to_send(media: &ExtractedMedia, preview: &Preview) -> String {
    let shown = matches!(preview, Preview::Shown(_));
    if !media.text.is_empty() || media.files.is_empty() || !shown {
        return media.text.clone();
    }
    let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
    notices::names(&media.files.iter().map(name).collect::<Vec<_>>())
}

impl Lane {
    pub(super) async fn deliver_item(&mut self, mut item: Item, now: Millis) -> LaneStep {
        let at = lane::due_at(&item, now);
        if at > now {
            return LaneStep::WaitUntil(at);
        }
        if item.state == State::Sending {
            // This lane is the only sender of the chat: the previous one panicked or could not store the outcome.
            return self.fail_after_crash(&item, Reached::Maybe, "the outcome of the send was lost").await;
        }
        if let Err(error) = self.adapter.ensure_descriptor() {
            return self.on_send_error(&item, &LaneAction::Wait, &error).await;
        }
        let topic = match self.resolve_topic(&mut item).await {
            Ok(topic) => topic,
            Err(next) => return next,
        };
        match self.parts(&item).await {
            Some(parts) => self.send_parts(item, topic.as_deref(), &parts).await,
            // Nothing was handed over, so there is no doubt about the outcome.
            None => self.fail_after_crash(&item, Reached::No, "rendering it panicked").await,
        }
    }

    /// The text in parts of the platform's size, then one part per file. Every attempt yields the same parts, so the number of sent
    /// parts identifies the next. `None`: rendering panicked.
    async fn parts(&self, item: &Item) -> Option<Vec<Part>> {
        let render = || {
            let text = self.context.redactor.redact(&item.draft.text);
            let media = match item.draft.kind {
                Kind::Answer => media::extract(&text),
                Kind::Notice | Kind::Banner => {
                    ExtractedMedia { text: text.into_owned(), ..ExtractedMedia::default() }
                }
            };
            let text = text_to_send(&media, &item.preview);
            (if text.is_empty() { vec![] } else { self.adapter.render(&text) }, media)
        };
        let (mut parts, media) = catch_unwind(AssertUnwindSafe(render)).ok()?;
        let policy = &self.context.policy;
        let sent = item.draft.session_key.as_ref().map(|key| downloads::session_folders(&policy.home, key));
        let access = if media.files.is_empty() {
            FileAccess::AllowedFolders
        } else {
            self.context.owners.file_access(&self.context.db, item).await
        };
        let policy = policy.with_folders(sent.unwrap_or_default()).with_access(access);
        parts.extend(policy.parts(&media, &self.adapter.capabilities()).await);
        Some(parts)
    }

    /// `topic`: the name in the route, if the thread was addressed by name.
    async fn send_parts(&mut self, mut item: Item, topic: Option<&str>, parts: &[Part]) -> LaneStep {
        loop {
            let memory = match self.key_memory(&item).await {
                Ok(memory) => memory,
                Err(error) => return self.on_send_error(&item, &LaneAction::Wait, &error).await,
            };
            let act = lane::next_action(&item, parts.len(), memory, clock::now());
            if act == LaneAction::Wait {
                tracing::error!(lane = %self.name, item = %item.id, "claimed an item that is still streaming");
                return LaneStep::WaitUntil(clock::now().after(LINGER));
            }
            if let LaneAction::EditPreview { message } = &act
                && self.exceeds_edit_limit(&parts[0])
            {
                return self.send_as_new_message(&item, message).await;
            }
            let Receipt { message_id: message, opened: thread, thread_fallback } =
                match self.perform(&item, &act, parts).await {
                    Ok(receipt) => receipt,
                    Err(error) => return self.on_send_error(&item, &act, &error).await,
                };
            self.clear_dead_mark(&act).await;
            if thread_fallback {
                tracing::warn!(lane = %self.name, item = %item.id, "the thread is gone; sent to the chat itself");
                self.gone_thread.clone_from(&item.draft.route.thread_id);
                if let Some(name) = topic {
                    self.forget_topic(&item, name).await;
                }
            }
            let now = clock::now();
            if item.sent.len() + 1 >= parts.len() {
                return LaneStep::Continue(vec![Write::Delivered { item: item.id, message, at: now }]);
            }
            let message = message.unwrap_or_default();
            let sent = Write::PartSent { item: item.id, message: message.clone(), thread: thread.clone() };
            self.commit(Commit::PartSent, vec![sent]).await;
            item.sent.push(message);
            item.draft.route.thread_id = thread.or(item.draft.route.thread_id);
            item.doubtful = false;
            item.attempts = 0;
            item.retired_keys = 0;
            let allowed = self.free_at(now);
            if self.context.shutdown.stopping() || allowed > now {
                return LaneStep::WaitUntil(allowed);
            }
            match self.mark_sending(item.id).await {
                Ok(()) => {}
                // The owner dropped the item meanwhile.
                Err(error) if fault(&error) == Fault::Refused => return LaneStep::Continue(vec![]),
                Err(error) => return LaneStep::WaitUntil(self.store_refused(&error)),
            }
        }
    }

    /// The route without a deleted thread: asking for it again costs two refusals each time.
    fn live_route(&self, route: &Route) -> Route {
        let gone = route.thread_id.is_some() && route.thread_id == self.gone_thread;
        Route { thread_id: if gone { None } else { route.thread_id.clone() }, ..route.clone() }
    }

    /// Only a possible duplicate needs its idempotency key. On an error the item waits: an unmarked copy after a marked one would be
    /// an unmarked duplicate.
    async fn key_memory(&self, item: &Item) -> Result<Option<Duration>, SendError> {
        if item.doubtful { self.adapter.idempotency_window(&item.draft.route).await } else { Ok(None) }
    }

    /// Refused if the owner has dropped the item meanwhile.
    async fn mark_sending(&self, item: OutboxId) -> Result<(), Error> {
        let now = clock::now();
        self.context.db.write(Commit::Sending, move |tx| tx.apply(&[Write::Sending { item }], now)).await
    }

    async fn perform(&mut self, item: &Item, act: &LaneAction, parts: &[Part]) -> Result<Receipt, SendError> {
        let route = &self.live_route(&item.draft.route);
        self.budget.spend(clock::now());
        match act {
            // No platform request.
            LaneAction::Wait | LaneAction::Finish => Ok(Receipt::default()),
            LaneAction::DeletePreview { message } => {
                self.adapter.delete(route, message).await.map(|()| Receipt::default())
            }
            // An edit removes the buttons of the old message, and its replacement needs none.
            LaneAction::EditPreview { message } => self.adapter.edit(route, message, &parts[0]).await,
            LaneAction::Send { part, marked } => {
                let marked = *marked && !is_disabled(Guarantee::Marks) && !planted(PlantedBug::UnmarkedCopy);
                let last = part + 1 == parts.len();
                let buttons = if last { &item.draft.buttons[..] } else { &[] };
                let reply = self.adapter.capabilities().reply_to.is_reply(*part);
                let session = item.draft.session_key.as_ref().map(SessionKey::as_str);
                let options = SendOptions { reply, silent: !last, buttons, session };
                let idempotency_key = lane::idempotency_key(item, *part, marked);
                let part = if marked {
                    parts[*part].with_prefix(notices::DUPLICATE_PREFIX)
                } else {
                    parts[*part].clone()
                };
                let sent = self.adapter.send_idempotent(route, &part, &options, &idempotency_key).await;
                match (sent, &part.file) {
                    (Err(error), Some(file)) if is_file_refusal(&error) => {
                        tracing::warn!(lane = %self.name, item = %item.id, %error, "the platform refused a file");
                        let why = match error.kind() {
                            Failed::NoFiles => notices::TYPE_NOT_ALLOWED,
                            _other => notices::REFUSED_BY_PLATFORM,
                        };
                        let notice = attachments::refusal_notice(&file.name, why);
                        // The first attempt may have arrived.
                        let notice =
                            if marked { notice.with_prefix(notices::DUPLICATE_PREFIX) } else { notice };
                        self.adapter
                            .send_idempotent(route, &notice, &options, &format!("{idempotency_key}n"))
                            .await
                    }
                    (sent, _) => sent,
                }
            }
        }
    }

    pub(super) async fn on_send_error(
        &mut self,
        item: &Item,
        act: &LaneAction,
        error: &SendError,
    ) -> LaneStep {
        let now = clock::now();
        let fault = error.fault();
        // A connector that declines the edit declines everything else too.
        let declined = error.kind() == Failed::Declined;
        if let (LaneAction::EditPreview { message }, Fault::Refused, false) = (act, fault, declined) {
            // The message is gone or too old.
            return self.send_as_new_message(item, message).await;
        }
        if let (LaneAction::DeletePreview { .. }, Fault::Refused) = (act, fault) {
            // Gone already, or it stays: nothing is left to do.
            return LaneStep::Continue(vec![Write::Delivered { item: item.id, message: None, at: now }]);
        }
        let setback = lane::after_failure(item, act, fault, error.reached(), now, clock::roll());
        let dead =
            (declined || matches!(act, LaneAction::Send { .. })).then(|| self.dead_chat(error)).flatten();
        let spent = lane::retires_key(act, error.reached()).then_some(Write::RetireKey { item: item.id });
        // Stored with the item, so that the limit survives a crash.
        let limits = self.adapter.limits().for_chat(self.platform(), self.chat());
        let also = spent.into_iter().chain(limits.into_iter().map(Write::RateLimited)).collect();
        self.apply_failure(item, setback, error.to_string(), also, dead).await
    }

    /// The dead-chat mark that a refusal implies.
    pub(super) fn dead_chat(&self, error: &SendError) -> Option<Write> {
        if error.fault() != Fault::Refused || !error.kind().is_dead_chat() {
            return None;
        }
        let platform = self.platform();
        let chat_id = self.chat().to_owned();
        tracing::warn!(lane = %self.name, %error, "the chat refuses our messages; marked as dead");
        Some(Write::MarkChatDead { platform, chat_id, reason: error.to_string(), at: clock::now() })
    }

    /// Clears the dead-chat mark after a probe was delivered.
    async fn clear_dead_mark(&mut self, act: &LaneAction) {
        if !self.probing || !matches!(act, LaneAction::Send { .. }) {
            return;
        }
        self.probing = false;
        let platform = self.platform();
        let chat_id = self.chat().to_owned();
        self.commit(Commit::ChatAlive, vec![Write::ClearDeadChat { platform, chat_id }]).await;
    }

    /// The limit for edits may be lower than for new messages.
    fn exceeds_edit_limit(&self, part: &Part) -> bool {
        let capabilities = self.adapter.capabilities();
        capabilities.unit.len(&part.text) > capabilities.max_edit
    }

    /// Sends the answer as a new message. The old preview is deleted first: while it may be visible, a second message beside it would
    /// be an unmarked duplicate. A deletion with an unknown outcome may still happen, so that message is not edited any more.
    async fn send_as_new_message(&mut self, item: &Item, preview: &str) -> LaneStep {
        let deleted = if planted(PlantedBug::LeavesPreview) {
            Ok(())
        } else {
            self.adapter.delete(&item.draft.route, preview).await
        };
        let left = match deleted {
            // A preview that is already gone counts as deleted.
            Ok(()) => OldPreview::Gone,
            Err(error) if error.fault() == Fault::Refused && error.kind() != Failed::Declined => {
                tracing::debug!(lane = %self.name, item = %item.id, %error, "old preview not deleted");
                OldPreview::MaybeVisible
            }
            Err(error) if error.reached() != Reached::No => {
                tracing::warn!(lane = %self.name, item = %item.id, %error, "unknown whether the preview was deleted");
                OldPreview::MaybeVisible
            }
            Err(error) => {
                // Deleting is part of replacing.
                let act = match error.fault() {
                    Fault::Refused => LaneAction::EditPreview { message: preview.to_owned() },
                    Fault::Later { .. } | Fault::Fatal => {
                        LaneAction::DeletePreview { message: preview.to_owned() }
                    }
                };
                return Box::pin(self.on_send_error(item, &act, &error)).await;
            }
        };
        self.commit(Commit::DropPreview, vec![Write::SendAsNew { item: item.id, old_preview: left }]).await;
        LaneStep::Continue(vec![])
    }

    async fn fail_after_crash(&self, item: &Item, reached: Reached, what: &str) -> LaneStep {
        let setback = lane::after_crash(item, reached, clock::now(), clock::roll());
        self.apply_failure(item, setback, what.to_owned(), vec![], None).await
    }

    /// `also` is stored either way; `dead` only when the item is given up.
    async fn apply_failure(
        &self,
        item: &Item,
        setback: FailureAction,
        error: String,
        also: Vec<Write>,
        dead: Option<Write>,
    ) -> LaneStep {
        match setback {
            FailureAction::Retry { at, doubtful } => {
                tracing::warn!(lane = %self.name, item = %item.id, attempt = item.attempts, error, "delivery deferred");
                let postpone = Write::Postpone { item: item.id, not_before: at, doubtful, error };
                self.commit(Commit::Postpone, [postpone].into_iter().chain(also).collect()).await;
                LaneStep::WaitUntil(at)
            }
            FailureAction::DeadLetter { doubtful } => {
                tracing::error!(lane = %self.name, item = %item.id, error, "delivery given up; see `petasos outbox`");
                let bury = Write::DeadLetter { item: item.id, doubtful, error, at: clock::now() };
                self.commit(Commit::DeadLetter, [bury].into_iter().chain(also).chain(dead).collect()).await;
                LaneStep::Continue(vec![])
            }
        }
    }

    /// Commits an outcome, retrying while the store may recover. An outcome that is not stored leaves the item in `sending`, with an
    /// unknown outcome.
    pub(super) async fn commit(&self, commit: Commit, writes: Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        loop {
            let these = writes.clone();
            let now = clock::now();
            let Err(error) = self.context.db.write(commit, move |tx| tx.apply(&these, now)).await else {
                return;
            };
            match fault(&error) {
                Fault::Refused => {
                    tracing::error!(lane = %self.name, %error, "store refused a delivery outcome");
                    // The item is unchanged: pause before the next attempt.
                    return clock::sleep(STORE_RETRY).await;
                }
                Fault::Later { .. } | Fault::Fatal if self.context.shutdown.stopping() => {
                    tracing::error!(lane = %self.name, %error, "delivery outcome not stored before shutdown");
                    return;
                }
                Fault::Later { .. } | Fault::Fatal => {
                    tracing::error!(lane = %self.name, %error, "cannot store a delivery outcome; retrying");
                    clock::sleep(STORE_RETRY).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use petasos_platforms::PREFIX_RESERVE;

    use super::*;

    #[test]
    fn duplicate_prefix_fits_into_the_room_left_for_it() {
        assert!(notices::DUPLICATE_PREFIX.encode_utf16().count() <= PREFIX_RESERVE);
        assert!(!notices::DUPLICATE_PREFIX.contains([
            '_', '*', '[', ']', '(', ')', '~', '`', '>', '#', '+', '-', '=', '|', '{', '}', '.', '!'
        ]));
    }
}
