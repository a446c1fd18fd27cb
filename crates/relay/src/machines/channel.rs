//! The gateway's end of the relay: one connection to a connector, kept up, idled and resumed. Every dial has a
//! generation; events of older ones are ignored. Nothing is stored: the connector redelivers unacknowledged events.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::close;
use petasos_core::link::reconnect::{ReconnectPolicy, Reconnector, ResumeHint};
use petasos_core::time::Millis;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    New,
    Dialing,
    /// Hellos sent, no descriptor yet.
    Handshaking {
        since: Millis,
    },
    Serving {
        since: Millis,
        idle: Idle,
    },
    /// Redials at `until`. `dormant`: closed on purpose.
    Waiting {
        until: Millis,
        dormant: bool,
    },
    /// The connector refuses this gateway; only an operator can change that.
    Revoked,
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Idle {
    No,
    Asked {
        until: Millis,
    },
    /// Requested and given up; a late grant is possible.
    GivenUp,
    /// The connector holds events for the next connection; frames from the gateway are still processed.
    Granted,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChannelPolicy {
    pub redial: ReconnectPolicy,
    pub dormant: Duration,
    pub handshake: Duration,
    /// Minimum wait after another process of this gateway superseded the connection.
    pub superseded: Duration,
}

impl Default for ChannelPolicy {
    fn default() -> Self {
        Self {
            redial: ReconnectPolicy::relay(Duration::from_secs(1), Duration::from_secs(30)),
            dormant: Duration::from_secs(1),
            handshake: Duration::from_secs(30),
            superseded: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Connect,
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
    /// Buffered events were dropped and must be redelivered; the others are stored.
    Overflowed {
        generation: u64,
    },
    IdleAck {
        generation: u64,
    },
    GoIdle {
        wait: Duration,
    },
    /// Close after a grant; redial after `hold`, or after the dormant wait.
    Sleep {
        hold: Option<Duration>,
    },
    /// Reconnect: the grant is not used, or sleep ends.
    Wake,
    Disconnect,
    Tick,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed {
    pub code: u16,
    pub expired: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Dial {
        generation: u64,
    },
    Hello,
    Up,
    GoingIdle,
    /// To all callers that requested idling.
    Answer {
        granted: bool,
    },
    /// Pending requests get no answer; their outcome is unknown.
    Abandon,
    Close,
    /// Final: the first dial failed, or the channel is shut down.
    GiveUp,
    Revoked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Channel {
    pub state: State,
    pub generation: u64,
    redial: Reconnector,
    /// A descriptor was received in this process, so the connector knows this gateway.
    wanted: bool,
}

impl Channel {
    /// `wanted`: an earlier channel of this process had a descriptor.
    pub const fn new(wanted: bool, terms: &ChannelPolicy) -> Self {
        Self { state: State::New, generation: 0, redial: Reconnector::new(terms.redial), wanted }
    }

    pub const fn wanted(&self) -> bool {
        self.wanted
    }

    pub fn due(&self, terms: &ChannelPolicy) -> Option<Millis> {
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

    pub fn step(
        mut self,
        now: Millis,
        roll: u64,
        event: Event,
        terms: &ChannelPolicy,
    ) -> (Self, Vec<Effect>) {
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
                (self, vec![]) // an event of an older connection
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
                State::Dialing => self.ended(now, roll, ResumeHint::Resume, vec![]),
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

    fn tick(self, now: Millis, roll: u64, terms: &ChannelPolicy) -> (Self, Vec<Effect>) {
        if self.due(terms).is_none_or(|due| now < due) {
            return (self, vec![]);
        }
        match self.state {
            State::Waiting { .. } => self.dial(vec![]),
            State::Handshaking { .. } => self.ended(now, roll, ResumeHint::Resume, vec![Effect::Close]),
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
            // The connector now holds all events, so this connection is of no use.
            State::Serving { idle: Idle::GivenUp, .. } => self.dial_again(),
            // Not requested. Ignored, so that a misbehaving connector cannot cause rapid redialling.
            State::Serving { idle: Idle::No, .. } => {
                self.ended(now, roll, ResumeHint::Resume, vec![Effect::Abandon, Effect::Close])
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

    fn lost(
        mut self,
        now: Millis,
        roll: u64,
        close: Option<Closed>,
        terms: &ChannelPolicy,
    ) -> (Self, Vec<Effect>) {
        let effects = self.farewell(Effect::Abandon);
        match self.state {
            State::Serving { since, .. } => self.redial.connection_lasted(now.since(since)),
            State::Dialing | State::Handshaking { .. } => {}
            State::New | State::Waiting { .. } | State::Revoked | State::Closed => return (self, vec![]),
        }
        let hint = match close {
            Some(Closed { code: close::UNAUTHORIZED, expired: false }) if self.wanted => ResumeHint::Denied,
            Some(Closed { code: close::SUPERSEDED, .. }) => ResumeHint::RetryAfter(terms.superseded),
            Some(_) | None => ResumeHint::Resume,
        };
        self.ended(now, roll, hint, effects)
    }

    fn ended(
        mut self,
        now: Millis,
        roll: u64,
        hint: ResumeHint,
        mut effects: Vec<Effect>,
    ) -> (Self, Vec<Effect>) {
        match self.redial.next_wait(hint, roll) {
            Some(Duration::ZERO) => self.dial(effects),
            Some(wait) => self.becomes(State::Waiting { until: now.after(wait), dormant: false }, effects),
            None if hint == ResumeHint::Denied => {
                effects.push(Effect::Revoked);
                self.becomes(State::Revoked, effects)
            }
            None => {
                effects.push(Effect::GiveUp);
                self.becomes(State::Closed, effects)
            }
        }
    }

    fn dial_again(self) -> (Self, Vec<Effect>) {
        let effects = self.farewell(Effect::Close);
        self.dial(effects)
    }

    fn dial(self, mut effects: Vec<Effect>) -> (Self, Vec<Effect>) {
        let generation = self.generation + 1;
        effects.push(Effect::Dial { generation });
        Self { generation, ..self }.becomes(State::Dialing, effects)
    }

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
