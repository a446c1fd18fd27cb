//! Events around the process, and the decision when everything is idle.

use std::time::Duration;

use petasos_core::cron::NewJob;
use petasos_core::message::Attachment;
use petasos_core::{Inbound, Millis, Platform};
use petasos_gateway::home::drain;
use petasos_runtime::clock;
use petasos_store::Reader;

use super::files;
use super::state::{Event, Outside, Stage, State};
use crate::figures::START;
use crate::home::Moment;
use crate::outside::{Class, Said};
use crate::promise::Promise;
use crate::relay::Relay;
use crate::script::{Scripted, Whose};

/// So long after the last fault everything must have come to rest, in milliseconds.
const REST: u64 = 4 * 3_600_000;
/// A token of a gateway whose clock is so far ahead, in milliseconds, counts as one that is good for too long: see
/// `petasos_relay::token::LONGEST_LIFE`.
const REFUSED_AHEAD: i64 = 590_000;
/// How often it is looked whether everything has come to rest, or a link is not what it says.
const LOOK: u64 = 1_000;

impl Outside {
    /// The world: what is scripted happens, until everything is at rest or a promise is broken.
    pub(super) async fn run(self) -> Result<(), (Promise, String, Millis)> {
        let began = clock::monotonic();
        let last = self.lock().plan.span + REST;
        loop {
            let (next, now) = {
                let state = self.lock();
                (state.next_event(), state.elapsed())
            };
            let until = next.unwrap_or(u64::MAX).min(now + LOOK);
            tokio::select! {
                biased;
                () = self.alarm.notified() => {}
                () = tokio::time::sleep_until(began + Duration::from_millis(until)) => {}
            }
            loop {
                if let Some(violation) = self.lock().take_violation() {
                    return Err(violation);
                }
                let Some(event) = self.lock().due_event() else { break };
                self.happens(event);
            }
            self.look_at_links();
            self.look_at_connector();
            let mut state = self.lock();
            let over = state.elapsed() > last;
            if state.calm && (over || state.is_at_rest()) {
                let at = state.time();
                let end = state.final_check();
                if let Err((promise, what)) = end {
                    return Err((promise, what, at));
                }
                if over {
                    return Err((Promise::G2, "it never comes to rest".into(), at));
                }
                return Ok(());
            }
        }
    }

    fn happens(&self, event: Event) {
        let mut state = self.lock();
        state.note(&format!("{event:?}"));
        match event {
            Event::Scripted(event) => {
                drop(state);
                self.scripted(event);
            }
            Event::Submit(number) => state.submit(self, number),
            Event::Acknowledged(number) => state.world.said[number].acked = true,
            Event::Kill => {
                let most = u64::from(state.plan.crashes);
                if state.calm || state.figures.crashes >= most {
                    return;
                }
                match state.stage {
                    Stage::Down => state.crash_while_down(),
                    Stage::Starting | Stage::Up(_) => state.crash(Moment::Now),
                }
            }
            Event::Boot => {
                drop(state);
                self.boot();
            }
            Event::NewJob(number) => state.new_job(self, number),
            Event::StartRun(number) => state.ask_for_run(self, number),
            Event::StartConnector => {
                drop(state);
                self.start_connector();
            }
            Event::KillConnector => {
                let most = u64::from(state.plan.crashes);
                if !state.calm && !state.relay().is_down() && state.figures.crashes < most {
                    state.crash_connector(Moment::Now);
                }
            }
            Event::Poke => {
                let odds = state.plan.poll_odds;
                // A process that is still shutting down misses the call.
                if !state.fails(odds) && std::mem::take(&mut state.asleep) {
                    state.soon(Event::Boot, 200, 8_000);
                }
            }
        }
    }

    fn scripted(&self, event: Scripted) {
        let mut state = self.lock();
        match event {
            Scripted::Say(number) => {
                state.written(number);
                if state.world.chats[state.world.said[number].chat].class == Class::Pull {
                    state.soon(Event::Submit(number), 0, 50);
                }
            }
            Scripted::NewJob(number) => state.new_job(self, number),
            Scripted::StartRun(number) => state.ask_for_run(self, number),
            Scripted::StopRun(number) => state.stop_run(number),
            Scripted::Drain { on } => state.drain(on),
            Scripted::Leave(why) => {
                if let Some(handle) = state.handle() {
                    let now = state.time();
                    state.leaving.get_or_insert(now);
                    drop(state);
                    handle.shut_down(why, None);
                }
            }
            Scripted::Disk { whose: Whose::Gateway, full } => state.full = full,
            Scripted::Disk { whose: Whose::Connector, full } => state.relay().full = full,
            Scripted::Clock { whose, by } => state.clock_is_set(whose, by),
            Scripted::Boot => {
                drop(state);
                self.boot();
            }
            Scripted::Calm => {
                state.calm = true;
                state.full = false;
                state.drain(false);
                let ahead = state.ahead;
                if let Some(relay) = &mut state.relay {
                    (relay.full, relay.ahead) = (false, ahead);
                }
                state.show_clocks();
            }
            Scripted::WorkEnds(number) => {
                state.wanted.insert(number);
            }
            Scripted::ConnectorStarts => state.soon(Event::StartConnector, 0, 1_000),
        }
    }
}

impl Outside {
    /// A link counts as up only if something came in, and is tried for ever.
    fn look_at_links(&self) {
        let state = self.lock();
        let Some(handle) = state.handle() else { return };
        let now = state.time().0.saturating_add_signed(state.ahead);
        let set = state.figures.jumps > 0;
        let true_now = state.time();
        let checks = handle.link_states().into_iter().map(|it| {
            let class = Platform::parse(it.name).map(Class::of);
            let heard = class.and_then(|class| state.heard.get(&class)).map(|at| true_now.since(*at));
            state.truth.link_state(&it.link, heard, set, Millis(now))
        });
        let check = checks.collect::<Result<Vec<_>, _>>().map(drop);
        drop(state);
        self.check(check);
    }
}

impl State {
    /// A drain is requested or cancelled: a file in the home.
    fn drain(&mut self, on: bool) {
        let now = self.time();
        self.drained_since = on.then(|| self.drained_since.unwrap_or(now));
        let files = self.home.files();
        if !files.is_dir() {
            return;
        }
        let asked = if on {
            drain::write(files, &drain::DrainRequest::default(), now).map(drop)
        } else {
            drain::clear(files).map(drop)
        };
        asked.expect("a marker in the home");
        self.home.observe();
    }

    /// Sets a clock. A gateway far ahead of its connector is refused for good (see [`REFUSED_AHEAD`]) until a person sets
    /// the clock right, so such a jump moves both clocks.
    fn clock_is_set(&mut self, whose: Whose, by: i64) {
        self.figures.jumps += 1;
        let theirs = self.relay.as_ref().map(|relay| relay.ahead);
        let alone = match (whose, theirs) {
            (Whose::Gateway, Some(theirs)) => self.ahead + by - theirs < REFUSED_AHEAD,
            (Whose::Connector, Some(theirs)) => self.ahead - theirs - by < REFUSED_AHEAD,
            (_, None) => true,
        };
        if whose == Whose::Gateway || !alone {
            self.ahead += by;
        }
        if let Some(relay) = &mut self.relay
            && (whose == Whose::Connector || !alone)
        {
            relay.ahead += by;
        }
        self.show_clocks();
    }

    fn show_clocks(&mut self) {
        self.simulation.set_clock(self.process(), self.ahead);
        if let Some(relay) = &self.relay {
            self.simulation.set_clock(relay.process(), relay.ahead);
        }
    }

    fn submit(&mut self, outside: &Outside, number: usize) {
        if self.world.said[number].acked {
            return;
        }
        // A sender without a reply tries again.
        self.later(Event::Submit(number), 3_000);
        let Some(handle) = self.handle() else { return };
        let inbound = self.inbound(number);
        let outside = outside.clone();
        drop(self.simulation.spawn_in(self.process(), async move {
            if handle.submit(inbound).await.is_ok() {
                outside.lock().soon(Event::Acknowledged(number), 0, 100);
            }
        }));
    }

    /// A job that runs every minute or so, a few times.
    fn new_job(&mut self, outside: &Outside, number: usize) {
        if self.world.errands[number].made {
            return;
        }
        self.later(Event::NewJob(number), 2_000);
        let Some(handle) = self.handle() else { return };
        let errand = self.world.errands[number].clone();
        let source = self.world.source(errand.chat, "u0");
        let new = NewJob {
            name: Some(format!("j{number}")),
            schedule: format!("every {}m", errand.minutes),
            prompt: format!("say [j{number}]"),
            repeat: Some(errand.runs),
            ..NewJob::default()
        };
        let name = new.name.clone();
        let outside = outside.clone();
        drop(self.simulation.spawn_in(self.process(), async move {
            // A client without a reply looks first.
            let Ok(jobs) = handle.jobs().await else { return };
            let known = jobs.iter().any(|it| Some(&it.job.name) == name.as_ref());
            let known = known || outside.lock().truth.has_run(number);
            if known || handle.job_create(new, Some(source)).await.is_ok() {
                outside.lock().world.errands[number].made = true;
            }
        }));
    }

    pub(super) fn inbound(&self, number: usize) -> Inbound {
        let said = &self.world.said[number];
        let mut source = self.world.source(said.chat, &said.user);
        source.message_id = Some(format!("in{number}"));
        let file = Attachment {
            kind: "document".into(),
            reference: files::name(number),
            name: Some(files::name(number)),
            ..Attachment::default()
        };
        Inbound {
            sent_at: Some(said.at),
            attachments: said.file.then_some(file).into_iter().collect(),
            ..Inbound::new(source, format!("bot:{number}"), said.text.clone())
        }
    }

    /// Nothing is under way that could still change what people see.
    fn is_at_rest(&self) -> bool {
        let accepted = |said: &Said| said.written && (said.inbox.is_some() || said.aside) && said.acked;
        if !self.has_ended_well()
            || !self.relay.as_ref().is_none_or(Relay::is_at_rest)
            || self.leaving.is_some()
            || !self.world.said.iter().all(accepted)
            || !self.world.errands.iter().all(|errand| errand.made)
            || !self.world.runs.iter().all(|run| run.ended.is_some())
        {
            return false;
        }
        let Ok(store) = self.reader() else { return false };
        store.backlog().is_ok_and(|it| it.queued + it.claimed == 0)
            && store.outbox_counts().is_ok_and(|it| it.due + it.sending + it.streaming == 0)
            && store.queued_completions().is_ok_and(|it| it.is_empty())
            && store.job_count().is_ok_and(|count| count == 0)
            && store.unreported_occurrences().is_ok_and(|it| it.is_empty())
            && store.open_turns().is_ok_and(|it| it.is_empty())
    }

    /// It runs, or sleeps until it is needed.
    const fn has_ended_well(&self) -> bool {
        self.asleep || matches!(self.stage, Stage::Up(_))
    }

    fn final_check(&mut self) -> Result<(), (Promise, String)> {
        let panics = self.simulation.panics();
        if let Some(first) = panics.first() {
            return Err((Promise::G2, format!("a task panicked: {first}")));
        }
        if !self.has_ended_well() {
            return Err((Promise::G2, "the process never came back".into()));
        }
        let store = self.reader().map_err(|error| (Promise::G1, format!("no database: {error}")))?;
        self.truth.end(&self.world, &store)?;
        self.runs_have_ended(&store)
    }

    pub(super) fn reader(&self) -> Result<Reader, petasos_store::OpenError> {
        Reader::open(self.home.files().join(petasos_gateway::DATABASE))
    }

    /// In how many milliseconds somebody writes next, at most so many.
    pub(super) fn until_somebody_writes(&self, most: u64) -> u64 {
        let now = self.elapsed() + START.0;
        let coming = self.world.said.iter().filter(|it| !it.written && it.at.0 > now);
        coming.map(|it| it.at.0 - now).min().unwrap_or(most).min(most)
    }
}
