//! What goes wrong: commits that the process does not survive, requests that fail.

use petasos_store::Tx;

use crate::outside::Trouble;
use crate::promise::Promise;
use crate::relay;
use crate::sim::{Flow, Halt, Sim, Whose};

/// The longest a platform keeps us waiting for news.
pub(crate) const POLL: u64 = 50_000;

impl Sim {
    /// One commit. The process may die before it, or right after it.
    pub(crate) fn commit<T>(
        &mut self,
        what: &'static str,
        job: impl FnOnce(&Tx<'_>) -> petasos_store::Result<T>,
    ) -> Flow<T> {
        self.at_risk(what, Whose::Ours, |sim| sim.p().store.write(job))
    }

    /// The same for the connector.
    pub(crate) fn their_commit<T>(
        &mut self,
        what: &'static str,
        job: impl FnOnce(&Tx<'_>) -> petasos_store::Result<T>,
    ) -> Flow<T> {
        self.at_risk(what, Whose::Theirs, |sim| sim.far().store.write(job))
    }

    fn at_risk<T>(
        &mut self,
        what: &'static str,
        whose: Whose,
        write: impl FnOnce(&mut Self) -> petasos_store::Result<T>,
    ) -> Flow<T> {
        let dies = !self.calm
            && self.figures.crashes < u64::from(self.plan.crashes)
            && self.deaths.odds(self.plan.crash_odds);
        let after = self.deaths.odds(500);
        let death = || match whose {
            Whose::Ours => Halt::Crash,
            Whose::Theirs => Halt::TheirCrash,
        };
        if dies && !after {
            self.note(format!("  before the commit: {what}"));
            return Err(death());
        }
        if self.full.contains(&whose) {
            self.figures.refusals += 1;
            self.note(format!("  refused: {what}"));
            return Err(if dies { death() } else { Halt::Full });
        }
        self.figures.commits += 1;
        self.note(format!("  commit: {what}"));
        let done = write(self);
        if dies {
            return Err(death());
        }
        done.map_err(|error| Halt::broken(Promise::G2, format!("the store refused to {what}: {error}")))
    }

    /// What a full disk refused, and nobody has to repeat.
    pub(crate) fn unless_full<T>(done: Flow<T>) -> Flow<Option<T>> {
        match done {
            Ok(value) => Ok(Some(value)),
            Err(Halt::Full) => Ok(None),
            Err(halt) => Err(halt),
        }
    }

    pub(crate) fn disk_is_full(&self) -> bool {
        self.full.contains(&Whose::Ours)
    }

    /// The connector is no more. Somebody starts it again.
    pub(crate) fn connector_gone(&mut self) {
        self.their_end_died();
        self.relay.connector = None;
        self.relay.life += 1;
        self.relay_soon(relay::Event::Start, 200, 20_000);
    }

    /// In how many milliseconds there is something to hear.
    pub(crate) fn until_somebody_writes(&self) -> u64 {
        let coming = self.world.said.iter().filter(|it| !it.written && it.at > self.time);
        coming.map(|it| it.at.0 - self.time.0).min().unwrap_or(POLL).min(POLL)
    }

    /// Whether this request goes wrong.
    pub(crate) fn fails(&mut self, odds: u64) -> bool {
        let fails = !self.calm && self.figures.faults < u64::from(self.plan.faults) && self.faults.odds(odds);
        self.figures.faults += u64::from(fails);
        fails
    }

    pub(crate) fn trouble(&mut self) -> Trouble {
        if !self.fails(self.plan.send_odds) {
            return Trouble::None;
        }
        self.faults.pick(&[
            Trouble::Limited { named: true },
            Trouble::Limited { named: false },
            Trouble::Unreached,
            Trouble::Lost,
            Trouble::Lost,
            Trouble::Unanswered,
            Trouble::Unanswered,
            Trouble::Unanswered,
            Trouble::Refused,
            Trouble::Blocked,
        ])
    }

    /// How long a request takes to get there, and its answer to come back.
    pub(crate) fn travel(&mut self, trouble: Trouble) -> (u64, u64) {
        let there = self.luck.between(5, 400);
        let back = match trouble {
            // A time-out of our own.
            Trouble::Lost | Trouble::Unanswered => self.luck.between(10, 30_000),
            Trouble::None
            | Trouble::Limited { .. }
            | Trouble::Unreached
            | Trouble::Refused
            | Trouble::Blocked => self.luck.between(5, 400),
        };
        (there, back)
    }
}
