//! Sends previews of streamed answers: an edited message, a draft, or a typing indicator.
//!
//! The intent to send a first preview is committed before the request. After a crash in between, the final answer is marked as a
//! possible duplicate.

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::{Millis, Reached};
use petasos_platforms::{Error as SendError, Kind, Part, Receipt, SendOptions};
use petasos_store::PreviewAction;

use super::Transport;
use super::lane::Lane;
use super::preview_stream::{PreviewMode, PreviewStream, PreviewUpdate, ShownPreview};
use crate::clock;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::runtime::tasks::uncancelled;

/// Outbox items wait at most this long for a typing request.
const TYPING_TIMEOUT: Duration = Duration::from_millis(1500);

impl Lane {
    /// Polls a streamed answer and shows what is new, if the rate budget allows.
    pub(super) async fn update_preview(&mut self, mut stream: PreviewStream, now: Millis) {
        let allowed = self.budget.preview_at(now).max(self.free_at(now));
        let next = stream.rhythm.next_at(now);
        let can_preview = self.adapter.capabilities().edit || self.uses_drafts(&stream);
        let show_text = self.context.streaming.enabled && can_preview && next.is_some();
        let showing = if show_text { PreviewMode::Text } else { PreviewMode::Typing };
        stream.schedule_next_poll(now);
        match stream.poll(now, showing) {
            PreviewUpdate::Ended => return,
            PreviewUpdate::Nothing => {}
            PreviewUpdate::Typing => {
                if self.adapter.capabilities().typing && allowed <= now {
                    self.send_typing(&mut stream, now).await;
                }
            }
            PreviewUpdate::Show { step, text } => {
                let at = next.unwrap_or(now).max(allowed);
                if at <= now {
                    self.preview(&mut stream, step, text).await;
                } else {
                    stream.postpone(at, now);
                }
            }
        }
        self.streams.add(stream);
    }

    async fn send_typing(&mut self, stream: &mut PreviewStream, now: Millis) {
        stream.typing_sent(now);
        let adapter = self.adapter.clone();
        let route = stream.route.clone();
        // Not cancelled: a late refusal must still be recorded as a rate limit.
        let request = uncancelled(async move { adapter.typing(&route).await });
        match tokio::time::timeout(TYPING_TIMEOUT, request).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => self.log_failure(&error),
            Ok(Err(error)) => tracing::warn!(lane = %self.name, %error, "typing indicator failed"),
            Err(_elapsed) => tracing::debug!(lane = %self.name, "typing indicator timed out"),
        }
    }

    async fn preview(&mut self, stream: &mut PreviewStream, step: u32, text: String) {
        self.budget.spend(clock::now());
        if self.uses_drafts(stream) {
            return self.send_draft(stream, step, text).await;
        }
        let part = Part::plain(self.adapter.preview(&text, &self.context.streaming.cursor));
        let visible = stream.shown.take().filter(|shown| shown.step == step);
        let outcome = match visible.and_then(|shown| shown.message) {
            Some(message) => self.edit_preview(stream, step, text, message, &part).await,
            None => self.send_first_preview(stream, step, text, &part).await,
        };
        let now = clock::now();
        match outcome {
            Ok(()) => stream.rhythm.shown(now),
            Err(error) => {
                stream.rhythm.failed(now, error.fault());
                self.log_failure(&error);
            }
        }
    }

    fn uses_drafts(&self, stream: &PreviewStream) -> bool {
        let wanted = self.context.streaming.transport == Transport::Draft && !stream.draftless;
        wanted && self.adapter.supports_drafts(&stream.route)
    }

    /// Drafts are not staged in the outbox: they vanish when the answer is sent.
    async fn send_draft(&mut self, stream: &mut PreviewStream, step: u32, text: String) {
        let shown = self.adapter.preview(&text, "");
        let drawn = self.adapter.draft(&stream.route, stream.draft_number(step), &shown).await;
        let now = clock::now();
        match drawn {
            Ok(()) => {
                stream.shown = Some(ShownPreview { step, text, message: None });
                stream.rhythm.shown(now);
            }
            Err(error) => {
                stream.draftless = true;
                stream.next_poll_at = now;
                self.log_failure(&error);
            }
        }
    }

    async fn edit_preview(
        &self,
        stream: &mut PreviewStream,
        step: u32,
        text: String,
        message: String,
        part: &Part,
    ) -> Result<(), SendError> {
        let edited = self.adapter.edit(&stream.route, &message, part).await;
        stream.shown = Some(ShownPreview { step, text, message: Some(message) });
        if let Err(error) = &edited
            && error.kind() == Kind::Declined
        {
            // The final answer would be declined too.
            self.commit(Commit::DropPreview, self.dead_chat(error).into_iter().collect()).await;
        }
        edited.map(drop)
    }

    async fn send_first_preview(
        &self,
        stream: &mut PreviewStream,
        step: u32,
        text: String,
        part: &Part,
    ) -> Result<(), SendError> {
        let turn = stream.turn;
        let draft = stream.outbox_draft(step);
        let now = clock::now();
        let context = self.context.clone();
        let late = draft.clone();
        let stage = async move {
            context.db.write(Commit::StagePreview, move |tx| tx.stage_preview(&draft, now)).await
        };
        let staged = if planted(PlantedBug::PreviewFirst) { Ok(PreviewAction::Send) } else { stage.await };
        match staged {
            Ok(PreviewAction::Send) => {}
            Ok(PreviewAction::Edit(message)) => {
                // An earlier process showed the preview: continue with its message.
                return self.edit_preview(stream, step, text, message, part).await;
            }
            // The answer is complete, or the store refused: the outbox delivers the rest.
            Ok(PreviewAction::Skip) | Err(_) => return Ok(()),
        }
        let reply = self.adapter.capabilities().reply_to.is_reply(0);
        let session = Some(stream.key.as_str());
        let options = SendOptions { reply, silent: true, buttons: &[], session };
        match self.adapter.send(&stream.route, part, &options).await {
            Ok(Receipt { message_id: Some(message), .. }) => {
                if planted(PlantedBug::PreviewFirst) {
                    let staged = move |tx: &petasos_store::Tx<'_>| tx.stage_preview(&late, now);
                    drop(self.context.db.write(Commit::StagePreview, staged).await);
                }
                self.commit(
                    Commit::PreviewShown,
                    vec![Write::PreviewShown { turn, step, message: message.clone() }],
                )
                .await;
                stream.shown = Some(ShownPreview { step, text, message: Some(message) });
                Ok(())
            }
            Ok(Receipt { message_id: None, .. }) => Ok(()),
            Err(error) => {
                let gone = (error.reached() == Reached::No).then_some(Write::DropPreview { turn, step });
                self.commit(Commit::DropPreview, gone.into_iter().chain(self.dead_chat(&error)).collect())
                    .await;
                Err(error)
            }
        }
    }

    fn log_failure(&self, error: &SendError) {
        tracing::debug!(lane = %self.name, %error, "preview not shown");
    }
}
