//! Showing growing answers: a text that is edited in place, or that somebody is typing.
//!
//! The intent to show a first preview is stored before it leaves: if we die then, the answer knows that
//! something may be visible, and says so.

use std::time::Duration;

use petasos_core::journal::Write;
use petasos_core::{Millis, Reached};
use petasos_platforms::{Error as SendError, Kind, Part, Receipt, SendOptions};
use petasos_store::Stagehand;

use super::Transport;
use super::follow::{Following, Look, Showing, Shown};
use super::lane::Lane;
use crate::clock;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::runtime::tasks::uncancelled;

/// What is owed must not wait long for a sign of life.
const TYPING_PATIENCE: Duration = Duration::from_millis(1500);

impl Lane {
    /// Looks at a growing answer and shows what is new, if the budget allows.
    pub(super) async fn show(&mut self, mut following: Following, now: Millis) {
        let allowed = self.budget.preview_at(now).max(self.free_at(now));
        let next = following.rhythm.next_at(now);
        let way = self.adapter.capabilities().edit || self.draws(&following);
        let texts = self.outward.streaming.enabled && way && next.is_some();
        let showing = if texts { Showing::Text } else { Showing::Typing };
        following.looked(now);
        match following.look(now, showing) {
            Look::Over => return,
            Look::Nothing => {}
            Look::Typing => {
                if self.adapter.capabilities().typing && allowed <= now {
                    self.type_on(&mut following, now).await;
                }
            }
            Look::Show { step, text } => {
                let at = next.unwrap_or(now).max(allowed);
                if at <= now {
                    self.preview(&mut following, step, text).await;
                } else {
                    following.put_off(at, now);
                }
            }
        }
        self.followed.add(following);
    }

    async fn type_on(&mut self, following: &mut Following, now: Millis) {
        following.typed(now);
        let (adapter, route) = (self.adapter.clone(), following.route.clone());
        // The request ends by its own timeout, so that a refusal that comes late is recorded, too.
        let request = uncancelled(async move { adapter.typing(&route).await });
        match tokio::time::timeout(TYPING_PATIENCE, request).await {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => self.not_shown(&error),
            Ok(Err(error)) => tracing::warn!(lane = %self.name, %error, "typing indicator failed"),
            Err(_elapsed) => tracing::debug!(lane = %self.name, "a typing sign took too long"),
        }
    }

    async fn preview(&mut self, following: &mut Following, step: u32, text: String) {
        self.budget.spend(clock::now());
        if self.draws(following) {
            return self.draw(following, step, text).await;
        }
        let part = Part::plain(self.adapter.preview(&text, &self.outward.streaming.cursor));
        let visible = following.shown.take().filter(|shown| shown.step == step);
        let outcome = match visible.and_then(|shown| shown.message) {
            Some(message) => self.edit(following, step, text, message, &part).await,
            None => self.first_preview(following, step, text, &part).await,
        };
        let now = clock::now();
        match outcome {
            Ok(()) => following.rhythm.shown(now),
            Err(error) => {
                following.rhythm.failed(now, error.fault());
                self.not_shown(&error);
            }
        }
    }

    fn draws(&self, following: &Following) -> bool {
        let wanted = self.outward.streaming.transport == Transport::Draft && !following.draftless;
        wanted && self.adapter.drafts(&following.route)
    }

    /// As a draft. It needs no note in the store: it is no message, and goes when the answer comes.
    async fn draw(&mut self, following: &mut Following, step: u32, text: String) {
        let shown = self.adapter.preview(&text, "");
        let drawn = self.adapter.draft(&following.route, following.draft_number(step), &shown).await;
        let now = clock::now();
        match drawn {
            Ok(()) => {
                following.shown = Some(Shown { step, text, message: None });
                following.rhythm.shown(now);
            }
            Err(error) => {
                following.draftless = true;
                following.look_at = now;
                self.not_shown(&error);
            }
        }
    }

    async fn edit(
        &self,
        following: &mut Following,
        step: u32,
        text: String,
        message: String,
        part: &Part,
    ) -> Result<(), SendError> {
        let edited = self.adapter.edit(&following.route, &message, part).await;
        following.shown = Some(Shown { step, text, message: Some(message) });
        if let Err(error) = &edited
            && error.kind() == Kind::Declined
        {
            // Its answer would be declined, too: the lane need not ask.
            self.commit(Commit::DropPreview, self.dead_chat(error).into_iter().collect()).await;
        }
        edited.map(drop)
    }

    async fn first_preview(
        &self,
        following: &mut Following,
        step: u32,
        text: String,
        part: &Part,
    ) -> Result<(), SendError> {
        let (turn, draft, now) = (following.turn, following.draft(step), clock::now());
        let (outward, late) = (self.outward.clone(), draft.clone());
        let stage = async move {
            outward.db.write(Commit::StagePreview, move |tx| tx.stage_preview(&draft, now)).await
        };
        let staged = match planted(Planted::PreviewFirst) {
            true => Ok(Stagehand::Send),
            false => stage.await,
        };
        match staged {
            Ok(Stagehand::Send) => {}
            Ok(Stagehand::Edit(message)) => {
                // Shown by the process before us: it goes on where that one stopped.
                return self.edit(following, step, text, message, part).await;
            }
            // The answer is complete by now, or the store refuses: the outbox has the rest.
            Ok(Stagehand::Stay) | Err(_) => return Ok(()),
        }
        let reply = self.adapter.capabilities().reply_to.quotes(0);
        let session = Some(following.key.as_str());
        let options = SendOptions { reply, silent: true, buttons: &[], session };
        match self.adapter.send(&following.route, part, &options).await {
            Ok(Receipt { message_id: Some(message), .. }) => {
                if planted(Planted::PreviewFirst) {
                    let staged = move |tx: &petasos_store::Tx<'_>| tx.stage_preview(&late, now);
                    drop(self.outward.db.write(Commit::StagePreview, staged).await);
                }
                self.commit(
                    Commit::PreviewShown,
                    vec![Write::PreviewShown { turn, step, message: message.clone() }],
                )
                .await;
                following.shown = Some(Shown { step, text, message: Some(message) });
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

    fn not_shown(&self, error: &SendError) {
        tracing::debug!(lane = %self.name, %error, "preview not shown");
    }
}
