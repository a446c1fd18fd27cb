//! The gateway's end of the relay: one connection to a connector, kept up, put to sleep and taken up again.
//!
//! Every dial has a number; what an older one still says is ignored. A first dial that fails is the caller's to
//! know of, unless we were connected before; otherwise the channel dials for ever, with growing waits that begin anew only behind a connection that
//! has lasted. Nothing is stored: what the connector did not get an acknowledgement for, it says again.
//!
//! Going idle is asked for and granted. A grant that comes too late (nobody waits for it any more) leaves a connector
//! that keeps everything for the next connection, so there has to be one at once.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::close;
use petasos_core::link::redial::{Hint, Policy, Redial};
use petasos_core::time::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    New,
    Dialing,
    /// The hellos are out; no descriptor yet.
    Handshaking {
        since: Millis,
    },
    Serving {
        since: Millis,
        idle: Idle,
    },
    /// Closed, and dialled again at `until`. `dormant`: on purpose.
    Waiting {
        until: Millis,
        dormant: bool,
    },
    /// The connector does not want us any more: only a person can change that.
    Revoked,
    Closed,
}

/// How far we are with going idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    No,
    Asked {
        until: Millis,
    },
    /// Asked once, and given up: a grant may still come.
    GivenUp,
    /// What comes is kept for the next connection; what we say is still heard.
    Granted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    pub redial: Policy,
    /// The wait of a channel that sleeps.
    pub dormant: Duration,
    pub handshake: Duration,
    /// The least wait after a connection that another process of this gateway took over.
    pub superseded: Duration,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            redial: Policy::relay(Duration::from_secs(1), Duration::from_secs(30)),
            dormant: Duration::from_secs(1),
            handshake: Duration::from_secs(30),
            superseded: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Connect,
    /// The upgrade is done.
    Dialled {
        generation: u64,
    },
    DialFailed {
        generation: u64,
    },
    Descriptor {
        generation: u64,
    },
    Lost {
        generation: u64,
        close: Option<Closed>,
    },
    /// Not everything that came could be kept, and all that could be is: what is missing comes again.
    Overflowed {
        generation: u64,
    },
    IdleAck {
        generation: u64,
    },
    GoIdle {
        wait: Duration,
    },
    /// The grant is used: the connection may go, and is dialled again after `hold` (or the usual wait of one who sleeps).
    Sleep {
        hold: Option<Duration>,
    },
    /// The grant is not used after all, or sleep is over.
    Wake,
    Disconnect,
    Tick,
}

/// How the other end closed the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    pub code: u16,
    /// The token was good once.
    pub expired: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// With a fresh token.
    Dial {
        generation: u64,
    },
    Hello,
    /// The handshake is done: whoever waits for it hears of it.
    Up,
    GoingIdle,
    /// To everybody who asked to go idle.
    Answer {
        granted: bool,
    },
    /// What waits for an answer will not get one; it may have had its effect.
    Abandon,
    Close,
    /// The end: the first dial failed, or there is no other.
    GiveUp,
    Revoked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub state: State,
    pub generation: u64,
    redial: Redial,
    /// There was a descriptor in this process: we were wanted once.
    wanted: bool,
}

impl Channel {
    /// `wanted`: an earlier channel of this process had a descriptor.
    pub const fn new(wanted: bool, terms: &Terms) -> Self {
        Self { state: State::New, generation: 0, redial: Redial::new(terms.redial), wanted }
    }

    pub const fn wanted(&self) -> bool {
        self.wanted
    }

    /// When to tick, if nothing happens before.
    pub fn due(&self, terms: &Terms) -> Option<Millis> {
        match self.state {
            State::Handshaking { since } => Some(since.after(terms.handshake)),
            State::Serving { idle: Idle::Asked { until }, .. } | State::Waiting { until, .. } => Some(until),
            State::Serving { idle: Idle::No | Idle::GivenUp | Idle::Granted, .. }
            | State::New
            | State::Dialing
            | State::Revoked
            | State::Closed => None,
        }
    }

    pub fn step(mut self, now: Millis, roll: u64, event: Event, terms: &Terms) -> (Self, Vec<Effect>) {
        match event {
            Event::Connect => match self.state {
                State::New => self.dial(vec![]),
                State::Dialing
                | State::Handshaking { .. }
                | State::Serving { .. }
                | State::Waiting { .. }
                | State::Revoked
                | State::Closed => (self, vec![]),
            },
            Event::Dialled { generation }
            | Event::DialFailed { generation }
            | Event::Descriptor { generation }
            | Event::Lost { generation, .. }
            | Event::Overflowed { generation }
            | Event::IdleAck { generation }
                if generation != self.generation =>
            {
                (self, vec![]) // a connection that we have left is still talking
            }
            Event::Dialled { .. } => match self.state {
                State::Dialing => self.becomes(State::Handshaking { since: now }, vec![Effect::Hello]),
                State::New
                | State::Handshaking { .. }
                | State::Serving { .. }
                | State::Waiting { .. }
                | State::Revoked
                | State::Closed => (self, vec![]),
            },
            Event::DialFailed { .. } => match self.state {
                State::Dialing if self.generation == 1 && !self.wanted => {
                    self.becomes(State::Closed, vec![Effect::GiveUp])
                }
                State::Dialing => self.ended(now, roll, Hint::Resume, vec![]),
                State::New
                | State::Handshaking { .. }
                | State::Serving { .. }
                | State::Waiting { .. }
                | State::Revoked
                | State::Closed => (self, vec![]),
            },
            Event::Descriptor { .. } => match self.state {
                State::Handshaking { .. } => {
                    let serving = State::Serving { since: now, idle: Idle::No };
                    Self { wanted: true, ..self }.becomes(serving, vec![Effect::Up])
                }
                State::New
                | State::Dialing
                | State::Serving { .. }
                | State::Waiting { .. }
                | State::Revoked
                | State::Closed => (self, vec![]),
            },
            Event::Lost { close, .. } => self.lost(now, roll, close, terms),
            Event::Overflowed { .. } => self.dial_again(),
            Event::IdleAck { .. } => self.granted(now, roll),
            Event::GoIdle { wait } => self.go_idle(now, wait),
            Event::Sleep { hold } => match self.state {
                State::Serving { idle: Idle::Granted, .. } => {
                    let until = now.after(hold.unwrap_or(terms.dormant));
                    self.redial.reset_waits();
                    self.becomes(
                        State::Waiting { until, dormant: true },
                        vec![Effect::Abandon, Effect::Close],
                    )
                }
                State::New
                | State::Dialing
                | State::Handshaking { .. }
                | State::Serving { .. }
                | State::Waiting { .. }
                | State::Revoked
                | State::Closed => (self, vec![]),
            },
            Event::Wake => match self.state {
                State::Waiting { .. } => self.dial(vec![]),
                State::Serving { idle: Idle::Granted, .. } => self.dial_again(),
                State::Serving { idle: Idle::No | Idle::Asked { .. } | Idle::GivenUp, .. }
                | State::New
                | State::Dialing
                | State::Handshaking { .. }
                | State::Revoked
                | State::Closed => (self, vec![]),
            },
            Event::Disconnect => match self.state {
                State::Closed => (self, vec![]),
                State::New
                | State::Dialing
                | State::Handshaking { .. }
                | State::Serving { .. }
                | State::Waiting { .. }
                | State::Revoked => {
                    let effects = self.farewell(Effect::Close);
                    self.becomes(State::Closed, effects)
                }
            },
            Event::Tick => self.tick(now, roll, terms),
        }
    }

    fn tick(self, now: Millis, roll: u64, terms: &Terms) -> (Self, Vec<Effect>) {
        if self.due(terms).is_none_or(|due| now < due) {
            return (self, vec![]);
        }
        match self.state {
            State::Waiting { .. } => self.dial(vec![]),
            State::Handshaking { .. } => self.ended(now, roll, Hint::Resume, vec![Effect::Close]),
            State::Serving { since, idle: Idle::Asked { .. } } => {
                let serving = State::Serving { since, idle: Idle::GivenUp };
                self.becomes(serving, vec![Effect::Answer { granted: false }])
            }
            State::Serving { idle: Idle::No | Idle::GivenUp | Idle::Granted, .. }
            | State::New
            | State::Dialing
            | State::Revoked
            | State::Closed => (self, vec![]),
        }
    }

    fn go_idle(self, now: Millis, wait: Duration) -> (Self, Vec<Effect>) {
        match self.state {
            State::Serving { since, idle: Idle::No | Idle::GivenUp } => {
                let idle = Idle::Asked { until: now.after(wait) };
                self.becomes(State::Serving { since, idle }, vec![Effect::GoingIdle])
            }
            // One question for everybody who asks.
            State::Serving { idle: Idle::Asked { .. }, .. } => (self, vec![]),
            State::Serving { idle: Idle::Granted, .. } => (self, vec![Effect::Answer { granted: true }]),
            State::New
            | State::Dialing
            | State::Handshaking { .. }
            | State::Waiting { .. }
            | State::Revoked
            | State::Closed => (self, vec![Effect::Answer { granted: false }]),
        }
    }

    fn granted(self, now: Millis, roll: u64) -> (Self, Vec<Effect>) {
        match self.state {
            State::Serving { since, idle: Idle::Asked { .. } } => {
                let serving = State::Serving { since, idle: Idle::Granted };
                self.becomes(serving, vec![Effect::Answer { granted: true }])
            }
            // From now on everything is kept for the next connection, and nobody wants to leave this one.
            State::Serving { idle: Idle::GivenUp, .. } => self.dial_again(),
            // We never asked: whatever that is, it is not answered by dialling as fast as we can.
            State::Serving { idle: Idle::No, .. } => {
                self.ended(now, roll, Hint::Resume, vec![Effect::Abandon, Effect::Close])
            }
            State::Serving { idle: Idle::Granted, .. }
            | State::New
            | State::Dialing
            | State::Handshaking { .. }
            | State::Waiting { .. }
            | State::Revoked
            | State::Closed => (self, vec![]),
        }
    }

    fn lost(mut self, now: Millis, roll: u64, close: Option<Closed>, terms: &Terms) -> (Self, Vec<Effect>) {
        let effects = self.farewell(Effect::Abandon);
        match self.state {
            State::Serving { since, .. } => self.redial.stood(now.since(since)),
            State::Dialing | State::Handshaking { .. } => {}
            State::New | State::Waiting { .. } | State::Revoked | State::Closed => return (self, vec![]),
        }
        let hint = match close {
            Some(Closed { code: close::UNAUTHORIZED, expired: false }) if self.wanted => Hint::Denied,
            Some(Closed { code: close::SUPERSEDED, .. }) => Hint::RetryAfter(terms.superseded),
            Some(_) | None => Hint::Resume,
        };
        self.ended(now, roll, hint, effects)
    }

    /// The connection, or the attempt at one, ended.
    fn ended(mut self, now: Millis, roll: u64, hint: Hint, mut effects: Vec<Effect>) -> (Self, Vec<Effect>) {
        match self.redial.after(hint, roll) {
            Some(Duration::ZERO) => self.dial(effects),
            Some(wait) => self.becomes(State::Waiting { until: now.after(wait), dormant: false }, effects),
            None if hint == Hint::Denied => {
                effects.push(Effect::Revoked);
                self.becomes(State::Revoked, effects)
            }
            None => {
                effects.push(Effect::GiveUp);
                self.becomes(State::Closed, effects)
            }
        }
    }

    /// Closes what is open and dials at once.
    fn dial_again(self) -> (Self, Vec<Effect>) {
        let effects = self.farewell(Effect::Close);
        self.dial(effects)
    }

    fn dial(self, mut effects: Vec<Effect>) -> (Self, Vec<Effect>) {
        let generation = self.generation + 1;
        effects.push(Effect::Dial { generation });
        Self { generation, ..self }.becomes(State::Dialing, effects)
    }

    /// What those who wait hear when a connection ends.
    fn farewell(&self, last: Effect) -> Vec<Effect> {
        let waiting = matches!(self.state, State::Serving { idle: Idle::Asked { .. }, .. });
        let answer = waiting.then_some(Effect::Answer { granted: false });
        let abandon = (last != Effect::Abandon).then_some(Effect::Abandon);
        answer.into_iter().chain(abandon).chain([last]).collect()
    }

    fn becomes(self, state: State, effects: Vec<Effect>) -> (Self, Vec<Effect>) {
        (Self { state, ..self }, effects)
    }
}

#[cfg(test)]
#[path = "channel_tests.rs"]
mod tests;
