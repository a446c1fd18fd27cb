//! `session/mod.rs` (feed, start, finished), `session/work.rs`: what a turn asks for, and what comes back.

use std::cell::Cell;

use petasos_core::admission::Arrival;
use petasos_core::journal::{Outcome, Write};
use petasos_core::transcript::{Bill, EffectState, Role, ToolCall};
use petasos_core::turn::{
    self, Answer, Decision, Effect, Event as Turning, Limits, Phase, Progress, ToolEnd,
};
use petasos_core::{Millis, SessionKey, TurnId};

use super::session::Promised;
use super::{Event, STORE_RETRY, Session};
use crate::outside::cited;
use crate::plant::Bug;
use crate::sim::{Flow, Halt, Sim};

/// A model call or tools under way.
#[derive(Debug, Clone)]
pub(crate) struct Work {
    pub(crate) id: u64,
    /// What the model is saying, from when to when; empty for tools.
    pub(crate) text: String,
    pub(crate) since: Millis,
    pub(crate) until: Millis,
}

#[derive(Debug, Clone)]
pub(crate) enum Report {
    Answered { attempt: u32, answer: Answer },
    Failed { attempt: u32 },
    ToolEnded { attempt: u32, call: ToolCall },
}

impl Sim {
    /// What the turn decides is committed, then started.
    pub(crate) fn feed(&mut self, session: &mut Session, event: Turning) -> Flow {
        let Some(turn) = session.turn.take() else { return Ok(()) };
        let now = self.now;
        let (turn, Decision { writes, effects }) = turn::step(turn, Limits::default(), now, event);
        let writes = Bug::twist(self.bug, writes);
        if !writes.is_empty() {
            self.keep(writes)?;
        }
        session.turn = Some(turn);
        self.start(session, effects)
    }

    fn keep(&mut self, writes: Vec<Write>) -> Flow {
        let now = self.now;
        let (mut first, mut second) = (writes.clone(), vec![]);
        if self.bug == Some(Bug::AnswerAfterEnd) && first.iter().any(|it| matches!(it, Write::EndTurn { .. }))
        {
            (second, first) = first.into_iter().partition(|it| matches!(it, Write::Owe(_)));
        }
        let done = Cell::new(false);
        let kept = self.commit("step", |tx| {
            tx.apply(&first, now)?;
            done.set(true);
            Ok(())
        });
        if done.get() {
            self.truth.committed(&writes)?;
        }
        kept?;
        if !second.is_empty() {
            self.commit("owe", move |tx| tx.apply(&second, now))?;
        }
        Ok(())
    }

    pub(crate) fn start(&mut self, session: &mut Session, effects: Vec<Effect>) -> Flow {
        for effect in effects {
            match effect {
                Effect::CallModel { attempt, closing } => {
                    self.call_model(session, attempt, closing.is_some())?
                }
                Effect::RunTools { attempt, calls } => self.run_tools(session, attempt, calls)?,
                Effect::Deliver { lane } => self.lane_due(lane),
                Effect::Finished { outcome } => self.finished(session, outcome),
            }
        }
        Ok(())
    }

    fn finished(&mut self, session: &mut Session, _outcome: Outcome) {
        session.turn = None;
        session.work = None;
        session.parked = false;
        session.resumed = false;
        for pending in std::mem::take(&mut session.steering) {
            self.enqueue(session, pending, Arrival::Text, Promised::Given);
        }
        self.give_back(&session.key.clone());
        self.cron_soon();
        // Its queue is looked at again by whoever called us, or by this.
        self.soon(Event::Hear { life: self.life, key: session.key.clone() }, 0, 5);
    }

    fn call_model(&mut self, session: &mut Session, attempt: u32, last: bool) -> Flow {
        let Some(turn) = session.turn.clone() else { return Ok(()) };
        self.truth.model_asked(turn.id)?;
        self.figures.calls += 1;
        let answer = self.think(&turn.session, turn.id, turn.step, last);
        let took = self.thinks_for();
        let id = self.p().number();
        let until = Millis(self.time.0 + took);
        session.work = Some(Work { id, text: answer.text.clone(), since: self.time, until });
        let report = if self.fails(self.plan.model_odds) {
            Report::Failed { attempt }
        } else {
            Report::Answered { attempt, answer }
        };
        self.report_in(session.key.clone(), id, report.clone(), took);
        if self.fails(self.plan.model_odds) {
            // A late double.
            let late = self.luck.between(1, 10_000);
            self.report_in(session.key.clone(), id, report, took + late);
        }
        self.follow(&turn.route, turn.id, session.key.clone());
        Ok(())
    }

    fn thinks_for(&mut self) -> u64 {
        // Longer than a stop waits, where it matters what a clock shows meanwhile.
        let long = self.plan.jumps > 0 && self.luck.odds(60);
        if long { self.luck.between(30_000, 200_000) } else { self.luck.between(50, 15_000) }
    }

    /// What the model says: it names everything it was asked since its last answer.
    fn think(&mut self, session: &petasos_core::SessionId, turn: TurnId, step: u32, last: bool) -> Answer {
        let rows = self.p().store.history(session, 400).unwrap_or_default();
        let is_final = |role: Role, calls: &[ToolCall]| role == Role::Assistant && calls.is_empty();
        let mut asked = String::new();
        for row in rows.iter().rev() {
            if is_final(row.message.role, &row.message.tool_calls) {
                break;
            }
            asked.push_str(&row.message.content);
        }
        let mut text = String::from("re");
        for letter in ['m', 'c', 'j'] {
            for number in cited(&asked, letter) {
                text.push_str(&format!(" [{letter}{number}]"));
            }
        }
        text.push_str(&format!(" t{turn}.{step}"));
        if self.luck.odds(300) {
            text.push_str(&" and so on, at some length".repeat(4));
        }
        let mut calls = vec![];
        if !last && step < 3 && self.luck.odds(350) {
            for number in 0..self.luck.between(1, 2) {
                let name = self.luck.pick(&["write", "read"]).to_owned();
                let id = format!("{turn}.{step}.{number}.{}", self.p().number());
                calls.push(ToolCall { id, name, arguments: "{}".into() });
            }
            if self.luck.odds(500) {
                text.clear();
            }
        }
        // One after the other, or all at once.
        let groups = if self.luck.odds(500) { vec![1; calls.len()] } else { vec![] };
        Answer { text, calls, groups, astray: false, bill: Bill::default(), partial: false }
    }

    fn run_tools(&mut self, session: &mut Session, attempt: u32, calls: Vec<ToolCall>) -> Flow {
        let id = self.p().number();
        let mut until = self.time;
        for call in calls {
            let took = self.luck.between(10, 8_000);
            until = until.max(Millis(self.time.0 + took));
            // Its effect is there from the start; what is lost in a crash is only the news of it.
            if call.name == "write" {
                *self.world.effects.entry(call.id.clone()).or_default() += 1;
                self.truth.tool_ran(&self.world, &call.id)?;
            }
            self.report_in(session.key.clone(), id, Report::ToolEnded { attempt, call }, took);
        }
        session.work = Some(Work { id, text: String::new(), since: self.time, until });
        Ok(())
    }

    fn report_in(&mut self, key: SessionKey, work: u64, report: Report, millis: u64) {
        self.later(Event::Report { life: self.life, key, work, report: Box::new(report) }, millis);
    }

    /// Dropping the work ends it: what it still says is heard by nobody.
    pub(crate) fn reported(&mut self, key: &SessionKey, work: u64, report: Report) -> Flow {
        let Some(mut session) = self.p().sessions.remove(key) else { return Ok(()) };
        let current = session.work.as_ref().is_some_and(|it| it.id == work);
        if (current || self.bug == Some(Bug::HearsOldWork)) && !session.parked {
            let before = self.disk_is_full().then(|| session.clone());
            let heard = self.report(&mut session, report.clone());
            match heard.and_then(|()| self.begin_all(&mut session)) {
                Err(Halt::Full) => {
                    self.wait_for_room(key, before);
                    self.report_in(key.clone(), work, report, STORE_RETRY);
                    return Ok(());
                }
                heard => heard?,
            }
        }
        self.p().sessions.insert(key.clone(), session);
        Ok(())
    }

    fn report(&mut self, session: &mut Session, report: Report) -> Flow {
        match report {
            Report::Answered { attempt, answer } => {
                session.work = None;
                self.feed(session, Turning::Answered { attempt, answer })
            }
            Report::Failed { attempt } => {
                session.work = None;
                let notice = "The model cannot be had just now.".to_owned();
                self.feed(session, Turning::CallFailed { attempt, notice })
            }
            Report::ToolEnded { attempt, call } => {
                let steering =
                    if is_last(session, &call.id) { std::mem::take(&mut session.steering) } else { vec![] };
                let steer = steering.iter().map(|it| (it.id, it.inbound.text.clone())).collect();
                let (content, effect) = ("done".to_owned(), EffectState::Known);
                let end = ToolEnd { content, effect, progress: Progress::Changed };
                self.feed(session, Turning::ToolEnded { attempt, call: call.id, end, steer })
            }
        }
    }

    /// What the author has seen of the answer so far.
    pub(crate) fn shown(&self, session: &Session) -> String {
        if !self.plan.streaming {
            return String::new();
        }
        session.work.as_ref().map(|work| growing(work, self.time)).unwrap_or_default()
    }
}

/// Whether the model is asked again as soon as this call has its result.
fn is_last(session: &Session, call: &String) -> bool {
    match session.turn.as_ref().map(|turn| &turn.phase) {
        Some(Phase::Acting { open, .. }) => open.as_slice() == std::slice::from_ref(call),
        Some(Phase::Thinking | Phase::Over) | None => false,
    }
}

/// As much of a text as its time allows.
pub(crate) fn growing(work: &Work, now: Millis) -> String {
    let (gone, all) = (now.0.saturating_sub(work.since.0), (work.until.0 - work.since.0).max(1));
    let count = work.text.chars().count() as u64 * gone.min(all) / all;
    work.text.chars().take(usize::try_from(count).unwrap_or_default()).collect()
}
