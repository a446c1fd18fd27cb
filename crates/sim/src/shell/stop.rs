//! `stop.rs`, `running.rs`, `lookout.rs`: drains, and how the process leaves in order.

use petasos_core::journal::Write;
use petasos_core::lifecycle::marker::Marker;
use petasos_core::lifecycle::{Event as Life, Leave, stop_budget};
use petasos_core::message::Delivery;
use petasos_core::outbox::{Draft, Kind};

use super::{DRAIN_TIMEOUT, Event, Stop};
use crate::plant::Bug;
use crate::promise::Promise;
use crate::sim::{Flow, Halt, Sim};

impl Sim {
    /// Somebody writes the marker, or takes it away.
    pub(crate) fn drain(&mut self, on: bool) {
        self.drain_asked = on;
        let now = self.now;
        let Some(process) = &mut self.process else { return };
        let marker = on.then(Marker::default);
        process.gate.life = std::mem::take(&mut process.gate.life).step(now, Life::Marker(marker)).0;
        if !on && self.bug == Some(Bug::ForgetsHeld) {
            return;
        }
        self.gate_moved();
        self.cron_soon();
    }

    pub(crate) fn leave(&mut self, why: Leave) -> Flow {
        let (now, time) = (self.now, self.time);
        if self.process.as_ref().is_none_or(|process| process.stop.is_some()) {
            return Ok(());
        }
        let process = self.p();
        process.gate.life = std::mem::take(&mut process.gate.life).step(now, Life::Leave(why)).0;
        let worked: std::collections::BTreeMap<_, _> = process
            .gate
            .holders
            .iter()
            .filter_map(|(key, turn)| turn.map(|turn| (turn, key.clone())))
            .collect();
        // However the clock is set meanwhile.
        let deadline = time.after(DRAIN_TIMEOUT);
        let (drained, parting, sleeps) = (false, false, false);
        process.stop = Some(Stop {
            why,
            since: time,
            deadline,
            marked: vec![],
            worked: worked.clone(),
            drained,
            parting,
            sleeps,
        });
        self.go_idle()?;
        let (keys, reason) = (worked.values().cloned().collect::<Vec<_>>(), why.resume_reason());
        // A disk that refuses must not keep us here.
        let marked = self.commit("mark at work", move |tx| tx.mark_at_work(keys.clone(), &reason, now));
        let marked = Self::unless_full(marked)?.unwrap_or_default();
        if let Some(stop) = &mut self.p().stop {
            stop.marked = marked;
        }
        let turns: Vec<_> = worked.keys().copied().collect();
        let due = self.commit("banners", move |tx| {
            let (mut writes, mut due) = (vec![], vec![]);
            for turn in &turns {
                let Some(turn) = tx.turn(*turn)?.map(|it| it.turn) else { continue };
                if turn.route.delivery == Delivery::Push {
                    due.push(turn.route.lane());
                    let (route, text) = (turn.route, why.banner().to_owned());
                    let key = Some(turn.key);
                    writes.push(Write::Owe(Draft {
                        route,
                        session_key: key,
                        turn: None,
                        kind: Kind::Banner,
                        text,
                        buttons: vec![],
                    }));
                }
            }
            tx.apply(&writes, now)?;
            Ok(due)
        });
        Self::unless_full(due)?.unwrap_or_default().into_iter().for_each(|lane| self.lane_due(lane));
        self.gate_moved();
        self.later(Event::StopTick { life: self.life }, deadline.0 - time.0);
        Ok(())
    }

    /// Waits until nobody works any more, or their time is over; then says goodbye.
    pub(crate) fn stop_tick(&mut self) -> Flow {
        let now = self.time;
        let process = self.p();
        let Some(stop) = &mut process.stop else { return Ok(()) };
        let quiet = process.gate.holders.is_empty();
        if stop.parting || !(quiet || now >= stop.deadline) {
            return Ok(());
        }
        stop.parting = true;
        stop.drained = quiet;
        stop.worked.extend(
            process.gate.holders.iter().filter_map(|(key, turn)| turn.map(|turn| (turn, key.clone()))),
        );
        self.soon(Event::Part { life: self.life }, 0, 5_000);
        Ok(())
    }

    /// Everything that runs is ended; the journal knows who was cut off.
    pub(crate) fn part(&mut self) -> Flow {
        let now = self.now;
        let process = self.p();
        process.stopping = true;
        process.sessions.clear();
        process.lines.clear();
        self.relay_drop();
        let Some(stop) = &self.p().stop else { return Ok(()) };
        let (marked, worked, reason) = (stop.marked.clone(), stop.worked.clone(), stop.why.resume_reason());
        Self::unless_full(
            self.commit("close books", move |tx| tx.close_books(&marked, &worked, &reason, now)),
        )?;
        // Sends under way have a moment for their answers.
        self.soon(Event::End { life: self.life }, 100, 5_000);
        Ok(())
    }

    pub(crate) fn end(&mut self) -> Flow {
        Self::unless_full(self.commit("drop banners", |tx| tx.drop_banners()))?;
        let Some(stop) = self.p().stop.take() else { return Ok(()) };
        let took = self.time.since(stop.since);
        if took > stop_budget(DRAIN_TIMEOUT) {
            return Err(Halt::broken(Promise::G6, format!("a stop took {} s", took.as_secs())));
        }
        self.clean = stop.drained && stop.why != Leave::Failure;
        self.figures.stops += 1;
        self.gone();
        self.asleep = stop.sleeps;
        if !self.asleep {
            self.soon(Event::Boot, 200, 20_000);
        }
        Ok(())
    }
}
