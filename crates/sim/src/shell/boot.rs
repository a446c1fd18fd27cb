//! `boot.rs`, `start.rs`, `resume.rs`, `completions.rs`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use petasos_core::lifecycle::Event as Life;
use petasos_core::lifecycle::boots::{Guard, Resume};
use petasos_core::lifecycle::marker::Marker;
use petasos_core::message::Delivery;
use petasos_core::session::{CrashRecovery, Window};
use petasos_core::turn::Limits;
use petasos_core::{Platform, TurnId};
use petasos_store::{Booted, Candidate, Found, Hold, Scope, Terms};

use super::{Event, Gate, Line, Process, STORE_RETRY, Word};
use crate::outside::Class;
use crate::plant::Bug;
use crate::relay::{self, Near};
use crate::sim::{Flow, Sim};

impl Sim {
    pub(crate) fn boot(&mut self) -> Flow {
        if self.process.is_some() {
            return Ok(());
        }
        let store = self.open();
        self.process = Some(Process {
            store,
            gate: Gate::default(),
            sessions: BTreeMap::new(),
            lanes: BTreeMap::new(),
            lines: BTreeMap::new(),
            near: Near::new(self.now),
            waiting: BTreeMap::new(),
            started_at: self.now,
            held: Default::default(),
            penalties: Default::default(),
            stop: None,
            stopping: false,
            numbers: u64::from(self.life) * 1_000_000,
        });
        let found = Found { clean: std::mem::take(&mut self.clean), ..Found::default() };
        let now = self.now;
        let mut boots = self.boots.clone();
        let stable = Guard::default().stable;
        let hold = match boots.record(Guard::default(), now) {
            Resume::AtOnce => Hold { scope: Scope::LastTry, pause: stable, stable },
            Resume::OneByOne { pause, .. } => Hold { scope: Scope::All, pause, stable },
        };
        let terms = Terms {
            crash_recovery: CrashRecovery::Journal,
            window: Window::default(),
            limits: Limits::default(),
            hold,
        };
        let clean = found.clean;
        let booted = self.commit("take over", move |tx| tx.take_over(&found, &terms, |_, _| Ok(true), now));
        let Some(Booted { due, candidates, held, penalties, report }) = Self::unless_full(booted)? else {
            // Without its store nothing starts. What was left for it is still there.
            self.clean = clean;
            self.gone();
            self.soon(Event::Boot, 1_000, 20_000);
            return Ok(());
        };
        let process = self.process.as_ref().expect("just started");
        self.truth.started(&self.world, &process.store)?;
        let marker = self.drain_asked.then(Marker::default);
        let process = self.p();
        for penalty in penalties {
            process.penalties.add(penalty, now);
        }
        process.gate.life = std::mem::take(&mut process.gate.life).step(now, Life::Marker(marker)).0;
        process.gate.life = std::mem::take(&mut process.gate.life).step(now, Life::Started).0;
        process.waiting = candidates;
        if report.suspects > 0 {
            self.boots = boots;
        }
        if !held.is_empty() {
            self.figures.held += held.len() as u64;
            self.p().held = held.into();
            self.later(Event::Release { life: self.life }, hold.pause.as_millis() as u64);
        }
        let served: &[Class] =
            if self.plan.relayed { &[Class::Relayed] } else { &[Class::Plain, Class::Keyed] };
        if let Some(doze) = self.plan.doze {
            self.later(Event::Relay(relay::Event::Doze { life: self.life }), doze.tick);
        }
        for class in served {
            self.p().lines.insert(class.platform(), Line::default());
            self.feed_link(class.platform(), petasos_core::link::Event::Start)?;
        }
        for lane in due {
            self.lane_due(lane);
        }
        // What needs no link goes on at once: the page, and scheduled work.
        for own in [Class::Pull.platform(), super::cron::channel()] {
            let there = self.p().waiting.remove(&own).unwrap_or_default();
            self.take_up(there);
        }
        self.soon(Event::HandOver { life: self.life }, 0, 50);
        self.cron_soon();
        Ok(())
    }

    /// `resume::take_up`.
    pub(crate) fn take_up(&mut self, candidates: Vec<Candidate>) {
        for candidate in candidates {
            match candidate {
                Candidate::Turn(key) => self.tell(key, Word::Resume),
                Candidate::Waiting(key) => self.tell(key, Word::Look),
                // Only of a session taken over from another gateway.
                Candidate::Marked(_) => {}
            }
        }
    }

    /// `quarantine::run`: one suspect at a time.
    pub(crate) fn release(&mut self) -> Flow {
        if self.bug == Some(Bug::ForgetsSuspects) || self.p().held.is_empty() {
            return Ok(());
        }
        let next = (0..self.p().held.len()).find(|at| {
            let platform = self.process.as_ref().map(|process| process.held[*at].platform);
            platform.is_some_and(|platform| self.reachable(platform))
        });
        let Some(suspect) = next.and_then(|at| self.p().held.remove(at)) else {
            self.later(Event::Release { life: self.life }, 1_000);
            return Ok(());
        };
        let stable = Guard::default().stable.as_millis() as u64;
        self.later(Event::Stable { life: self.life, turn: suspect.turn }, stable);
        self.tell(suspect.key, Word::Resume);
        Ok(())
    }

    /// `quarantine::try_alone`, its end. A disk that refuses leaves the suspect on trial.
    pub(crate) fn stable(&mut self, turn: TurnId) -> Flow {
        let cleared = self.commit("clear suspect", move |tx| tx.clear_suspect(turn));
        let wait = if Self::unless_full(cleared)?.is_some() { 0 } else { STORE_RETRY };
        self.later(Event::Release { life: self.life }, wait);
        Ok(())
    }

    fn reachable(&self, platform: Platform) -> bool {
        let up = |process: &Process| process.lines.get(&platform).is_some_and(Line::is_up);
        platform == super::cron::channel()
            || Class::of(platform).delivery() == Delivery::Pull
            || self.process.as_ref().is_some_and(up)
    }

    /// `completions::hand_over`.
    pub(crate) fn hand_over(&mut self) -> Flow {
        let waiting = self.p().store.queued_completions().unwrap_or_default();
        let waiting: Vec<_> = waiting.into_iter().filter(|it| self.reachable(it.origin.platform)).collect();
        if waiting.is_empty() {
            return Ok(());
        }
        let now = self.now;
        if self.bug == Some(Bug::DeliveredFirst) {
            let early: Vec<_> = waiting.iter().map(|it| it.dispatch.clone()).collect();
            self.commit("completions delivered", move |tx| {
                early.iter().try_for_each(|dispatch| tx.completion_consumed(dispatch, now).map(drop))
            })?;
            let seen = RefCell::new(vec![]);
            let accepted = self.commit("completions", |tx| {
                let inbound = |it: &petasos_store::Completion| {
                    let dedup = format!("completion:{}", it.dispatch);
                    petasos_core::Inbound::internal(it.origin.clone(), dedup, it.payload.clone())
                };
                for it in &waiting {
                    let id = tx.accept(&inbound(it), &it.key, now)?.id();
                    seen.borrow_mut().push((it.payload.clone(), id));
                }
                Ok(waiting.iter().map(|it| it.key.clone()).collect::<Vec<_>>())
            });
            seen.into_inner().iter().for_each(|(text, id)| self.witness_completion(text, *id));
            accepted?.into_iter().for_each(|key| self.tell(key, Word::Look));
            return Ok(());
        }
        let seen = RefCell::new(vec![]);
        let handed = self.commit("completions", |tx| {
            let all = waiting.iter().map(|it| tx.hand_over(it.clone(), it.payload.clone(), now));
            let handed: Vec<_> = all.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
            seen.replace(handed.iter().map(|it| (it.inbound.text.clone(), it.id)).collect());
            Ok(handed)
        });
        seen.into_inner().iter().for_each(|(text, id)| self.witness_completion(text, *id));
        let Some(handed) = Self::unless_full(handed)? else {
            self.later(Event::HandOver { life: self.life }, STORE_RETRY);
            return Ok(());
        };
        for pending in handed {
            self.tell(pending.key.clone(), Word::Arrived(Box::new(pending)));
        }
        Ok(())
    }

    /// Somebody's background work ends: a row, then the bell.
    pub(crate) fn work_ends(&mut self, number: usize) -> Flow {
        if self.process.as_ref().is_none_or(|process| process.stopping) {
            self.later(Event::WorkEnds(number), 2_000);
            return Ok(());
        }
        let source = self.world.source(self.world.ended[number].chat, "u0");
        let key = petasos_core::session::session_key(&source, &Default::default());
        let (now, payload) = (self.now, format!("[c{number}] is done"));
        let reported = self.commit("work ended", move |tx| {
            tx.complete_work(&format!("d{number}"), (&key, None), &source, "process", &payload, now).map(drop)
        });
        if reported.is_err() {
            // Whoever ran it reports again if we die meanwhile; a second report is the first one.
            self.later(Event::WorkEnds(number), 1_000);
        }
        if Self::unless_full(reported)?.is_none() {
            return Ok(());
        }
        self.reported.insert(number);
        self.soon(Event::HandOver { life: self.life }, 0, 20);
        Ok(())
    }
}
