//! One platform's connection: when to try, how long to wait, when to stop trying.
//!
//! Every connection has a generation number; what an older generation still says is ignored. A failure
//! that time can heal is retried for ever: fast and with growing waits at first, then as a slow probe.
//! A failure that needs a person stops the link and says why.

use alloc::string::String;
use core::time::Duration;

use serde::{Deserialize, Serialize};

use crate::backoff::{RECONNECT, backoff};
use crate::fault::Fault;
use crate::time::Millis;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Connecting,
    /// Something came in at `last_inbound`: the only proof of life.
    Up {
        since: Millis,
        last_inbound: Millis,
    },
    /// Broken; tried again at `until`. `slow`: the fast attempts are spent.
    Waiting {
        until: Millis,
        slow: bool,
        code: String,
        reason: String,
    },
    /// Needs a person.
    Fatal {
        code: String,
        reason: String,
    },
    /// Stopped by the operator.
    Paused,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    #[serde(flatten)]
    pub state: State,
    pub generation: u64,
    /// Failed attempts in a row.
    pub attempts: u32,
    /// What the connection struggles with, while it has not given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    Start,
    /// An inbound round trip of this generation succeeded.
    Alive {
        generation: u64,
    },
    /// The connection of this generation has trouble and keeps trying.
    Troubled {
        generation: u64,
        reason: String,
    },
    Broke {
        generation: u64,
        fault: Fault,
        code: String,
        reason: String,
    },
    Tick,
    /// The operator, or a change of the network, wants a try now.
    Retry,
    Pause,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Drop what is left of older generations and connect.
    Connect {
        generation: u64,
    },
    Disconnect,
    WakeAt(Millis),
    /// The link has just come up: lanes may send again.
    CameUp,
}

/// Fast attempts before the slow probe.
pub const FAST_ATTEMPTS: u32 = 20;
const SLOW_PROBE: Duration = Duration::from_secs(1800);
/// A wait that lies further ahead was not planned by us: the clock was set back.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

impl Default for Link {
    fn default() -> Self {
        Self { state: State::Connecting, generation: 0, attempts: 0, trouble: None }
    }
}

impl Link {
    /// Its state in the words that are published: `connecting`, `connected`, `retrying`, `paused` or `fatal`.
    pub const fn published(&self) -> &'static str {
        match (&self.state, &self.trouble) {
            (State::Connecting, None) => "connecting",
            (State::Connecting, Some(_)) | (State::Waiting { slow: false, .. }, _) => "retrying",
            (State::Up { .. }, _) => "connected",
            (State::Waiting { slow: true, .. } | State::Paused, _) => "paused",
            (State::Fatal { .. }, _) => "fatal",
        }
    }

    pub fn step(self, now: Millis, roll: u64, event: Event) -> (Self, Option<Effect>) {
        match event {
            Event::Start => self.connect(),
            Event::Alive { generation } if generation == self.generation => self.alive(now),
            Event::Broke { generation, fault, code, reason } if generation == self.generation => {
                self.broke(now, roll, fault, code, reason)
            }
            Event::Troubled { generation, reason } if generation == self.generation => {
                (Self { trouble: Some(reason), ..self }, None)
            }
            // A generation we have left behind is still talking.
            Event::Alive { .. } | Event::Troubled { .. } | Event::Broke { .. } => (self, None),
            Event::Tick => self.tick(now),
            Event::Retry => Self { attempts: 0, ..self }.connect(),
            Event::Pause => (
                Self { state: State::Paused, generation: self.generation + 1, ..self },
                Some(Effect::Disconnect),
            ),
        }
    }

    fn connect(self) -> (Self, Option<Effect>) {
        let generation = self.generation + 1;
        let link = Self { state: State::Connecting, generation, trouble: None, ..self };
        (link, Some(Effect::Connect { generation }))
    }

    fn alive(self, now: Millis) -> (Self, Option<Effect>) {
        match self.state {
            State::Up { since, .. } => {
                (Self { state: State::Up { since, last_inbound: now }, trouble: None, ..self }, None)
            }
            State::Connecting => {
                let state = State::Up { since: now, last_inbound: now };
                (Self { state, attempts: 0, trouble: None, ..self }, Some(Effect::CameUp))
            }
            State::Waiting { .. } | State::Fatal { .. } | State::Paused => (self, None),
        }
    }

    fn broke(
        self,
        now: Millis,
        roll: u64,
        fault: Fault,
        code: String,
        reason: String,
    ) -> (Self, Option<Effect>) {
        let wait = match fault {
            Fault::Fatal => return (Self { state: State::Fatal { code, reason }, ..self }, None),
            Fault::Later { after } => after,
            Fault::Refused => None,
        };
        let attempts = self.attempts.saturating_add(1);
        let slow = attempts > FAST_ATTEMPTS;
        let planned = if slow { SLOW_PROBE } else { backoff(&RECONNECT, attempts, roll) };
        let until = now.after(wait.unwrap_or_default().max(planned).min(LONGEST_WAIT));
        let state = State::Waiting { until, slow, code, reason };
        (Self { state, attempts, ..self }, Some(Effect::WakeAt(until)))
    }

    fn tick(self, now: Millis) -> (Self, Option<Effect>) {
        match self.state {
            State::Waiting { until, .. } if now >= until || until.since(now) > LONGEST_WAIT => self.connect(),
            State::Waiting { until, .. } => (self, Some(Effect::WakeAt(until))),
            State::Connecting | State::Up { .. } | State::Fatal { .. } | State::Paused => (self, None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The roll that leaves a wait as it is.
    const EVEN: u64 = 500;
    const NOW: Millis = Millis(1_000_000);

    fn broke(generation: u64, fault: Fault) -> Event {
        Event::Broke { generation, fault, code: "c".into(), reason: "r".into() }
    }

    fn wait_after(link: &Link) -> u64 {
        match link.state {
            State::Waiting { until, .. } => until.since(NOW).as_secs(),
            State::Connecting | State::Up { .. } | State::Fatal { .. } | State::Paused => 0,
        }
    }

    #[test]
    fn waits_grow_to_five_minutes_and_become_a_slow_probe_after_twenty() {
        let (mut link, _) = Link::default().step(NOW, EVEN, Event::Start);
        let mut waits = alloc::vec![];
        for _ in 0..22 {
            let generation = link.generation;
            link = link.step(NOW, EVEN, broke(generation, Fault::Later { after: None })).0;
            waits.push(wait_after(&link));
            link = link.step(NOW.after(Duration::from_secs(4000)), EVEN, Event::Tick).0;
            assert_eq!(link.state, State::Connecting);
        }
        assert_eq!(waits[..6], [30, 60, 120, 240, 300, 300]);
        assert_eq!(waits[19..], [300, 1800, 1800]);
    }

    #[test]
    fn trouble_is_seen_until_something_comes_in() {
        let (link, _) = Link::default().step(NOW, EVEN, Event::Start);
        let troubled = |generation| Event::Troubled { generation, reason: "refused".into() };
        assert_eq!(link.clone().step(NOW, EVEN, troubled(9)).0.trouble, None);
        let (link, effect) = link.step(NOW, EVEN, troubled(1));
        assert_eq!((link.trouble.as_deref(), effect), (Some("refused"), None));
        assert_eq!(link.step(NOW, EVEN, Event::Alive { generation: 1 }).0.trouble, None);
    }

    #[test]
    fn a_superseded_generation_is_not_heard() {
        let (link, _) = Link::default().step(NOW, EVEN, Event::Start);
        let (link, _) = link.step(NOW, EVEN, Event::Retry);
        let before = link.clone();
        let (link, effect) = link.step(NOW, EVEN, broke(1, Fault::Fatal));
        assert_eq!((link, effect), (before, None));
    }

    #[test]
    fn a_fatal_fault_stops_the_link_until_someone_asks_again() {
        let (link, _) = Link::default().step(NOW, EVEN, Event::Start);
        let (link, effect) = link.step(NOW, EVEN, broke(1, Fault::Fatal));
        assert_eq!(effect, None);
        let (link, effect) = link.step(NOW, EVEN, Event::Tick);
        assert_eq!(effect, None);
        assert_eq!(link.step(NOW, EVEN, Event::Retry).1, Some(Effect::Connect { generation: 2 }));
    }

    #[test]
    fn only_something_coming_in_makes_a_link_alive_and_forgets_failures() {
        let (link, _) = Link::default().step(NOW, EVEN, Event::Start);
        let (link, _) = link.step(NOW, EVEN, broke(1, Fault::Later { after: None }));
        let (link, effect) = link.step(NOW.after(Duration::from_secs(30)), EVEN, Event::Tick);
        assert_eq!(effect, Some(Effect::Connect { generation: 2 }));
        assert_eq!(link.attempts, 1);
        let (link, effect) = link.step(NOW, EVEN, Event::Alive { generation: 2 });
        assert_eq!((link.attempts, effect), (0, Some(Effect::CameUp)));
    }

    #[test]
    fn the_platforms_own_wait_is_honoured_when_longer() {
        let (link, _) = Link::default().step(NOW, EVEN, Event::Start);
        let after = Some(Duration::from_secs(90));
        let (link, _) = link.step(NOW, EVEN, broke(1, Fault::Later { after }));
        assert_eq!(wait_after(&link), 90);
    }

    #[test]
    fn a_paused_link_stays_paused() {
        let (link, _) = Link::default().step(NOW, EVEN, Event::Start);
        let (link, effect) = link.step(NOW, EVEN, Event::Pause);
        assert_eq!(effect, Some(Effect::Disconnect));
        let (link, _) = link.step(NOW, EVEN, Event::Alive { generation: 1 });
        assert_eq!(link.step(NOW, EVEN, Event::Tick).0.state, State::Paused);
    }

    #[test]
    fn a_clock_set_back_does_not_silence_a_link() {
        let (link, _) = Link::default().step(NOW, EVEN, Event::Start);
        let (link, _) = link.step(NOW, EVEN, broke(1, Fault::Later { after: None }));
        let earlier = NOW.before(Duration::from_secs(900));
        let long_ago = Millis(0);
        assert!(
            matches!(link.clone().step(earlier, EVEN, Event::Tick).1, Some(Effect::WakeAt(_))),
            "a small step"
        );
        let (link, _) =
            link.step(NOW.after(Duration::from_secs(86_400)), EVEN, broke(1, Fault::Later { after: None }));
        assert_eq!(link.step(long_ago, EVEN, Event::Tick).1, Some(Effect::Connect { generation: 2 }));
    }
}
