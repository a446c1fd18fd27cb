//! The running turn: what its work reports is fed to it, what it decides is committed, and only then started.

use std::time::Duration;

use petasos_core::admission::Arrival;
use petasos_core::journal::{Outcome, Write};
use petasos_core::transcript::EffectState;
use petasos_core::turn::{self, Decision, Effect, Event, Limits, Phase, Progress, ToolEnd};
use petasos_core::{Fault, SessionId};

use super::work::Report;
use crate::background::delegation::Place;
use crate::background::hooks;
use crate::runtime::commit::Commit;
use crate::runtime::fault_injection::{Planted, planted};
use crate::sessions::messages::admit::Promise;
use crate::sessions::turn::compaction::Relieved;
use crate::sessions::turn::{begin, notices};
use crate::sessions::{Ended, Session};
use crate::{Error, clock};

/// How long to wait when the store refuses.
const STORE_RETRY: Duration = Duration::from_secs(1);

impl Session {
    pub(in crate::sessions) async fn report(&mut self, report: Report) -> Result<(), Ended> {
        if let Some(running) = &mut self.running {
            running.sign_of_life();
        }
        match report {
            Report::Answered { attempt, answer } => {
                if let Some(running) = &mut self.running {
                    (running.work, running.room) = (None, None);
                    running.answered = hooks::shown(&answer.text).to_owned();
                }
                self.feed(Event::Answered { attempt, answer }).await
            }
            Report::Relieved { attempt, relieved } => {
                self.end_work();
                let Relieved { relief, bill, .. } = relieved;
                self.feed(Event::Relieved { attempt, relief, bill }).await
            }
            Report::Exhausted { attempt } => self.start_over(attempt).await,
            Report::Compressed { session, relieved } => self.compressed(session, relieved).await,
            Report::Failed { notice, .. } if self.compressing.is_some() => self.not_compressed(notice).await,
            Report::Failed { attempt, notice } => {
                if let Some(running) = &mut self.running {
                    running.work = None;
                    running.answered = hooks::shown(&notice).to_owned();
                }
                self.feed(Event::CallFailed { attempt, notice }).await
            }
            Report::ToolEnded { attempt, call, end } => {
                let last = self.is_last(&call);
                let running = self.running.as_mut().filter(|_| last);
                let steering = running.map(|it| std::mem::take(&mut it.steering)).unwrap_or_default();
                let steer =
                    steering.iter().map(|pending| (pending.id, begin::said(&pending.inbound))).collect();
                self.feed(Event::ToolEnded { attempt, call, end, steer }).await
            }
            Report::ToolsEnded => {
                // All results are in, so what comes next has replaced this work by now.
                Ok(())
            }
            Report::Panicked { attempt, open } => {
                tracing::error!("the work of a turn panicked");
                self.end_work();
                if self.compressing.is_some() {
                    return self.not_compressed(notices::PANICKED.into()).await;
                }
                if open.is_empty() {
                    return self.feed(Event::CallFailed { attempt, notice: notices::PANICKED.into() }).await;
                }
                for call in open {
                    let (content, effect) = (notices::TOOL_PANICKED.into(), EffectState::Unknown);
                    let end = ToolEnd { content, effect, progress: Progress::Failed };
                    self.feed(Event::ToolEnded { attempt, call, end, steer: vec![] }).await?;
                }
                Ok(())
            }
        }
    }

    /// Whether the model is asked again as soon as this call has its result.
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

    pub(in crate::sessions) fn limits(&self) -> Limits {
        let limits = self.handles.settings.limits;
        match Place::of(&self.key) {
            Some(_) => Limits { steps: self.handles.settings.delegation.steps, ..limits },
            None => limits,
        }
    }

    /// Feeds the turn: what it decides is committed, then started.
    pub(in crate::sessions) async fn feed(&mut self, event: Event) -> Result<(), Ended> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        let (turn, Decision { writes, effects }) =
            turn::step(running.turn, self.limits(), clock::now(), event);
        self.keep(&turn.session, writes).await?;
        running.turn = turn;
        self.running = Some(running);
        self.start(effects).await;
        Ok(())
    }

    /// Commits, and waits for a store that refuses for the moment.
    pub(in crate::sessions) async fn keep(
        &mut self,
        session: &SessionId,
        writes: Vec<Write>,
    ) -> Result<(), Ended> {
        if writes.is_empty() {
            return Ok(());
        }
        let ends = writes.iter().any(|write| matches!(write, Write::EndTurn { .. }));
        let answers = writes.iter().any(|write| matches!(write, Write::Owe(_)));
        if planted(Planted::AnswerAfterEnd) && ends && answers {
            let (after, first) = writes.into_iter().partition(|write| matches!(write, Write::Owe(_)));
            Box::pin(self.keep(session, first)).await?;
            return Box::pin(self.keep(session, after)).await;
        }
        let writes = match planted(Planted::ForgetsMerged) && ends {
            true => without_merged(writes),
            false => writes,
        };
        loop {
            let (these, session, now) = (writes.clone(), session.clone(), clock::now());
            let kept = self.handles.db.write(Commit::Step, move |tx| {
                tx.apply(&these, now)?;
                tx.last_row(&session)
            });
            match kept.await {
                Ok(row) => {
                    self.show.send_modify(|view| view.rows = row);
                    return Ok(());
                }
                Err(Error::Store(_)) if planted(Planted::RefusedStep) => return Ok(()),
                Err(error) => self.refused(&error).await?,
            }
        }
    }

    /// After the commit.
    pub(in crate::sessions) async fn start(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::CallModel { attempt, closing } => self.call_model(attempt, closing),
                Effect::RunTools { attempt, calls } => {
                    self.hooks_hear_a_step(&calls);
                    self.run_tools(attempt, calls);
                }
                Effect::Deliver { lane } => self.handles.delivery.deliver.due(lane).await,
                Effect::Finished { outcome } => self.finished(outcome),
            }
        }
    }

    pub(in crate::sessions) fn finished(&mut self, outcome: Outcome) {
        let Some(mut running) = self.running.take() else { return };
        self.hooks_hear_the_end(&running, outcome);
        let turn = &running.turn;
        self.settled(turn.route.reply_to.as_ref());
        self.handles.delivery.reactions.ended(&turn.route, outcome);
        let took = clock::now().since(turn.started_at).as_millis();
        tracing::info!(turn = %turn.id, outcome = outcome.as_str(), steps = turn.step, ms = took, "turn ended");
        if outcome == Outcome::Answered {
            self.handles.lifecycle.counts.may_have_changed();
        }
        self.handles.jobs.bell.ring();
        let mut steering = std::mem::take(&mut running.steering);
        if planted(Planted::LosesSteering) {
            steering.clear();
        }
        // The slot is given back before the next turn can start.
        drop(running);
        // Nothing took these along: they are the next turn.
        for pending in steering {
            self.enqueue(pending, Arrival::Text, Promise::Given);
        }
        self.show.send_modify(|view| view.live = None);
    }

    /// The store refused. Waits if time may help; otherwise the session ends and says so.
    pub(in crate::sessions) async fn refused(&self, error: &Error) -> Result<(), Ended> {
        let fault = match error {
            Error::Stopping => return Err(Ended::Stopping),
            Error::Store(error) => error.fault(),
            Error::Io(_) | Error::NotFound(_) | Error::Unbuilt(_) | Error::NoHome(_) | Error::Closed(_) => {
                Fault::Later { after: None }
            }
        };
        match fault {
            Fault::Later { .. } | Fault::Fatal => {
                tokio::time::sleep(STORE_RETRY).await;
                Ok(())
            }
            Fault::Refused => {
                tracing::error!(key = %self.key, %error, "the store refused a decision; this session ends");
                Err(Ended::Refused)
            }
        }
    }
}

/// What a planted bug leaves of the end of a turn: only one of its messages is settled.
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
