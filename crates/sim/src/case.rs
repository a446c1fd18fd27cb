//! A case: scenario, seed, and the bounds left by shrinking.

use std::fmt;
use std::str::FromStr;

use petasos_core::admission::BusyMode;
use petasos_relay::session;

use petasos_runtime::simulation::rng::Rng;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scenario {
    /// Conversations with few faults.
    Conversation,
    /// Processes are killed at commits.
    Crash,
    /// Drains that start, end and start again.
    Drain,
    /// Graceful stops and restarts during turns.
    Restart,
    /// Every fault of links and sends.
    Flaky,
    /// Background completions during other work.
    Completions,
    /// More messages than can be answered.
    Flood,
    /// Everything at once.
    Storm,
    /// A connector between gateway and platform; both crash.
    Relay,
    /// The disk is full for a while.
    Disk,
    /// Clocks are set forward and back.
    Clock,
    /// Scheduled jobs.
    Jobs,
    /// Commands need the consent of a person, who answers, or does not.
    Approvals,
    /// Conversations become too long for their model.
    Compaction,
    /// People send files, and answers name them.
    Media,
    /// Programs ask for runs, and repeat what was not answered.
    Runs,
}

impl Scenario {
    pub const ALL: [Self; 16] = [
        Self::Conversation,
        Self::Crash,
        Self::Drain,
        Self::Restart,
        Self::Flaky,
        Self::Completions,
        Self::Flood,
        Self::Storm,
        Self::Relay,
        Self::Disk,
        Self::Clock,
        Self::Jobs,
        Self::Approvals,
        Self::Compaction,
        Self::Media,
        Self::Runs,
    ];

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.name() == name)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Conversation => "conversation",
            Self::Crash => "crash",
            Self::Drain => "drain",
            Self::Restart => "restart",
            Self::Flaky => "flaky",
            Self::Completions => "completions",
            Self::Flood => "flood",
            Self::Storm => "storm",
            Self::Relay => "relay",
            Self::Disk => "disk",
            Self::Clock => "clock",
            Self::Jobs => "jobs",
            Self::Approvals => "approvals",
            Self::Compaction => "compaction",
            Self::Media => "media",
            Self::Runs => "runs",
        }
    }
}

/// One run. Bounds are `None` until shrinking sets them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    pub scenario: Scenario,
    pub seed: u64,
    /// Limit of messages.
    pub messages: Option<u32>,
    /// Limit of failing requests.
    pub faults: Option<u32>,
    pub crashes: Option<u32>,
}

impl Case {
    pub const fn new(scenario: Scenario, seed: u64) -> Self {
        Self { scenario, seed, messages: None, faults: None, crashes: None }
    }

    /// Alternates between scenarios, so that any range of seeds covers all.
    pub fn of_seed(seed: u64) -> Self {
        let count = Scenario::ALL.len() as u64;
        Self::new(Scenario::ALL[usize::try_from(seed % count).unwrap_or_default()], seed)
    }

    /// The command line that repeats this case.
    pub fn command(&self) -> String {
        format!("cargo run -q -p petasos-sim -- replay {self}")
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.scenario.name(), self.seed)?;
        for (letter, bound) in [('m', self.messages), ('f', self.faults), ('c', self.crashes)] {
            if let Some(bound) = bound {
                write!(f, ":{letter}{bound}")?;
            }
        }
        Ok(())
    }
}

impl FromStr for Case {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = text.trim().split(':');
        let name = words.next().unwrap_or_default();
        let scenario = Scenario::named(name).ok_or_else(|| format!("no scenario is called {name:?}"))?;
        let seed = words.next().and_then(|word| word.parse().ok()).ok_or("a seed is missing")?;
        let mut case = Self::new(scenario, seed);
        for word in words {
            let bound = word.get(1..).and_then(|number| number.parse().ok());
            let field = match word.chars().next() {
                Some('m') => &mut case.messages,
                Some('f') => &mut case.faults,
                Some('c') => &mut case.crashes,
                _ => return Err(format!("{word:?} means nothing")),
            };
            *field = Some(bound.ok_or_else(|| format!("{word:?} has no number"))?);
        }
        Ok(case)
    }
}

/// Parameters of a scenario. Odds are per mille.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) chats: u64,
    pub(crate) messages: u64,
    /// Span of the messages in milliseconds.
    pub(crate) span: u64,
    pub(crate) busy: BusyMode,
    pub(crate) streaming: bool,
    /// The process is killed before or after a commit.
    pub(crate) crash_odds: u64,
    /// Limit of crashes; up to two are at other times than commits.
    pub(crate) crashes: u32,
    /// A platform request fails.
    pub(crate) send_odds: u64,
    pub(crate) poll_odds: u64,
    pub(crate) model_odds: u64,
    pub(crate) faults: u32,
    pub(crate) drains: u64,
    pub(crate) stops: u64,
    pub(crate) completions: u64,
    /// Periods with a full disk.
    pub(crate) full: u64,
    /// How often a clock is set.
    pub(crate) jumps: u64,
    pub(crate) jobs: u64,
    /// Seconds in which a person can approve a command. `None`: no command needs approval.
    pub(crate) consent: Option<u64>,
    /// Rows of a conversation from which it is compacted.
    pub(crate) rows: Option<usize>,
    /// Probability that a message has a file.
    pub(crate) file_odds: u64,
    /// Runs that API clients start.
    pub(crate) runs: u64,
    /// All messages pass a connector.
    pub(crate) relayed: bool,
    /// The connection to the connector breaks or stalls.
    pub(crate) wire_odds: u64,
    /// Policy of the connector's sessions.
    pub(crate) session: session::SessionPolicy,
    /// Limit of frames waiting for their commit.
    pub(crate) room: usize,
    /// The gateway sleeps when idle.
    pub(crate) doze: Option<Idling>,
}

/// Idle settings, times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Idling {
    pub(crate) after: u64,
    pub(crate) tick: u64,
    /// Exits and is started by a wake call; otherwise the machine suspends.
    pub(crate) exits: bool,
}

impl Plan {
    pub(crate) fn of(case: &Case) -> Self {
        let mut rng = Rng::new(case.seed, 1);
        let mut plan = Self {
            chats: rng.between(1, 4),
            messages: rng.between(3, 12),
            span: rng.between(5_000, 240_000),
            busy: rng.pick(&[BusyMode::Interrupt, BusyMode::Queue, BusyMode::Steer]),
            streaming: rng.chance(600),
            crash_odds: 0,
            crashes: 0,
            send_odds: 20,
            poll_odds: 20,
            model_odds: 50,
            faults: 200,
            drains: 0,
            stops: 0,
            completions: 0,
            full: 0,
            jumps: 0,
            jobs: 0,
            consent: None,
            rows: None,
            file_odds: 0,
            runs: 0,
            relayed: false,
            wire_odds: 0,
            session: session::SessionPolicy::default(),
            room: 256,
            doze: None,
        };
        match case.scenario {
            Scenario::Conversation => {}
            Scenario::Crash => (plan.crash_odds, plan.crashes) = (rng.between(20, 150), 6),
            Scenario::Drain => (plan.drains, plan.span) = (rng.between(1, 4), rng.between(5_000, 60_000)),
            Scenario::Restart => (plan.stops, plan.send_odds) = (rng.between(1, 4), 60),
            Scenario::Flaky => (plan.send_odds, plan.poll_odds, plan.model_odds) = (350, 300, 200),
            Scenario::Completions => {
                (plan.completions, plan.crash_odds, plan.crashes) = (rng.between(2, 8), 20, 2);
                plan.poll_odds = 100;
            }
            Scenario::Flood => (plan.messages, plan.span, plan.chats) = (rng.between(60, 160), 3_000, 2),
            Scenario::Storm => {
                (plan.crash_odds, plan.crashes) = (rng.between(10, 60), 5);
                (plan.send_odds, plan.poll_odds, plan.model_odds) = (150, 150, 100);
                (plan.drains, plan.stops, plan.completions) = (rng.below(3), rng.below(3), rng.below(5));
            }
            Scenario::Relay => plan.relay(&mut rng),
            Scenario::Jobs => {
                (plan.jobs, plan.messages, plan.chats) = (rng.between(1, 3), rng.between(1, 6), 2);
                (plan.crash_odds, plan.crashes) = (rng.pick(&[0, 20, 60]), 5);
                (plan.drains, plan.stops, plan.full) = (rng.below(2), rng.below(2), rng.below(2));
                (plan.jumps, plan.span) = (rng.below(3), rng.between(60_000, 600_000));
            }
            Scenario::Approvals => {
                if rng.chance(200) {
                    plan.relay(&mut rng);
                }
                (plan.consent, plan.chats) = (Some(rng.between(10, 90)), rng.between(1, 2));
                plan.messages = rng.between(6, 30);
                (plan.crash_odds, plan.crashes) = (rng.pick(&[0, 20, 60]), 4);
                (plan.stops, plan.full, plan.completions) = (rng.below(2), rng.below(2), rng.below(2));
            }
            Scenario::Compaction => {
                if rng.chance(200) {
                    plan.relay(&mut rng);
                }
                (plan.rows, plan.chats) = (Some(rng.pick(&[24, 30])), rng.between(1, 2));
                (plan.messages, plan.span) = (rng.between(30, 60), rng.between(300_000, 900_000));
                (plan.crash_odds, plan.crashes) = (rng.pick(&[0, 5, 20]), 4);
                (plan.stops, plan.model_odds) = (rng.below(2), 100);
            }
            Scenario::Media => {
                (plan.file_odds, plan.messages) = (600, rng.between(5, 20));
                (plan.crash_odds, plan.crashes) = (rng.pick(&[0, 20, 60]), 5);
                (plan.stops, plan.drains, plan.send_odds) = (rng.below(2), rng.below(2), 60);
            }
            Scenario::Runs => {
                (plan.runs, plan.messages) = (rng.between(3, 12), rng.between(1, 8));
                (plan.crash_odds, plan.crashes) = (rng.pick(&[0, 20, 60]), 5);
                (plan.stops, plan.drains, plan.full) = (rng.below(2), rng.below(2), rng.below(2));
            }
            Scenario::Clock => {
                if rng.chance(300) {
                    plan.relay(&mut rng);
                }
                (plan.jumps, plan.stops, plan.completions) = (rng.between(1, 4), rng.below(3), rng.below(3));
                (plan.crash_odds, plan.crashes) = (rng.pick(&[0, 30]), 3);
                (plan.send_odds, plan.poll_odds) = (200, 150);
            }
            Scenario::Disk => {
                if rng.chance(500) {
                    plan.relay(&mut rng);
                }
                (plan.full, plan.stops, plan.completions) = (rng.between(1, 4), rng.below(2), rng.below(3));
                (plan.crash_odds, plan.crashes, plan.send_odds) = (rng.pick(&[0, 20]), 2, 60);
            }
        }
        if plan.crashes == 0 {
            // Also where the scenario is about something else. A stream of its own, so that nothing else changes.
            plan.crashes = u32::from(Rng::new(case.seed, 8).chance(300));
        }
        plan.messages = case.messages.map_or(plan.messages, |most| plan.messages.min(u64::from(most)));
        plan.faults = case.faults.map_or(plan.faults, |most| plan.faults.min(most));
        plan.crashes = case.crashes.map_or(plan.crashes, |most| plan.crashes.min(most));
        plan
    }

    fn relay(&mut self, rng: &mut Rng) {
        (self.relayed, self.messages) = (true, rng.between(4, 30));
        (self.crash_odds, self.crashes) = (rng.pick(&[0, 10, 40]), 6);
        (self.wire_odds, self.stops, self.full) = (rng.pick(&[0, 10, 40]), rng.below(2), rng.below(2));
        self.session.window = rng.pick(&[1, 2, 8, 64]);
        self.room = rng.pick(&[2, 256]);
        let doze = Idling {
            after: rng.between(1_000, 20_000),
            tick: rng.between(1_000, 10_000),
            exits: rng.chance(500),
        };
        self.doze = rng.chance(700).then_some(doze);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_survives_being_written_down() {
        for text in ["crash:42", "storm:7:m3:f0:c1", "flood:0:f12"] {
            assert_eq!(text.parse::<Case>().expect(text).to_string(), text);
        }
        for text in ["crash", "crush:1", "crash:1:x3", "crash:1:m"] {
            assert!(text.parse::<Case>().is_err(), "{text}");
        }
    }
}
