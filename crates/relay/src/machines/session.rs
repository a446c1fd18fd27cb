//! The connector's end of the relay for one instance: its queue, its current socket, and the idle flag. `step` returns
//! writes, and effects to carry out after their commit. A crash leaves the queue and the idle flag; entries that were
//! sent but not acknowledged are sent again, to the next socket and under the same id.

use alloc::collections::VecDeque;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::close;
use petasos_core::time::Millis;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Buffer id: unique, used in acknowledgements.
    pub id: String,
    pub platform: String,
    pub carries: Carries,
    pub size: u64,
    pub at: Millis,
    pub strikes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    Inbound,
    Forward,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionPolicy {
    /// Store every event until it is acknowledged, even if it is sent at once.
    pub durable_live: bool,
    /// Unacknowledged entries per socket; one while draining.
    pub window: usize,
    pub ack_within: Duration,
    /// Unacknowledged deliveries before an entry is dead-lettered.
    pub strikes: u32,
    /// False for older gateways, which never acknowledge forwards.
    pub forward_within: Duration,
    /// How long an event waits for the hello of its platform.
    pub hello_within: Duration,
    pub most_entries: usize,
    pub most_bytes: u64,
    pub longest_age: Duration,
    /// Between wake calls.
    pub poke_every: Duration,
    pub most_pokes: u32,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self {
            durable_live: true,
            window: 64,
            ack_within: Duration::from_secs(60),
            strikes: 5,
            forward_within: Duration::from_secs(10),
            hello_within: Duration::from_secs(2),
            most_entries: 10_000,
            most_bytes: 64 << 20,
            longest_age: Duration::from_secs(7 * 24 * 3600),
            poke_every: Duration::from_secs(60),
            most_pokes: 10,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A hello on an authenticated socket. The first hello of a newer socket takes over the instance; on the current
    /// socket it adds a platform and ends idling.
    Hello {
        epoch: u64,
        platform: String,
    },
    Arrived(Entry),
    /// From any socket of the instance.
    Acked {
        id: String,
    },
    GoingIdle {
        epoch: u64,
    },
    Closed {
        epoch: u64,
    },
    Tick,
}

/// One transaction, before any effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    Append {
        id: String,
    },
    Delete {
        id: String,
    },
    Strike {
        id: String,
        strikes: u32,
    },
    /// May refer to an entry that was not appended.
    DeadLetter {
        id: String,
        why: DeadLetterReason,
    },
    Flip {
        idle: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadLetterReason {
    Full,
    Old,
    NotAcknowledged,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    Deliver {
        epoch: u64,
        id: String,
    },
    /// Sent once, without a buffer id.
    Pass {
        epoch: u64,
        id: String,
    },
    /// After everything delivered on this socket.
    GrantIdle {
        epoch: u64,
    },
    Close {
        epoch: u64,
        code: u16,
    },
    /// Call the wake address: entries wait and no socket is open.
    Poke,
    /// Report a full queue, once until it is empty again.
    Overflowed,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Decision {
    pub writes: Vec<Write>,
    pub effects: Vec<Effect>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Socket {
    epoch: u64,
    opened: Millis,
    platforms: Vec<String>,
    /// The queue was empty once during this socket.
    drained: bool,
}

impl Socket {
    const fn window(&self, terms: &SessionPolicy) -> usize {
        if self.drained { terms.window } else { 1 }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Queued {
    entry: Entry,
    /// On the current socket.
    sent: Option<Millis>,
    /// On any socket; only then an acknowledgement is valid.
    ever: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    socket: Option<Socket>,
    idle: bool,
    queue: VecDeque<Queued>,
    bytes: u64,
    /// This gateway acknowledges forwards.
    acks_forwards: bool,
    overflowed: bool,
    poked: Option<Millis>,
    pokes: u32,
    /// The wake call was made before the last socket closed, so the gateway may have missed it.
    early: bool,
    /// Skip the cooldown once: the last call may have reached a gateway that was shutting down.
    soon: bool,
    left: Option<Millis>,
    looked: Option<Millis>,
}

/// A process may take this long to exit after its socket closed; a wake call in that time is repeated once.
const LEAVING: Duration = Duration::from_secs(5);
/// Longest time between ticks while entries wait; a larger jump means that the clock was set.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Live,
    Draining,
    Idle,
    Gone,
}

impl Session {
    /// `entries` in the order of arrival.
    pub fn recover(entries: impl IntoIterator<Item = Entry>, idle: bool) -> Self {
        let queue: VecDeque<_> =
            entries.into_iter().map(|entry| Queued { entry, sent: None, ever: false }).collect();
        let bytes = queue.iter().map(|queued| queued.entry.size).sum();
        Self { queue, bytes, idle, ..Self::default() }
    }

    pub const fn mode(&self) -> Mode {
        match &self.socket {
            _any if self.idle => Mode::Idle,
            None => Mode::Gone,
            Some(Socket { drained: true, .. }) => Mode::Live,
            Some(Socket { drained: false, .. }) => Mode::Draining,
        }
    }

    pub fn backlog(&self) -> usize {
        self.queue.len()
    }

    pub fn epoch(&self) -> Option<u64> {
        self.socket.as_ref().map(|socket| socket.epoch)
    }

    pub fn due(&self, terms: &SessionPolicy) -> Option<Millis> {
        let head = self.queue.front()?;
        let aged = head.entry.at.after(terms.longest_age);
        let next = match &self.socket {
            None => self.next_poke(terms).filter(|_| self.pokes < terms.most_pokes),
            Some(_) if self.idle => None,
            Some(socket) => {
                let hello = socket.opened.after(terms.hello_within);
                let head = || self.queue.iter().take(socket.window(terms));
                let waits = head().any(|queued| queued.sent.is_none());
                let sent = head().filter_map(|queued| self.overdue(queued, terms));
                sent.chain(waits.then_some(hello)).min()
            }
        };
        let look = self.looked.map_or(aged, |at| at.after(LOOK_EVERY));
        Some(next.map_or(aged, |next| next.min(aged)).min(look))
    }

    pub fn step(&mut self, now: Millis, event: Event, terms: &SessionPolicy) -> Decision {
        let mut decision = Decision::default();
        self.follow_clock(now);
        match event {
            Event::Hello { epoch, platform } => self.hello(now, epoch, platform, &mut decision),
            Event::Arrived(entry) => self.arrived(now, entry, terms, &mut decision),
            Event::Acked { id } => self.acked(&id, terms, &mut decision),
            Event::GoingIdle { epoch } => self.going_idle(epoch, &mut decision),
            Event::Closed { epoch } if self.epoch() == Some(epoch) => self.leave(),
            Event::Closed { .. } => {}
            Event::Tick => self.tick(now, terms, &mut decision),
        }
        self.pump(now, terms, &mut decision);
        decision
    }

    fn hello(&mut self, now: Millis, epoch: u64, platform: String, decision: &mut Decision) {
        match &mut self.socket {
            Some(socket) if socket.epoch > epoch => return,
            Some(socket) if socket.epoch == epoch => {
                if socket.platforms.len() < crate::MOST_IDENTITIES && !socket.platforms.contains(&platform) {
                    socket.platforms.push(platform);
                }
            }
            Some(_) | None => {
                if let Some(old) = self.epoch() {
                    decision.effects.push(Effect::Close { epoch: old, code: close::SUPERSEDED });
                }
                self.leave();
                let platforms = Vec::from([platform]);
                self.socket = Some(Socket { epoch, opened: now, platforms, drained: false });
                (self.pokes, self.early, self.soon) = (0, false, false);
            }
        }
        if core::mem::take(&mut self.idle) {
            decision.writes.push(Write::Flip { idle: false });
            if let Some(socket) = &mut self.socket {
                socket.drained = false;
            }
        }
    }

    fn arrived(&mut self, now: Millis, entry: Entry, terms: &SessionPolicy, decision: &mut Decision) {
        let live = match &self.socket {
            Some(socket) if !self.idle && socket.drained && self.queue.is_empty() => Some(socket.epoch),
            Some(_) | None => None,
        };
        if let Some(epoch) = live.filter(|_| !terms.durable_live) {
            decision.effects.push(Effect::Pass { epoch, id: entry.id });
            return;
        }
        let full = self.queue.len() >= terms.most_entries || self.bytes + entry.size > terms.most_bytes;
        if full {
            decision.writes.push(Write::DeadLetter { id: entry.id, why: DeadLetterReason::Full });
            if !core::mem::replace(&mut self.overflowed, true) {
                decision.effects.push(Effect::Overflowed);
            }
            return;
        }
        decision.writes.push(Write::Append { id: entry.id.clone() });
        self.bytes += entry.size;
        self.queue.push_back(Queued { entry, sent: None, ever: false });
        if self.socket.is_none() || self.idle {
            self.poke(now, terms, decision);
        }
    }

    fn acked(&mut self, id: &str, terms: &SessionPolicy, decision: &mut Decision) {
        // Entries that were sent are at the head.
        let mut head = self.queue.iter().take(terms.window.max(1));
        let Some(at) = head.position(|queued| queued.ever && queued.entry.id == id) else { return };
        let Some(queued) = self.remove(at) else { return };
        self.acks_forwards |= queued.entry.carries == Carries::Forward;
        decision.writes.push(Write::Delete { id: queued.entry.id });
    }

    fn going_idle(&mut self, epoch: u64, decision: &mut Decision) {
        if self.epoch() != Some(epoch) {
            return;
        }
        if !core::mem::replace(&mut self.idle, true) {
            decision.writes.push(Write::Flip { idle: true });
            // The gateway idled as agreed, so its next wake call skips the cooldown.
            (self.poked, self.pokes) = (None, 0);
        }
        decision.effects.push(Effect::GrantIdle { epoch });
    }

    fn tick(&mut self, now: Millis, terms: &SessionPolicy, decision: &mut Decision) {
        while self.queue.front().is_some_and(|head| now >= head.entry.at.after(terms.longest_age)) {
            self.bury(0, DeadLetterReason::Old, decision);
        }
        if self.socket.is_some() && !self.idle {
            self.overdue_now(now, terms, decision);
        }
        if self.socket.is_none() && !self.queue.is_empty() && self.pokes < terms.most_pokes {
            self.poke(now, terms, decision);
        }
    }

    fn overdue_now(&mut self, now: Millis, terms: &SessionPolicy, decision: &mut Decision) {
        loop {
            let late = |queued: &Queued| self.overdue(queued, terms).is_some_and(|due| now >= due);
            let Some(at) = self.queue.iter().take(terms.window).position(late) else { return };
            let queued = &mut self.queue[at];
            if queued.entry.carries == Carries::Forward && !self.acks_forwards {
                if let Some(queued) = self.remove(at) {
                    decision.writes.push(Write::Delete { id: queued.entry.id });
                }
                continue;
            }
            queued.entry.strikes += 1;
            if queued.entry.strikes >= terms.strikes {
                self.bury(at, DeadLetterReason::NotAcknowledged, decision);
                continue;
            }
            let id = queued.entry.id.clone();
            let strikes = queued.entry.strikes;
            decision.writes.push(Write::Strike { id, strikes });
            if let Some(epoch) = self.epoch() {
                decision.effects.push(Effect::Close { epoch, code: close::ACK_TIMEOUT });
            }
            return self.leave();
        }
    }

    fn overdue(&self, queued: &Queued, terms: &SessionPolicy) -> Option<Millis> {
        let forward = queued.entry.carries == Carries::Forward && !self.acks_forwards;
        queued.sent.map(|at| at.after(if forward { terms.forward_within } else { terms.ack_within }))
    }

    /// Sends the head of the queue, up to the window.
    fn pump(&mut self, now: Millis, terms: &SessionPolicy, decision: &mut Decision) {
        if self.queue.is_empty() {
            self.overflowed = false;
        }
        let Some(socket) = &mut self.socket else { return };
        if self.idle {
            return;
        }
        socket.drained |= self.queue.is_empty();
        for queued in self.queue.iter_mut().take(socket.window(terms)).filter(|queued| queued.sent.is_none())
        {
            let greeted = socket.platforms.contains(&queued.entry.platform);
            if !greeted && now < socket.opened.after(terms.hello_within) {
                return; // keeps the order
            }
            (queued.sent, queued.ever) = (Some(now), true);
            decision.effects.push(Effect::Deliver { epoch: socket.epoch, id: queued.entry.id.clone() });
        }
    }

    fn poke(&mut self, now: Millis, terms: &SessionPolicy, decision: &mut Decision) {
        if self.next_poke(terms).is_none_or(|at| now >= at) {
            let leaving = self.left.is_some_and(|left| now.since(left) < LEAVING);
            self.soon = leaving && self.poked.is_none();
            self.early = self.socket.is_some();
            self.poked = Some(now);
            self.pokes = self.pokes.saturating_add(1);
            decision.effects.push(Effect::Poke);
        }
    }

    /// `None`: now.
    fn next_poke(&self, terms: &SessionPolicy) -> Option<Millis> {
        let wait = if self.soon { terms.poke_every.min(LEAVING) } else { terms.poke_every };
        self.poked.map(|at| at.after(wait))
    }

    /// Shifts all times by a clock jump, so that nothing ages or waits because of it.
    fn follow_clock(&mut self, now: Millis) {
        let Some(looked) = self.looked.replace(now) else { return };
        let back = looked.since(now);
        let on = now.since(looked);
        // An empty queue has no ticks, so any time may have passed.
        if back.is_zero() && (self.queue.is_empty() || on <= LOOK_EVERY.saturating_mul(2)) {
            return;
        }
        let shift = |at: &mut Millis| *at = if back.is_zero() { at.after(on) } else { at.before(back) };
        self.poked.iter_mut().chain(&mut self.left).for_each(shift);
        self.socket.iter_mut().for_each(|socket| shift(&mut socket.opened));
        for queued in &mut self.queue {
            shift(&mut queued.entry.at);
            queued.sent.iter_mut().for_each(shift);
        }
    }

    /// Unacknowledged entries go to the next socket.
    fn leave(&mut self) {
        self.socket = None;
        self.left = self.looked;
        if core::mem::take(&mut self.early) {
            self.poked = None;
        }
        for queued in &mut self.queue {
            queued.sent = None;
        }
    }

    fn bury(&mut self, at: usize, why: DeadLetterReason, decision: &mut Decision) {
        if let Some(queued) = self.remove(at) {
            decision.writes.push(Write::DeadLetter { id: queued.entry.id, why });
        }
    }

    fn remove(&mut self, at: usize) -> Option<Queued> {
        let queued = self.queue.remove(at)?;
        self.bytes = self.bytes.saturating_sub(queued.entry.size);
        Some(queued)
    }
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
