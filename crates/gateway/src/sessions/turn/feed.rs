//! Feeds the running turn with the reports of its work, commits its decisions, then starts their effects.

use std::time::Duration;

use petasos_core::admission::Arrival;
use petasos_core::journal::{MessageOutcome, Write};
use petasos_core::transcript::EffectState;
use petasos_core::turn::{self, CallProgress, Decision, Event, Phase, ToolReport, TurnEffect, TurnLimits};
use petasos_core::{Fault, SessionId};

use super::work::WorkReport;
use crate::api::runs::run_of;
use crate::background::delegation::ChildLevel;
use crate::background::hooks;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{PlantedBug, planted};
use crate::sessions::messages::admit::AdmissionPromise;
use crate::sessions::turn::begin;
use crate::sessions::turn::compaction::CompactionOutcome;
use crate::sessions::{SessionError, SessionTask};
use crate::{Error, clock, notices};

const STORE_RETRY: Duration = Duration::from_secs(1);

impl SessionTask {
    pub(in crate::sessions) async fn on_report(&mut self, report: WorkReport) -> Result<(), SessionError> {
        if let Some(running) = &mut self.running {
            running.sign_of_life();
        }
        match report {
            WorkReport::Answered { attempt, answer } => {
                if let Some(running) = &mut self.running {
                    running.work = None;
                    running.room = None;
                    running.answer = hooks::excerpt(&answer.text).to_owned();
                }
                self.feed(Event::Answered { attempt, answer }).await
            }
            WorkReport::Compacted { attempt, compaction } => {
                self.end_work();
                let CompactionOutcome { compaction, usage, .. } = compaction;
                self.feed(Event::Compacted { attempt, compaction, usage }).await
            }
            WorkReport::Exhausted { attempt } => self.start_fresh_session(attempt).await,
            WorkReport::Compressed { session, compaction } => {
                self.finish_compaction(session, compaction).await
            }
            WorkReport::Failed { notice, .. } if self.compaction.is_some() => {
                self.fail_compaction(notice).await
            }
            WorkReport::Failed { attempt, notice } => {
                if let Some(running) = &mut self.running {
                    running.work = None;
                    running.answer = hooks::excerpt(&notice).to_owned();
                }
                self.feed(Event::CallFailed { attempt, notice }).await
            }
            WorkReport::ToolEnded { attempt, call, end } => {
                let last = self.is_last(&call);
                let running = self.running.as_mut().filter(|_| last);
                let steering = running.map(|it| std::mem::take(&mut it.steering)).unwrap_or_default();
                let steer = steering
                    .iter()
                    .map(|pending| (pending.id, begin::text_for_model(&pending.inbound)))
                    .collect();
                self.feed(Event::ToolFinished { attempt, call, report: end, steer }).await
            }
            WorkReport::ToolsEnded => {
                // The last result has already replaced this work.
                Ok(())
            }
            WorkReport::Panicked { attempt, open } => {
                tracing::error!("the work of a turn panicked");
                self.end_work();
                if self.compaction.is_some() {
                    return self.fail_compaction(notices::turns::PANICKED.into()).await;
                }
                if open.is_empty() {
                    return self
                        .feed(Event::CallFailed { attempt, notice: notices::turns::PANICKED.into() })
                        .await;
                }
                for call in open {
                    let content = notices::model::TOOL_PANICKED.into();
                    let effect = EffectState::Unknown;
                    let end = ToolReport { content, effect, progress: CallProgress::Failed };
                    self.feed(Event::ToolFinished { attempt, call, report: end, steer: vec![] }).await?;
                }
                Ok(())
            }
        }
    }

    /// True if this is the last open call of its group.
    fn is_last(&self, call: &String) -> bool {
        match self.turn().map(|turn| &turn.phase) {
            Some(Phase::Acting { open, .. }) => open.as_slice() == std::slice::from_ref(call),
            Some(Phase::Thinking | Phase::Over) | None => false,
        }
    }

    pub(in crate::sessions) fn end_work(&mut self) {
        if let Some(running) = &mut self.running {
            running.work = None;
        }
    }

    pub(in crate::sessions) fn limits(&self) -> TurnLimits {
        let limits = self.handles.settings.limits;
        match ChildLevel::of(&self.key) {
            Some(_) => TurnLimits { steps: self.handles.settings.delegation.steps, ..limits },
            None => limits,
        }
    }

    /// Passes an event to the turn, commits its decision and starts the effects.
    pub(in crate::sessions) async fn feed(&mut self, event: Event) -> Result<(), SessionError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let (turn, Decision { writes, effects }) =
            turn::step(running.turn, self.limits(), clock::now(), event);
        self.commit_writes(&turn.session, writes).await?;
        running.turn = turn;
        self.running = Some(running);
        self.start_effects(effects).await;
        Ok(())
    }

    /// Commits, and retries while the store may recover.
    pub(in crate::sessions) async fn commit_writes(
        &mut self,
        session: &SessionId,
        writes: Vec<Write>,
    ) -> Result<(), SessionError> {
        if writes.is_empty() {
            return Ok(());
        }
        let ends = writes.iter().any(|write| matches!(write, Write::EndTurn { .. }));
        let answers = writes.iter().any(|write| matches!(write, Write::Enqueue(_)));
        if planted(PlantedBug::AnswerAfterEnd) && ends && answers {
            let (after, first) = writes.into_iter().partition(|write| matches!(write, Write::Enqueue(_)));
            Box::pin(self.commit_writes(session, first)).await?;
            return Box::pin(self.commit_writes(session, after)).await;
        }
        let writes = if planted(PlantedBug::ForgetsMerged) && ends { without_merged(writes) } else { writes };
        loop {
            let these = writes.clone();
            let session = session.clone();
            let now = clock::now();
            let committed = self.handles.db.write(Commit::Step, move |tx| {
                tx.apply(&these, now)?;
                tx.last_row(&session)
            });
            match committed.await {
                Ok(row) => {
                    self.view_tx.send_modify(|view| view.rows = row);
                    return Ok(());
                }
                Err(Error::Store(_)) if planted(PlantedBug::RefusedStep) => return Ok(()),
                Err(error) => self.wait_or_fail(&error).await?,
            }
        }
    }

    /// Called after the commit.
    pub(in crate::sessions) async fn start_effects(&mut self, effects: Vec<TurnEffect>) {
        for effect in effects {
            match effect {
                TurnEffect::CallModel { attempt, cutoff } => self.call_model(attempt, cutoff),
                TurnEffect::RunTools { attempt, calls } => {
                    self.emit_turn_step(&calls);
                    self.run_tools(attempt, calls);
                }
                TurnEffect::Deliver { lane } => self.handles.delivery.lanes.wake(lane).await,
                TurnEffect::Finished { outcome } => self.finished(outcome),
            }
        }
    }

    pub(in crate::sessions) fn finished(&mut self, outcome: MessageOutcome) {
        let Some(mut running) = self.running.take() else { return };
        self.emit_turn_end(&running, outcome);
        let turn = &running.turn;
        self.notify_run_ended(run_of(turn.route.platform, turn.route.reply_to.as_ref()));
        self.handles.delivery.reactions.turn_ended(&turn.route, outcome);
        let took = clock::now().since(turn.started_at).as_millis();
        tracing::info!(turn = %turn.id, outcome = outcome.as_str(), steps = turn.step, ms = took, "turn ended");
        if outcome == MessageOutcome::Answered {
            self.handles.lifecycle.counts.may_have_changed();
        }
        self.handles.jobs.wake.notify();
        let mut steering = std::mem::take(&mut running.steering);
        if planted(PlantedBug::LosesSteering) {
            steering.clear();
        }
        // Return the slot before the next turn can start.
        drop(running);
        // No tool result carried these messages: they start the next turn.
        for pending in steering {
            self.enqueue(pending, Arrival::Text, AdmissionPromise::Given);
        }
        self.view_tx.send_modify(|view| view.live = None);
    }

    /// Waits if the error may be transient; otherwise ends the session task.
    pub(in crate::sessions) async fn wait_or_fail(&self, error: &Error) -> Result<(), SessionError> {
        let fault = match error {
            Error::Stopping => return Err(SessionError::Stopping),
            Error::Store(error) => error.fault(),
            Error::Io(_)
            | Error::NotFound(_)
            | Error::UnavailablePlatform(_)
            | Error::NoHome(_)
            | Error::Closed(_) => Fault::Later { after: None },
        };
        match fault {
            Fault::Later { .. } | Fault::Fatal => {
                clock::sleep(STORE_RETRY).await;
                Ok(())
            }
            Fault::Refused => {
                tracing::error!(key = %self.key, %error, "store refused a decision; ending the session task");
                Err(SessionError::StoreRefused)
            }
        }
    }
}

/// Planted bug: only one message of the turn is settled.
fn without_merged(mut writes: Vec<Write>) -> Vec<Write> {
    for write in &mut writes {
        if let Write::SettleInbox { inbox, .. } = write {
            inbox.truncate(1);
        }
    }
    let mut settled = 0;
    writes.retain(|write| {
        settled += usize::from(matches!(write, Write::SettleInbox { .. }));
        settled < 2 || !matches!(write, Write::SettleInbox { .. })
    });
    writes
}
